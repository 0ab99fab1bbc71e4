"""`malleable report`: its text about a ledger, and its text without a ledger."""

from __future__ import annotations

import io
import json
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from rich.console import Console

from build import NOW, after
from fake_parts import START, Rigid
from ledger.books import busy_slurm, one_tick, settings_in
from slurm_hooks import cli
from slurm_hooks.errors import UsageError
from slurm_hooks.history.database import reading
from slurm_hooks.history.harvest.totals import Ends, Query, Sample, Ticks, Totals
from slurm_hooks.history.harvest.values import Delay, LaneWait
from slurm_hooks.history.ledger import last_seen
from slurm_hooks.history.place import ledger_path
from slurm_hooks.history.questions import totals
from slurm_hooks.model import Of, Terms, Why
from slurm_hooks.model.snapshot.codec import to_data
from slurm_hooks.report.harvest_charts import BARS
from slurm_hooks.report.harvest_text import (
    HOW_ENDED,
    WHY_IDLE,
    figures,
    harvest_view,
    headline,
    moments,
)
from slurm_hooks.report.tables import print_tables, printable
from slurm_hooks.settings.file import load

BEGIN = datetime.fromtimestamp(START - 60, timezone.utc).isoformat()
END = datetime.fromtimestamp(START + 7200, timezone.utc).isoformat()
SPAN = ("--since", BEGIN, "--until", END)


@pytest.fixture
def hour(tmp_path: Path) -> Path:
    """The settings of a site whose ledger has an hour: a preemption and a planned start."""
    settings, slurm = settings_in(tmp_path), busy_slurm()
    slurm.rigid.append(
        Rigid(99, frozenset({"n1", "n2"}), slurm.now + 300, slurm.now + 900, seconds=300)
    )
    for step in range(120):
        one_tick(slurm, settings)
        if step == 20:
            slurm.preempt("1_1")
        slurm.advance(30)
    path = tmp_path / "malleable.toml"
    path.write_text(f'[tick]\nstate_dir = "{settings.tick.state_dir}"\n')
    return path


def report(path: Path, *words: str) -> int:
    return cli.main(["report", "--settings", str(path), *words])


