"""`malleable profile`, and the words of `malleable explain` about learned curves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from build import make_snapshot
from planning.whole_ticks import settings_in
from rate_tellers import TRUE, moment, one_tick, rate, seen_at, tell, teller
from slurm_hooks.cli import main
from slurm_hooks.commands.inspect import known_lines
from slurm_hooks.learning.store.connect import learned_path, reading
from slurm_hooks.learning.store.read import job_profile
from slurm_hooks.learning.store.tick import recall
from slurm_hooks.model import (
    Learned,
    MalleableJob,
    Pauses,
    Plan,
    Telemetry,
)
from slurm_hooks.model.moments import age_text
from slurm_hooks.report.learned_text import learned_lines
from slurm_hooks.settings.values import Settings
from slurm_hooks.tick.report import TickReport


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_in(tmp_path)


@pytest.fixture
def profile(settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """The exit code and the output of a call."""
    path = tmp_path / "malleable.toml"
    path.write_text(f'[tick]\nstate_dir = "{settings.tick.state_dir}"\n')

    def called(*words: str) -> tuple[int, str]:
        code = main(["profile", *words, "--settings", str(path)])
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return called


def told_of(settings: Settings, job: MalleableJob, seconds: float) -> list[str]:
    learned = recall(seen_at(seconds, job), settings).learned.get(job.job_id)
    with reading(settings) as database:
        kept = job_profile(database, job.job_id)
    return learned_lines(job, learned, kept, moment(seconds))


def test_a_job(settings: Settings, profile) -> None:  # type: ignore[no-untyped-def]
    tell(settings, 0, 7, 1, 2, 8)
    code, text = profile("7")
    assert code == 0
    assert "job 7 of ada/train.sh, 1-16 nodes" in text
    lines = {words[0]: words for words in map(str.split, text.splitlines()) if words}
    assert lines["8"][1] == f"{TRUE(8):g}"
    assert "measured" in lines["8"]
    assert lines["16"][-1] == "assumed"
    assert float(lines["8"][2]) == pytest.approx(TRUE(8) / TRUE(1), rel=0.1)


def test_a_job_as_data(settings: Settings, profile) -> None:  # type: ignore[no-untyped-def]
    tell(settings, 0, 7, 1, 2, 8)
    data = json.loads(profile("7_3", "--json")[1])
    assert [r["nodes"] for r in data["counted"]] == [1, 2, 8]
    assert data["family"]["name"] == "train.sh"
    assert data["learned"]["curve"]["points"][0] == [0, 0.0]


def test_families(settings: Settings, profile) -> None:  # type: ignore[no-untyped-def]
    for job_id in (1, 2):
        tell(settings, job_id, job_id, 1, 2, 8, name=f"trial-{job_id}")
    tell(settings, 3, 3, 1, user="bob")
    _, text = profile()
    assert [line.split()[0] for line in text.splitlines()[1:]] == ["bob/train.sh", "ada/trial"]
    code, text = profile("--family", "ada/trial")
    assert code == 0
    assert "2 of 2 jobs reported how they scale" in text
    assert profile("--family", "trial")[1] == text
    data = json.loads(profile("--family", "trial", "--json")[1])
    assert [job["job_id"] for job in data["families"][0]["of"]] == [2, 1]
    code, text = profile("--family", "bob/trial")
    assert code == 64
    assert "malleable profile` lists them" in text


def test_pictures(settings: Settings, profile, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("matplotlib")
    tell(settings, 0, 7, 1, 2, 8)
    tell(settings, 1, 8)
    tell(settings, 2, 9, 1, user="bob")
    for words in (("7",), ("8",), ("--family", "train.sh"), ("--family", "bob/train.sh")):
        path = tmp_path / "picture.of.it"
        assert profile(*words, "--png", str(path))[0] == 0
        assert path.read_bytes()[:4] == b"\x89PNG"
        path.unlink()
    other = tmp_path / "picture.of-no-format"
    assert profile("7", "--png", str(other))[0] == 0
    assert other.read_bytes()[:4] == b"\x89PNG"
    assert profile("--png", str(path))[0] == 64


@pytest.mark.parametrize(
    "words",
    [
        ("9" * 30,),
        ("9" * 5000,),
        ("--family", "\udcff"),
        ("--forget", "\udcff"),
        ("--forget", "\x1b[1m"),
    ],
)
def test_a_wrong_name_or_number_is_no_stack_trace(
    settings: Settings,
    profile,  # type: ignore[no-untyped-def]
    words: tuple[str, ...],
) -> None:
    tell(settings, 0, 7, 1, 2, 8)
    code, text = profile(*words)
    assert code == 64
    assert "job" in text


def test_forgetting(settings: Settings, profile) -> None:  # type: ignore[no-untyped-def]
    tell(settings, 0, 7, 1, 2, 8)
    tell(settings, 1, 8, 1, name="other")
    assert "forgot 1 job" in profile("--forget", "ada/other")[1]
    assert json.loads(profile("--forget", "ada", "--json")[1]) == {
        "version": 1,
        "forgotten_jobs": 1,
    }
    assert profile("7")[0] == 64
    assert "no records yet" in profile()[1]
    assert all(b"ada" not in path.read_bytes() for path in learned_path(settings).parent.iterdir())


def test_before_anything_was_learned(settings: Settings, profile) -> None:  # type: ignore[no-untyped-def]
    code, text = profile("7")
    assert code == 64
    assert "The first tick" in text
    assert profile()[0] == 0
    assert "no records yet" in profile()[1]
    assert "forgot 0 jobs" in profile("--forget", "ada")[1]
    assert not learned_path(settings).exists()
    assert profile("7", "--family", "x")[0] == 64


def test_a_damaged_file_is_no_stack_trace(settings: Settings, profile) -> None:  # type: ignore[no-untyped-def]
    tell(settings, 0, 7, 1, 2, 8)
    learned_path(settings).write_text("no database, but longer than its header would be" * 99)
    for words in (("7",), ("--forget", "ada")):
        code, text = profile(*words)
        assert code == 64
        assert "moves it aside" in text


def test_the_words_of_explain(settings: Settings) -> None:
    tell(settings, 0, 7, 1, 2, 8)
    pauses = Pauses(start_s=40.0, grow_s=6.0)
    job = teller(7, rate(1, moment(-3)), rate(2, moment(-2)), rate(8, moment(-1)))
    fragments = job.fragments
    first = replace(fragments[0], telemetry=replace(fragments[0].telemetry, pauses=pauses))
    one_tick(settings, 60, replace(job, fragments=(first, *fragments[1:])))
    seen, assumed, paused = told_of(settings, job, 300)
    assert seen.startswith("learned: 8 nodes train 5.")
    assert seen.endswith("(measured at: 1, 2, 8, last 5 minutes ago)")
    assert assumed.startswith("learned: 16 nodes train")
    assert assumed.endswith("assumed, not measured")
    assert paused == "learned: measured pauses: start 40 s, growth 6 s"


def test_the_words_of_explain_about_jobs_with_few_rates(settings: Settings) -> None:
    tell(settings, 0, 7, 4)
    (line,) = told_of(settings, teller(7), 30)
    assert "a second size is missing" in line
    tell(settings, 31, 9, 8, 16)
    (line,) = told_of(settings, teller(9), 60)
    assert "measured at: 8, 16" in line
    assert "a small size is missing" in line
    (line,) = told_of(settings, teller(8), 30)
    assert "its scaling is not measured yet" in line
    lines = told_of(settings, teller(8), 3000)
    assert "`report()` in its script" in lines[1]


def test_the_words_of_explain_about_an_engine_without_rates() -> None:
    """`report()` in its script would have no effect."""
    job = teller(7)
    other = replace(job, request=replace(job.request, engine="torchft"))
    (line,) = learned_lines(other, Learned(), None, moment(900))
    assert "nodes are shared equally" in line
    assert "engine=torchft" in line


def test_the_words_of_explain_about_a_family(settings: Settings) -> None:
    for job_id in (1, 2):
        tell(settings, job_id, job_id, 1, 2, 8)
    lines = told_of(settings, teller(3), 60)
    assert "not measured itself" in lines[0]
    assert "same name" in lines[-1]


def test_explain_reports_an_unreadable_file(settings: Settings) -> None:
    job = teller(7)
    report = TickReport(seen_at(0).now, Plan(), seen_at(0, job), (), (), 0.0, is_dry=True)
    assert "cannot be read" not in known_lines(settings, report, job)[-1]
    tell(settings, 0, 7, 1)
    learned_path(settings).write_text("no database, but longer than its header would be" * 99)
    last = known_lines(settings, report, job)[-1]
    assert "cannot be read here: file is not a database" in last


def test_ages() -> None:
    texts = [age_text(s) for s in (-5, 1, 59, 119, 120, 7199, 7200, 172_800)]
    assert texts == ["0 seconds", "1 second", "59 seconds", "119 seconds", "2 minutes",
                    "120 minutes", "2 hours", "2 days"]  # fmt: skip


def test_a_telling_without_sizes_is_no_curve(settings: Settings) -> None:
    job = teller(7)
    empty = replace(job.fragments[0], telemetry=Telemetry())
    learned, warnings = one_tick(settings, 0, replace(job, fragments=(empty, *job.fragments[1:])))
    assert (learned, warnings) == ({7: Learned()}, ())
    assert make_snapshot().learned == {}
