"""Functions for scripts: mailbox and progress, without torch."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from programs import write_programs
from slurm_hooks.elastic.agent.forewarning import Forewarning
from slurm_hooks.elastic.batch import comment_writer, remark
from slurm_hooks.elastic.mailbox import Mailbox, MailboxReader, PlannedChange, open_files
from slurm_hooks.elastic.rendezvous.state import Stop
from slurm_hooks.elastic.script import observation
from slurm_hooks.elastic.script.progress import Reporter
from waiting import PATIENCE_S


def test_a_planned_change_reaches_workers_and_their_answers_the_agent() -> None:
    mailbox = Mailbox()
    readers = [MailboxReader({**mailbox.environment(), "LOCAL_RANK": str(n)}) for n in (0, 1)]
    assert readers[0].read() is None
    mailbox.post(PlannedChange("grow", 9.5))
    assert readers[1].read() == PlannedChange("grow", 9.5)
    assert not mailbox.is_awaited()
    for reader in readers:
        reader.listen()
    readers[0].allow_stop()
    assert mailbox.is_awaited()
    readers[1].allow_stop()
    assert not mailbox.is_awaited()
    mailbox.clear()
    assert readers[0].read() is None


def test_the_progress_of_the_training_reaches_the_agent() -> None:
    mailbox = Mailbox()
    reader = MailboxReader(mailbox.environment())
    forewarning = Forewarning(mailbox, 9.0)
    assert forewarning.samples() == 0
    reader.write_samples(64_000)
    mailbox.clear()  # a new round does not undo it
    assert forewarning.samples() == 64_000
    reader.write_samples(9)
    assert forewarning.samples() == 9
    assert Forewarning(None, 9.0).samples() == 0


def test_only_listening_workers_are_waited_for_and_not_endlessly() -> None:
    mailbox = Mailbox()
    reader = MailboxReader(mailbox.environment())
    assert Forewarning(None, 9.0).is_heard(Stop.GROW, 0.0)
    assert Forewarning(mailbox, 9.0).is_heard(Stop.PLANNED, 0.0)
    reader.listen()
    forewarning = Forewarning(mailbox, 9.0)
    assert not forewarning.is_heard(Stop.PLANNED, 10.0)
    assert not forewarning.is_heard(Stop.PLANNED, 18.0)
    assert reader.read() == PlannedChange("leave", 9.0)
    assert forewarning.is_heard(Stop.PLANNED, 19.1)
    forewarning.clear()
    reader.listen()
    assert not forewarning.is_heard(Stop.PLANNED, 30.0)
    reader.allow_stop()
    assert forewarning.is_heard(Stop.PLANNED, 30.2)


@pytest.mark.parametrize("where", ["", "x", "1", "0:0", "{own}:0", "999999999:3"])
def test_a_file_of_another_kind_is_not_a_mailbox(where: str) -> None:
    reader = MailboxReader({"MALLEABLE_MAILBOX": where.format(own=os.getpid())})
    reader.listen()
    assert reader.read() is None


def test_junk_is_not_a_planned_change() -> None:
    mailbox = Mailbox()
    handle = open_files(mailbox.environment()["MALLEABLE_MAILBOX"])[0]
    for junk in (b"{", b"[1]", b'{"why": 1}', b'{"why": "x", "left_s": {}}', b"\xff\xfe"):
        os.pwrite(handle, junk.ljust(256, b"\n"), 0)
        assert MailboxReader(mailbox.environment()).read() is None


@pytest.fixture(autouse=True)
def _nothing_left_to_write() -> Iterator[None]:
    """Finish a background write of a test before the next test sets up its Slurm."""
    yield
    for writer in comment_writer._writers.values():
        with writer._turn:
            pass


def fake_slurm(directory: Path, scontrol: str) -> None:
    write_programs(directory, {"squeue": "echo 'my own'", "scontrol": scontrol})


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside this fixture no agent observes this process."""
    monkeypatch.setattr(observation, "_observer", None)