def test_the_numbers_of_an_hour(hour: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(hour, *SPAN, "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ticks"]["count"] == 120
    assert answer["interruptions"] == 1
    assert (answer["starts"], answer["delayed_jobs"], answer["delay_s"]) == (1, 0, 0)
    assert 0.8 < answer["used_share"] <= answer["efficiency"] <= 1
    assert answer["node_s"] == pytest.approx(sum(u["node_s"] for u in answer["users"]))
    assert answer["idle"]["hole_short"] > 0
    done = {(d["verb"], d["cause"]): d["fragments"] for d in answer["done"]}
    assert done["grow", "hole_open"] == sum(u["releases"] for u in answer["users"])
    assert done["notice", "hole_closes"] >= 2


def test_a_lane_that_gives_no_node_at_once_is_reported(
    hour: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(hour, *SPAN) == 0
    assert "may wait" not in capsys.readouterr().out
    second = timedelta(seconds=1)
    lane = LaneWait(Terms("gpu", 600 * second), 30 * second, 3600 * second)
    with sqlite3.connect(ledger_path(load(hour).tick.state_dir)) as ledger:
        seen = last_seen(ledger)
        assert seen is not None
        text = json.dumps(to_data(replace(seen, lanes=(lane,))))
        ledger.execute("REPLACE INTO last VALUES (1, ?)", (text,))
    assert report(hour, *SPAN) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "partition gpu: a job may wait up to 11 min for a node with a fragment: grace 10 min,"
        in said
    )
    assert report(hour, *SPAN, "--json") == 0
    (reported,) = json.loads(capsys.readouterr().out)["lanes"]
    assert (reported["terms"]["partition"], reported["terms"]["grace_s"]) == ("gpu", 600)


def test_the_same_hour_for_people(hour: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(hour, *SPAN) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "node-hours that other jobs left idle from" in text
    assert "1 fragment interrupted: at most" in text
    assert "delays caused: 0 (1 job with a published start" in text
    assert WHY_IDLE[Why.HOLE_SHORT] in text


@pytest.mark.parametrize("name", ["r.html", "r.png"])
def test_a_file_has_the_format_of_its_name(
    hour: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    pytest.importorskip("matplotlib")
    assert report(hour, *SPAN, "-o", str(tmp_path / name)) == 0
    assert capsys.readouterr().out == f"written: {tmp_path / name}\n"
    begins = b"<!doctype html" if name == "r.html" else b"\x89png"
    assert (tmp_path / name).read_bytes()[:14].lower().startswith(begins)


def test_jobs_beyond_the_first_are_counted_below_the_table(hour: Path) -> None:
    with reading(ledger_path(str(hour.parent / "state"))) as ledger:
        sums = totals(ledger, Query(*map(datetime.fromisoformat, (BEGIN, END)), "", ""))
    sums = replace(sums, jobs=sums.jobs[:1] * 14)
    console = Console(file=io.StringIO(), width=80)
    print_tables(console, harvest_view(sums))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert "and 2 more: see --json or --output FILE.html" in lines
    assert [line for line in lines if len(line) > 80 or line.endswith(" ")] == []


def test_a_single_user(hour: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(hour, *SPAN, "--json", "--user", "somebody") == 0
    assert json.loads(capsys.readouterr().out)["node_s"] == 0


def test_no_tick_in_the_span(hour: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(hour, "--since", "2020-01-01", "--until", "2020-01-02") == 0
    assert "the ledger has no tick from 2020-01-01" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--since", "soon"), "'soon' is not a moment: write 90s"),
        (("--since", "1h", "--until", "2h"), "--since 1h is not before --until 2h"),
        (("--since", "0d"), "--since 0d is not before now: give an earlier --since"),
        (("--since", "now"), "--since now is not before now"),
        (("--since", "1h", "--until", "9999999d"), "'9999999d' is not a moment"),
        (("--since", "999999d"), "'999999d' is not a moment"),
    ],
)
def test_questions_that_are_refused(
    hour: Path, capsys: pytest.CaptureFixture[str], words: Sequence[str], said: str
) -> None:
    assert report(hour, *words) == UsageError.exit_code
    assert said in capsys.readouterr().err


def test_without_a_ledger_the_report_says_how_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "malleable.toml"
    path.write_text(f'[tick]\nstate_dir = "{tmp_path}/none"\n')
    assert report(path) == UsageError.exit_code
    said = capsys.readouterr().err
    assert "no tick has run yet: cannot read the ledger" in said
    assert "The first tick creates it" in said
    path.write_text(path.read_text() + "[ledger]\nenabled = false\n")
    assert report(path) == UsageError.exit_code
    assert "ledger.enabled is false" in capsys.readouterr().err


def test_a_damaged_ledger_is_no_stack_trace(hour: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (hour.parent / "state" / "ledger.sqlite").write_text("damaged " * 1000)
    assert report(hour) == UsageError.exit_code
    assert "The next tick moves it aside" in " ".join(capsys.readouterr().err.split())


def test_a_picture_s_time_does_not_step_back_when_summer_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began = datetime(2026, 10, 24, 22, tzinfo=timezone.utc)
    samples = [Sample(began + timedelta(hours=h), 0, 0, 0, {}) for h in range(6)]
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        shown = moments(samples)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert shown[-1] == datetime(2026, 10, 25, 4)
    assert [b - a for a, b in zip(shown, shown[1:])] == [timedelta(hours=1)] * 5


def test_doubts_and_delays_are_said() -> None:
    nothing = Totals(
        Query(NOW, after(9)), NOW, after(3600), 3600, 0, 0, 0, 0, {}, (), (), (), (), (), (), 0,
        Ticks(2, 0.1, 0.2, 10, 0), (),
    )  # fmt: skip
    assert "no fragment was interrupted" in headline(nothing)[1]
    doubtful = Totals(
        Query(NOW, after(9)), NOW, after(3600), 3600, 1800, 3600, 3600, 360, {}, (), (), (),
        (Ends(Why.DIED, 2, 7200),), (), (Delay("9", NOW, after(70), 60),), 3,
        Ticks(2, 0.1, 0.2, 10, 0), (),
    )  # fmt: skip
    text = "\n".join(headline(doubtful))
    assert "2 fragments interrupted: at most 2.00 node-hours" in text
    assert (
        "delays caused: at most 60 s in all, 60 s for a single job; 1 of 3 jobs with a published"
        in text
    )
    delays = "longest delay caused, at most. All delays together: 60 s (1 of 3 starts)"
    assert figures(doubtful)[-1] == ("60 s", delays)
    assert "reasons are unknown for 0.500 of 1.00 hours" in text
    assert "0.100 node-hours of all jobs are estimated" in text


def test_every_reason_and_end_has_words() -> None:
    assert set(WHY_IDLE) == set(BARS) == set(Of.IDLE.whys)
    assert set(HOW_ENDED) == set(Of.END.whys)


def test_a_name_does_not_control_a_terminal() -> None:
    assert printable("ann\x1b[31m\x07\u202e") == "ann?[31m??"


def test_a_user_without_jobs_is_reported(hour: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(hour, *SPAN, "--user", "nosuch") == 0
    assert "note: there is no job of user nosuch in this time" in capsys.readouterr().err
    assert report(hour, *SPAN) == 0
    assert capsys.readouterr().err == ""


def test_a_page_is_named_instead_of_printed(
    hour: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "report.html"
    assert report(hour, *SPAN, "--html", str(path)) == 0
    assert capsys.readouterr().out == f"written: {path}\n"
    assert path.stat().st_size > 1000
