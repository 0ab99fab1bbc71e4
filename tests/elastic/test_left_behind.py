"""The file that an agent leaves behind when it ends."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from slurm_hooks.elastic.farewell import FAREWELL_S, farewell_s  # noqa: E402
from slurm_hooks.elastic.mailbox import Mailbox, MailboxReader  # noqa: E402
from slurm_hooks.elastic.script.checkpoint import Checkpoint  # noqa: E402
from slurm_hooks.elastic.script.left_behind import leave_behind  # noqa: E402
from slurm_hooks.elastic.script.node_memory import NodeMemory  # noqa: E402
from slurm_hooks.elastic.script.stored_step import step_on_disk  # noqa: E402

pytestmark = [pytest.mark.torch]


@pytest.fixture
def mailbox() -> Mailbox:
    """A mailbox of an agent whose workers have kept step 5."""
    mailbox = Mailbox()
    NodeMemory(mailbox.environment()).write(5, {"n": torch.ones(3)})
    return mailbox


def saved(file: Path, step: int) -> None:
    checkpoint = Checkpoint(file)
    checkpoint.save(step, {})
    checkpoint.wait()


def soon() -> float:
    return time.monotonic() + 10


def test_the_newest_copy_becomes_the_file(
    mailbox: Mailbox, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.pt"
    NodeMemory(mailbox.environment()).write(5, {"n": torch.ones(3), "large": torch.ones(1 << 19)})
    assert leave_behind(mailbox.environment(), str(file), soon())
    assert f"step 5 is saved in {file}, 2 MiB" in capfd.readouterr().err
    step, content = Checkpoint(file).load()
    assert (step, content["n"].tolist()) == (5, [1.0] * 3)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(("on_disk", "wanted"), [(4, 5), (5, 5), (6, 6)])
def test_an_older_step_never_replaces_a_newer(
    mailbox: Mailbox, tmp_path: Path, on_disk: int, wanted: int
) -> None:
    file = tmp_path / "c.pt"
    saved(file, on_disk)
    leave_behind(mailbox.environment(), str(file), soon())
    assert step_on_disk(file) == wanted


def test_a_newer_file_that_others_write_at_the_same_time_is_kept(
    mailbox: Mailbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "c.pt"

    def others_are_faster(handle: int) -> None:
        monkeypatch.undo()
        others = Checkpoint(file)
        others.save(7, {})
        others.wait()

    monkeypatch.setattr("slurm_hooks.elastic.script.left_behind.os.fsync", others_are_faster)
    leave_behind(mailbox.environment(), str(file), soon())
    assert step_on_disk(file) == 7
    assert list(tmp_path.iterdir()) == [file]


SLOW = """
import os, sys, time
from slurm_hooks.elastic.script import draft
from slurm_hooks.elastic.script.left_behind import leave_behind

look = draft.step_on_disk

def look_slowly(path):  # the last time before it is put into its place
    step = look(path)
    print("looked", flush=True)
    time.sleep(1.0)
    return step

draft.step_on_disk = look_slowly
assert leave_behind(os.environ, sys.argv[1], time.monotonic() + 60)
"""


def test_a_newer_file_between_the_last_check_and_the_rename_is_kept(
    mailbox: Mailbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "c.pt"
    monkeypatch.setenv("MALLEABLE_DIR", str(tmp_path))
    env = {**os.environ, **mailbox.environment()}
    command = [sys.executable, "-c", SLOW, str(file)]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == "looked\n"
        saved(file, 7)
        assert agent.wait(20) == 0
    assert step_on_disk(file) == 7


@pytest.mark.parametrize("place", ["missing", "", "/proc"])
def test_without_a_lock_files_are_written_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("MALLEABLE_DIR", str(tmp_path / place) if place else "")
    saved(tmp_path / "c.pt", 3)
    assert step_on_disk(tmp_path / "c.pt") == 3


def test_a_damaged_file_is_replaced(mailbox: Mailbox, tmp_path: Path) -> None:
    file = tmp_path / "c.pt"
    file.write_bytes(b"junk")
    leave_behind(mailbox.environment(), str(file), soon())
    assert step_on_disk(file) == 5


def test_a_link_is_kept_and_its_file_is_replaced(mailbox: Mailbox, tmp_path: Path) -> None:
    link, large = tmp_path / "c.pt", tmp_path / "large"
    large.mkdir()
    link.symlink_to(large / "model.pt")
    leave_behind(mailbox.environment(), str(link), soon())
    assert link.is_symlink()
    assert step_on_disk(large / "model.pt") == 5
    assert len(list(large.iterdir())) == 1


def test_the_draft_of_a_killed_agent_is_removed(mailbox: Mailbox, tmp_path: Path) -> None:
    env = {**mailbox.environment(), "MALLEABLE_FRAGMENT": "3", "MALLEABLE_JOB_ID": "7"}
    (tmp_path / "c.pt.3.7.0.99.0.new").write_text("half")
    leave_behind(env, str(tmp_path / "c.pt"), soon())
    assert list(tmp_path.iterdir()) == [tmp_path / "c.pt"]


def test_no_time_left_is_a_line_and_no_file(
    mailbox: Mailbox, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    over = time.monotonic() - 1
    for agent in (mailbox, Mailbox()):  # the other agent's worker has not even kept it
        assert leave_behind(agent.environment(), str(tmp_path / "c.pt"), over) is False
    assert "no time is left to write step 5" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_a_line(
    mailbox: Mailbox, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    leave_behind(mailbox.environment(), str(tmp_path / "missing" / "c.pt"), soon())
    said = capfd.readouterr().err
    assert "step 5 cannot be written" in said
    assert "No such file" in said


def test_a_fifo_is_not_waited_at(
    mailbox: Mailbox, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "c.pt")
    leave_behind(mailbox.environment(), str(tmp_path / "c.pt"), soon())
    assert "is not a regular file" in "".join(capfd.readouterr())
    assert [path.name for path in tmp_path.iterdir()] == ["c.pt"]


def test_a_fifo_in_the_place_of_the_draft_is_left_alone(mailbox: Mailbox, tmp_path: Path) -> None:
    odd = tmp_path / f"c.pt.0.0.0.{os.getpid()}.0.new"
    os.mkfifo(odd)
    leave_behind(mailbox.environment(), str(tmp_path / "c.pt"), soon())
    assert sorted(tmp_path.iterdir()) == [tmp_path / "c.pt", odd]


def test_sigterm_during_the_write_leaves_no_draft(
    mailbox: Mailbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SignalException(Exception):
        """The exception of torchrun's own handler."""

    def terminated(handle: int) -> None:
        raise SignalException

    monkeypatch.setattr("slurm_hooks.elastic.script.left_behind.os.fsync", terminated)
    with pytest.raises(SignalException):
        leave_behind(mailbox.environment(), str(tmp_path / "c.pt"), soon())
    assert not list(tmp_path.iterdir())


