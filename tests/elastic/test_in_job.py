"""`malleable` in a job: wishes, the end of a pool, and words for another command."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import slurm_hooks
from programs import write_program
from slurm_hooks.elastic.batch import job_comment, wish
from slurm_hooks.protocol.comment import Standing, parse
from slurm_hooks.slurm.wish import parse_wish
from waiting import wait_until

from .processes import launch
from .test_standing import ENV, asked, slurm  # noqa: F401

POOL = {**ENV, "MALLEABLE_JOB_ID": "7", "MALLEABLE_ENGINE": "pool", "MALLEABLE_MAX": "8"}


def call(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "slurm_hooks.elastic", *words]
    known = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    return subprocess.run(
        argv, env={**known, **env}, capture_output=True, text=True, timeout=150, check=False
    )


def comment(place: Path) -> str:
    return (place / "comment").read_text()


def test_a_wish_keeps_the_other_words(slurm: Path) -> None:  # noqa: F811
    (slurm / "comment").write_text("joined{2};h{60};mine;wish{1,5}")
    before = int(time.time())
    assert call("wish", "5", **POOL).returncode == 0
    head, text, rest = re.fullmatch(r"(.*?);(wish\{.*?\});(.*)", comment(slurm)).groups()  # type: ignore[union-attr]
    assert (head, rest) == ("joined{2};h{60}", "mine")
    wish = parse_wish(comment(slurm))
    assert wish is not None
    assert wish.nodes == 5
    assert before <= wish.at.timestamp() <= time.time()
    assert text.startswith("wish{5,")


def test_a_wish_above_max_is_cut_and_says_so(slurm: Path) -> None:  # noqa: F811
    done = call("wish", "100", **POOL)
    assert done.returncode == 0
    assert "100 is above the MAX of this job, so it now wants 8" in done.stderr
    assert comment(slurm).startswith("wish{8,")


@pytest.mark.parametrize("words", [(), ("x",), ("-1",), ("1", "2"), ("70000",)])
def test_a_text_that_is_no_wish_is_refused(slurm: Path, words: tuple[str, ...]) -> None:  # noqa: F811
    assert call("wish", *words, **POOL).returncode == os.EX_USAGE
    assert asked(slurm) == []


def test_outside_of_a_job_the_commands_say_so(slurm: Path) -> None:  # noqa: F811
    for words, said in (
        (("wish", "3"), "this is no fragment of a malleable job"),
        (("run", "true"), "this is no malleable job"),
        (("finish",), "works only in a pool"),
    ):
        done = call(*words)
        assert (done.returncode, said in done.stderr) == (os.EX_USAGE, True), done.stderr
    assert asked(slurm) == []


def test_slurm_that_refuses_a_wish_is_quoted(slurm: Path) -> None:  # noqa: F811
    (slurm / "refuse").touch()
    done = call("wish", "3", **POOL)
    assert done.returncode == os.EX_USAGE
    assert "Slurm refuses the wish" in done.stderr


def test_finish_reports_that_all_work_is_done(slurm: Path) -> None:  # noqa: F811
    assert call("finish", **POOL).returncode == 0
    assert comment(slurm) == "finished{2}"
    assert call("finish", **{**POOL, "MALLEABLE_ENGINE": "mpi"}).returncode == os.EX_USAGE


def test_a_site_s_own_pool_is_known_by_its_traits(slurm: Path) -> None:  # noqa: F811
    own = {**POOL, "MALLEABLE_ENGINE": "dask", "SLURM_SPANK_MALLEABLE_TRAITS": "pool"}
    assert call("finish", **own).returncode == 0
    assert comment(slurm) == "finished{2}"
    assert call("run", "--", "sh", "-c", "exit 3", **own).returncode == 3
    wrong = {**own, "SLURM_SPANK_MALLEABLE_TRAITS": "pool+daemon"}
    for words in (("finish",), ("run", "--", "true")):
        done = call(*words, **wrong)
        assert done.returncode == os.EX_USAGE
        assert "'pool+daemon' are not traits of an engine" in done.stderr


def test_an_engine_without_traits_runs_no_command_alone(slurm: Path, tmp_path: Path) -> None:  # noqa: F811
    ran = tmp_path / "ran"
    done = call("run", "--", "touch", str(ran), **{**POOL, "MALLEABLE_ENGINE": "horovod"})
    assert (done.returncode, ran.exists()) == (os.EX_USAGE, False)
    assert "the engine 'horovod' of this job is not configured here" in done.stderr


def test_any_process_of_a_fragment_may_say_that_all_is_done(slurm: Path) -> None:  # noqa: F811
    assert call("finish", **POOL, SLURM_PROCID="3").returncode == 0
    assert comment(slurm) == "finished{2}"


def test_other_words_are_passed_to_the_next_command(tmp_path: Path) -> None:
    write_program(tmp_path / "malleable", 'echo "other $*"\nexit 5')
    for words in (("status", "--json"), ("wish", "--job", "7", "3")):
        done = call(*words, PATH=f"{tmp_path}:{os.environ['PATH']}")
        assert (done.returncode, done.stdout) == (5, f"other {' '.join(words)}\n")
    done = call("plan", PATH="/nowhere")
    assert done.returncode == 127
    assert "`malleable plan` is not installed on this node" in done.stderr


def test_the_next_command_does_not_pass_words_back(tmp_path: Path) -> None:
    """Two job paths in PATH would call each other endlessly."""
    own = Path(slurm_hooks.__file__).parents[1] / "bin"
    write_program(tmp_path / "malleable", 'echo "$PATH"')
    done = call("status", PATH=f"{own}:{tmp_path}:/bin")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}:/bin\n")


WITH_WISHES = """
import sys
from slurm_hooks.elastic import __main__ as command
from slurm_hooks.elastic.engines.pool import wish_file
wish_file.EVERY_S = 0.2
sys.exit(command.main(sys.argv[1:]))
"""


def test_a_file_may_hold_the_wish(slurm: Path, tmp_path: Path) -> None:  # noqa: F811
    file = tmp_path / "wanted"
    argv = [sys.executable, "-c", WITH_WISHES, "run", f"--wish-file={file}", "--", "sleep", "60"]
    agent = launch(argv, {**os.environ, **POOL}, stderr=subprocess.PIPE)
    wait_until(lambda: "joined{2}" in comment(slurm))
    file.write_text("3\n")
    wait_until(lambda: "wish{3," in comment(slurm))
    assert parse(comment(slurm)).says(Standing.JOINED, 2)
    file.write_text("junk")
    assert agent.stderr is not None
    assert any("is not a number of nodes" in line for line in agent.stderr)
    assert "wish{3," in comment(slurm)
    (slurm / "refuse").touch()
    file.write_text("4")
    wait_until(lambda: any("wish{4," in line for line in asked(slurm)))
    (slurm / "refuse").unlink()
    wait_until(lambda: "wish{4," in comment(slurm))  # told again
    agent.send_signal(signal.SIGTERM)
    agent.communicate(timeout=150)


def test_a_wish_that_the_agent_has_overwritten_is_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The agent may have read before the wish, and write after it."""
    written: list[str] = []

    def write(_job: str, text: str, _limit_s: float) -> None:
        written.append(text)

    def read(_job: str, _limit_s: float) -> str:
        return "trained{2};wish{9,5}" if len(written) < 2 else written[-1]

    monkeypatch.setattr(job_comment, "write", write)
    monkeypatch.setattr(job_comment, "read", read)
    monkeypatch.setattr(wish, "CONFIRM_S", 0.0)
    assert wish.write_wish(POOL, "4") == 4
    assert len(written) == 2
    assert written[1].startswith("trained{2};wish{4,")


def test_processes_of_a_worker_end_with_it(slurm: Path, tmp_path: Path) -> None:  # noqa: F811
    argv = [sys.executable, "-m", "slurm_hooks.elastic", "run", "--grace=0.5", "--"]
    deaf = f"trap '' TERM; sleep 300 & echo $! > {tmp_path}/child; echo begun; wait"
    agent = launch([*argv, "sh", "-c", deaf], {**os.environ, **POOL}, stderr=subprocess.PIPE)
    assert agent.stdout is not None
    assert agent.stdout.readline() == "begun\n"
    child = int((tmp_path / "child").read_text())
    agent.send_signal(signal.SIGTERM)
    agent.communicate(timeout=150)
    wait_until(lambda: not is_alive(child))


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_worker_learns_the_end_of_its_lease(slurm: Path) -> None:  # noqa: F811
    ends = str(int(time.time()) + 900)
    words = ("run", "--", "sh", "-c", "echo $MALLEABLE_LEASE_END")
    done = call(*words, **POOL, SLURM_JOB_END_TIME=ends)
    assert (done.returncode, done.stdout) == (0, f"{ends}\n")
    assert not any("requeue" in line or "finished" in line for line in asked(slurm))
