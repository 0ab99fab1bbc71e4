"""What scripts may use: mailbox, progress; without torch."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_hooks.elastic.agent.forewarning import Forewarning
from slurm_hooks.elastic.batch import remark
from slurm_hooks.elastic.batch.job_comment import merged
from slurm_hooks.elastic.mailbox import Mailbox, MailboxReader, PlannedChange, open_files
from slurm_hooks.elastic.observed import Observed
from slurm_hooks.elastic.rendezvous.state import Stop
from slurm_hooks.elastic.script.progress import Reporter, entry


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


def test_how_far_the_training_is_reaches_the_agent() -> None:
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


def test_only_workers_that_listen_are_waited_for_and_not_for_ever() -> None:
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
def test_anything_else_is_not_a_mailbox(where: str) -> None:
    reader = MailboxReader({"MALLEABLE_BOARD": where.format(own=os.getpid())})
    reader.listen()
    assert reader.read() is None


def test_junk_is_not_a_planned_change() -> None:
    mailbox = Mailbox()
    handle = open_files(mailbox.environment()["MALLEABLE_BOARD"])[0]
    for junk in (b"{", b"[1]", b'{"why": 1}', b'{"why": "x", "left_s": {}}', b"\xff\xfe"):
        os.pwrite(handle, junk.ljust(256, b"\n"), 0)
        assert MailboxReader(mailbox.environment()).read() is None


def test_comments_of_users_are_kept() -> None:
    line = entry(640, 0.5, 4, 1700000000)
    assert line == "progress{samples=640,loss=0.5,world=4,t=1700000000}"
    seen = Observed(9, 1, step_s=0.01234, stepped_at=200.0, saved_at=100.0)
    assert entry(1, None, 4, 2, seen) == "progress{samples=1,world=4,step=0.01234,age=100,t=2}"
    assert entry(1, None, 4, 2, Observed()) == entry(1, None, 4, 2)
    assert merged("(null)", line) == line
    assert merged("", line) == line
    assert merged("mine; really", line) == f"mine; really;{line}"
    assert merged(f"mine;{entry(1, None, 1, 2)}", line) == f"mine;{line}"
    assert merged(f"mine;{line};remark{{a}}", line) == f"mine;remark{{a}};{line}"
    assert merged(f"a;{line}", "remark{b}") == f"a;{line};remark{{b}}"
    assert "loss" not in entry(1, float("nan"), 1, 2)


@pytest.fixture(autouse=True)
def _nothing_left_to_write() -> Iterator[None]:
    """What a test writes in the background is written before the next one sets up its Slurm."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(10)


def fake_slurm(directory: Path, scontrol: str) -> None:
    (directory / "squeue").write_text("#!/bin/sh\necho 'my own'\n")
    (directory / "scontrol").write_text(f"#!/bin/sh\n{scontrol}\n")
    for name in ("squeue", "scontrol"):
        (directory / name).chmod(0o755)


def test_the_leader_reports_once_in_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_slurm(tmp_path, f'echo "$@" >> {tmp_path}/written')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    reporter = Reporter({"SLURM_JOB_ID": "12", "RANK": "0", "WORLD_SIZE": "2"})
    for samples in range(100):
        reporter.report(samples, 1.5)
    lines = written_in(tmp_path)
    assert len(lines) == 1
    assert lines[0].startswith("update JobId=12 Comment=my own;progress{samples=0,loss=1.5,world=2")
    assert Reporter({"SLURM_JOB_ID": "12; x"})._job == ""


def test_trouble_with_slurm_does_not_reach_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_slurm(tmp_path, "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    for env in ({"SLURM_JOB_ID": "12"}, {"SLURM_JOB_ID": "12", "RANK": "1"}, {}):
        reporter = Reporter(env, every_s=0.0)
        reporter.report(1)
        if reporter._thread:
            reporter._thread.join(10)
        reporter.report(2)


def test_a_remark_is_bounded_and_plain() -> None:
    assert remark.entry("your --rdzv-backend=c10d wins") == "remark{your --rdzv-backend=c10d wins}"
    assert remark.entry('a{b}\n"\x1b[1m\u00e4') == "remark{a?b?????1m?}"
    assert len(remark.entry("x" * 1000)) == len("remark{}") + remark.LENGTH


def written_in(directory: Path, limit_s: float = 10) -> list[str]:
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


def test_one_of_all_agents_writes_a_remark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_slurm(tmp_path, f'echo "$@" >> {tmp_path}/written')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv(remark.WRITTEN_AT, "")
    directory = tmp_path / "new" / "shared"
    env = {"SLURM_JOB_ID": "12", "MALLEABLE_DIR": str(directory), "PET_RDZV_ENDPOINT": "host:1"}
    for job in ("12", "13", "14"):
        remark.write_remark("your flag wins", {**env, "SLURM_JOB_ID": job})
    assert len(written_in(tmp_path)) == 1
    time.sleep(0.3)
    line = written_in(tmp_path)
    assert len(line) == 1
    assert line[0].endswith(" Comment=my own;remark{your flag wins}")
    assert abs(int(os.environ[remark.WRITTEN_AT]) - time.time()) < 60


@pytest.mark.parametrize("where", ["", "host:1", "/dev/null/shared"])
def test_a_remark_is_written_where_the_directory_is_the_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    fake_slurm(tmp_path, f'echo "$@" >> {tmp_path}/written')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv(remark.WRITTEN_AT, "")
    remark.write_remark("no space left", {"SLURM_JOB_ID": "12", "MALLEABLE_DIR": where})
    (line,) = written_in(tmp_path)
    assert line.endswith(" Comment=my own;remark{no space left}")


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
    monkeypatch.setenv(remark.WRITTEN_AT, "")
    (tmp_path / "file").write_text("")
    for endpoint in ("", "host:1", "/proc/nowhere", str(tmp_path / "file" / "x"), str(tmp_path)):
        remark.write_remark("a", {"SLURM_JOB_ID": "12", "PET_RDZV_ENDPOINT": endpoint})
    remark.write_remark("a", {})
    time.sleep(0.3)


def test_progress_waits_its_turn_after_a_remark() -> None:
    def due_s(written_at: object) -> float:
        env = {"SLURM_JOB_ID": "12", remark.WRITTEN_AT: str(written_at)}
        return Reporter(env)._due - time.monotonic()

    now = int(time.time())
    assert 40 < due_s(now - 10) < 55
    assert max(due_s(now - 100), due_s(""), due_s("soon")) <= 0
    assert due_s(now + 10**6) <= 60


@pytest.mark.torch
@pytest.mark.parametrize("first", ["torch.distributed.elastic.rendezvous.registry", "math"])
def test_what_scripts_import_is_never_a_module(job_path: Path, first: str) -> None:
    """torch loads the handler, and with it modules of ours, whenever it likes."""
    code = (
        f"import {first}, types, slurm_hooks.elastic as ours;"
        "import pkgutil; modules = {m.name for m in pkgutil.iter_modules(ours.__path__)};"
        "assert not modules & set(ours.__all__), modules;"
        "found = {name: getattr(ours, name) for name in ours.__all__};"
        "assert all(callable(thing) for thing in found.values()), found"
    )
    env = {**os.environ, "PYTHONPATH": str(job_path)}
    subprocess.run([sys.executable, "-c", code], cwd=job_path, env=env, check=True, timeout=60)