def test_a_full_disk_does_not_change_the_file(
    mailbox: Mailbox, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.pt"
    saved(file, 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        leave_behind(mailbox.environment(), str(file), soon())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "step 5 cannot be written" in capfd.readouterr().err
    assert step_on_disk(file) == 1
    assert list(tmp_path.iterdir()) == [file]


def test_without_a_kept_state_or_a_file_name_no_file_is_written(
    tmp_path: Path, mailbox: Mailbox
) -> None:
    assert leave_behind(Mailbox().environment(), str(tmp_path / "c.pt"), soon()) is None
    leave_behind(mailbox.environment(), "", soon())
    leave_behind({}, str(tmp_path / "c.pt"), soon())
    assert not list(tmp_path.iterdir())


def test_a_copy_that_was_cut_off_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    agent = Mailbox()
    monkeypatch.setenv("MALLEABLE_FAREWELL_S", "9")
    env = agent.environment()
    NodeMemory(env).write(3, {"n": 3})
    child = os.fork()
    if child == 0:
        with NodeMemory(env).draft() as draft:
            draft.fill(4, {"n": 4})
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    for _ in range(2):
        leave_behind(env, str(tmp_path / "c.pt"), time.monotonic() + 9)
    assert step_on_disk(tmp_path / "c.pt") == 3
    assert capfd.readouterr().err.count("copied step 4 to the memory of this node was ended") == 1


def test_the_time_of_writing_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Mailbox()
    for name, value in agent.environment().items():
        monkeypatch.setenv(name, value)
    assert agent.writing_s() == 0
    checkpoint = Checkpoint(tmp_path / "c.pt")
    checkpoint.watch(net=torch.nn.Linear(2, 2))
    checkpoint.save(1)
    checkpoint.wait()
    file_s = agent.writing_s()
    assert file_s > 0
    checkpoint.reached(2)
    jit = checkpoint._just_in_time
    assert jit is not None
    jit.keep()
    both_s = agent.writing_s()
    jit.keep()  # there is no newer state to write
    checkpoint.end()
    agent.clear()
    assert agent.writing_s() == both_s > file_s


def test_each_of_two_checkpoints_loads_its_own_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    agent = Mailbox()
    for name, value in agent.environment().items():
        monkeypatch.setenv(name, value)
    last, best = Checkpoint(tmp_path / "last.pt"), Checkpoint(tmp_path / "best.pt")
    last.save(4, {"n": 4}, to_file=False)
    best.save(5, {"n": 5})
    agent.clear()  # a new round, in which the other agent is asked first
    assert Checkpoint(tmp_path / "best.pt").load() == (5, {"n": 5})
    assert Checkpoint(tmp_path / "last.pt").load() == (4, {"n": 4})
    assert "best.pt is kept in its file only" in capfd.readouterr().err


def test_the_file_is_named_through_the_mailbox() -> None:
    mailbox = Mailbox()
    assert mailbox.file() == ""
    reader = MailboxReader(mailbox.environment())
    reader.write_file("/shared/a longer name.pt")
    reader.write_file("/shared/c.pt")
    mailbox.clear()  # a new round
    assert mailbox.file() == "/shared/c.pt"
    reader.write_file("x" * 5000)
    assert mailbox.file() == "/shared/c.pt"


@pytest.mark.parametrize(
    ("text", "wanted_s"),
    [
        ("0", 0.0),
        ("3.5", 3.5),
        *((junk, FAREWELL_S) for junk in ("", "-1", "nan", "1e9", "soon")),
    ],
)
def test_the_farewell_is_seconds_or_the_default(text: str, wanted_s: float) -> None:
    assert farewell_s({"MALLEABLE_FAREWELL_S": text}) == wanted_s
    assert farewell_s({}) == FAREWELL_S