@pytest.mark.usefixtures("observed")
def test_the_leader_reports_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report of progress to all agents changes their state, so it is not made every step."""
    mailbox = Mailbox()
    for name, value in mailbox.environment().items():
        monkeypatch.setenv(name, value)
    reporter = Reporter(os.environ)
    for samples in range(0, 6400, 64):
        reporter.report(samples)
        time.sleep(0.01)
    assert mailbox.samples() == 0
    (speed,) = mailbox.speeds().values()
    assert speed.reported == 64
    Reporter({**os.environ, "RANK": "1"}).report(9999)
    assert mailbox.samples() == 0
    Reporter(os.environ, every_s=0.0).report(6400)
    assert mailbox.samples() == 6400


@pytest.mark.usefixtures("observed")
def test_a_report_without_an_agent_or_number_does_not_disturb_the_training() -> None:
    for env in ({"SLURM_JOB_ID": "12"}, {"RANK": "1"}, {}):
        reporter = Reporter(env, every_s=0.0)
        for samples in (1, -5, "x", None, float("nan"), float("inf"), 10**400, 2):
            reporter.report(samples)  # type: ignore[arg-type]


def written_in(directory: Path, limit_s: float = PATIENCE_S) -> list[str]:
    """The arguments that scontrol got, once it was called."""
    deadline = time.monotonic() + limit_s
    lines: list[str] = []
    while not lines and time.monotonic() < deadline:
        time.sleep(0.02)
        lines = (
            (directory / "written").read_text().splitlines()
            if (directory / "written").exists()
            else []
        )
    return lines


def test_a_single_agent_writes_a_remark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_slurm(tmp_path, f'echo "$@" >> {tmp_path}/written')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    before = dict(os.environ)
    directory = tmp_path / "new" / "shared"
    env = {"SLURM_JOB_ID": "12", "MALLEABLE_DIR": str(directory), "PET_RDZV_ENDPOINT": "host:1"}
    for job in ("12", "13", "14"):
        remark.write_remark("your flag wins", {**env, "SLURM_JOB_ID": job})
    assert len(written_in(tmp_path)) == 1
    time.sleep(0.3)
    line = written_in(tmp_path)
    assert len(line) == 1
    assert line[0].endswith(" Comment=my own;remark{your flag wins}")
    assert dict(os.environ) == before  # or warm workers that stand by would not fit any more


@pytest.mark.parametrize("where", ["", "host:1", "/dev/null/shared"])
def test_a_remark_is_written_where_the_directory_is_the_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    fake_slurm(tmp_path, f'echo "$@" >> {tmp_path}/written')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    remark.write_remark("no space left", {"SLURM_JOB_ID": "12", "MALLEABLE_DIR": where})
    (line,) = written_in(tmp_path)
    assert line.endswith(" Comment=my own;remark{no space left}")


@pytest.mark.parametrize(("text", "is_withdrawn"), [("your flag wins", True), ("flag", False)])
def test_a_remark_is_withdrawn_and_another_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, is_withdrawn: bool
) -> None:
    fake_slurm(tmp_path, f'echo "$@" >> {tmp_path}/written')
    (tmp_path / "squeue").write_text("#!/bin/sh\necho 'my own;remark{your flag wins};x'\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    remark.withdraw_remark(text, {"SLURM_JOB_ID": "12"})
    requests = written_in(tmp_path, PATIENCE_S if is_withdrawn else 1.0)
    assert requests == (["update JobId=12 Comment=my own;x"] if is_withdrawn else [])


def test_a_remark_is_written_again_after_an_hour(tmp_path: Path) -> None:
    assert remark.is_first(tmp_path, "remark{a}")
    assert remark.is_first(tmp_path, "remark{b}")
    assert not remark.is_first(tmp_path, "remark{a}")
    for claim in tmp_path.iterdir():
        os.utime(claim, (time.time() - 4000,) * 2)
    assert remark.is_first(tmp_path, "remark{a}")
    assert not remark.is_first(tmp_path, "remark{a}")


def test_a_remark_that_cannot_be_written_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_slurm(tmp_path, "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "file").write_text("")
    for endpoint in ("", "host:1", "/proc/nowhere", str(tmp_path / "file" / "x"), str(tmp_path)):
        remark.write_remark("a", {"SLURM_JOB_ID": "12", "PET_RDZV_ENDPOINT": endpoint})
    remark.write_remark("a", {})
    time.sleep(0.3)


@pytest.mark.torch
@pytest.mark.parametrize("first", ["torch.distributed.elastic.rendezvous.registry", "math"])
def test_names_that_scripts_import_are_never_modules(job_path: Path, first: str) -> None:
    """torch may load the handler, and with it our modules, at any time."""
    code = (
        f"import {first}, types, slurm_hooks.elastic as ours;"
        "import pkgutil; modules = {m.name for m in pkgutil.iter_modules(ours.__path__)};"
        "assert not modules & set(ours.__all__), modules;"
        "exports = {name: getattr(ours, name) for name in ours.__all__};"
        "assert all(callable(thing) for thing in exports.values()), exports"
    )
    env = {**os.environ, "PYTHONPATH": str(job_path)}
    subprocess.run([sys.executable, "-c", code], cwd=job_path, env=env, check=True, timeout=150)
