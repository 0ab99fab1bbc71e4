"""The file of a checkpoint: written while the training goes on, complete or not at all."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from slurm_hooks.elastic import Checkpoint, Coming  # noqa: E402
from slurm_hooks.elastic.mailbox import Mailbox, MailboxReader, PlannedChange  # noqa: E402
from slurm_hooks.elastic.script import checkpoint as module  # noqa: E402
from slurm_hooks.elastic.script import step_boundary  # noqa: E402
from slurm_hooks.elastic.script.file_writer import FileWriter, await_files  # noqa: E402
from slurm_hooks.elastic.script.packed import LARGE  # noqa: E402
from slurm_hooks.elastic.script.stored_step import step_on_disk  # noqa: E402

pytestmark = [pytest.mark.torch]


@pytest.fixture(params=["with an agent", "without one"])
def is_kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An agent's memory, or no memory."""
    torch.set_num_threads(1)
    monkeypatch.setenv("LOCAL_RANK", "0")
    mailbox = Mailbox()
    if request.param == "with an agent":
        for name, value in mailbox.environment().items():
            monkeypatch.setenv(name, value)
    else:
        monkeypatch.delenv("MALLEABLE_SLOTS", raising=False)
    yield request.param == "with an agent"
    del mailbox


class SlowDisk:
    """Files are written once `open` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        write = FileWriter._write

        def slowly(writer: FileWriter, data: dict[str, Any]) -> None:
            self.open.wait(30)
            write(writer, data)

        monkeypatch.setattr(FileWriter, "_write", slowly)


def full(value: float) -> Any:
    return torch.full((LARGE // 4,), float(value))


def in_file(path: Path) -> Any:
    return torch.load(path, weights_only=True)


def test_the_file_holds_the_state_of_the_save_whatever_happens_during_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    disk = SlowDisk(monkeypatch)
    path = tmp_path / "c.pt"
    checkpoint = Checkpoint(path)
    live = full(1)
    checkpoint.save(1, {"x": live, "tied": live, "n": [1, (2, None)]})
    for step in (2, 3, 4):
        live.fill_(step)
        checkpoint.save(step, {"x": live}, to_file=False)
    assert not path.exists()
    assert checkpoint._memory.newest() == (4 if is_kept else -1)
    disk.open.set()
    checkpoint.wait()
    record = in_file(path)
    assert record["step"] == 1
    assert record["content"]["n"] == [1, (2, None)]
    assert torch.equal(record["content"]["x"], full(1))
    assert path.stat().st_size < 2 * LARGE  # tied weights are in the file once, and only they
    if is_kept:
        step, content = Checkpoint(path).load()
        assert (step, float(content["x"][9])) == (4, 4.0)


def test_a_single_file_is_written_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    disk = SlowDisk(monkeypatch)
    checkpoint = Checkpoint(tmp_path / "c.pt")
    checkpoint.save(1, {"x": full(1)})
    second = threading.Thread(target=checkpoint.save, args=(2, {"x": full(2)}))
    second.start()
    second.join(0.3)
    assert second.is_alive()
    disk.open.set()
    second.join(30)
    assert Checkpoint(tmp_path / "c.pt").load()[0] == 2  # waits for the write under way
    assert in_file(tmp_path / "c.pt")["step"] == 2


def test_a_failed_write_is_raised_by_the_next_call(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], is_kept: bool
) -> None:
    path = tmp_path / "c.pt"
    checkpoint = Checkpoint(path)
    for step in (1, 2, 3):
        checkpoint.save(step, {"x": full(step)})
    checkpoint.wait()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGE, limits[1]))  # a disk that is full
    try:
        checkpoint.save(4, {"x": full(4)})
        await_files()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with pytest.raises(OSError, match=r"cannot write the checkpoint .*c\.pt"):
        checkpoint.save(5, {"x": full(5)}, to_file=False)
    assert "the last file is still there" in capfd.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["c.pt"]
    assert in_file(path)["step"] == 3
    checkpoint.save(6, {"x": full(6)})
    checkpoint.wait()
    assert in_file(path)["step"] == 6


def test_a_directory_that_is_not_there_is_an_error_at_once(tmp_path: Path, is_kept: bool) -> None:
    checkpoint = Checkpoint(tmp_path / "gone" / "c.pt")
    with pytest.raises(OSError, match="gone"):
        checkpoint.save(1, {"x": 1})
    with pytest.raises(OSError, match="gone"):
        checkpoint.save(2, {"x": 1})


def half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("damage", [half, lambda path: path.write_text("")])
def test_a_damaged_file_is_put_aside_and_not_loaded(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], is_kept: bool, damage: Any
) -> None:
    path = tmp_path / "c.pt"
    checkpoint = Checkpoint(path)
    checkpoint.save(8, {"x": full(8)})
    checkpoint.wait()
    damage(path)
    step, content = Checkpoint(path).load()
    assert (step, "x" in content) == ((8, True) if is_kept else (0, False))
    assert f"{path} is damaged" in capfd.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["c.pt.damaged"]
    checkpoint.save(9, {})
    assert Checkpoint(path).load()[0] == 9


def weights(path: Path) -> None:
    torch.save({"weights": full(1)}, path)


def archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("weights.npy", "1")


@pytest.mark.parametrize("write", [weights, archive, lambda path: path.write_text("loss 0.5")])
def test_a_file_that_is_no_checkpoint_is_an_error_and_left_alone(
    tmp_path: Path, is_kept: bool, write: Callable[[Path], None]
) -> None:
    path = tmp_path / "model.pt"
    write(path)
    with pytest.raises(ValueError, match=r"was not written by Checkpoint\.save"):
        Checkpoint(path).load()
    assert list(tmp_path.iterdir()) == [path]


def test_looking_at_the_step_runs_no_code_of_the_file(tmp_path: Path) -> None:
    class Code:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "made"),)

    path = tmp_path / "c.pt"
    torch.save({"step": 3, "content": {"x": Code(), "n": torch.ones(2).to_sparse()}}, path)
    assert step_on_disk(path) == 3
    assert list(tmp_path.iterdir()) == [path]


def test_without_room_for_a_copy_the_file_is_still_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    monkeypatch.setattr("slurm_hooks.elastic.script.node_memory.room", lambda: 0)
    assert module.packed.__globals__["room"]() == 0
    checkpoint = Checkpoint(tmp_path / "c.pt")
    checkpoint.save(1, {"x": full(1)})
    assert torch.equal(in_file(tmp_path / "c.pt")["content"]["x"], full(1))
    assert checkpoint._memory.newest() == -1


def test_ready_waits_for_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    monkeypatch.setattr(step_boundary, "STALL_S", 0.0)
    disk = SlowDisk(monkeypatch)
    checkpoint = Checkpoint(tmp_path / "c.pt")
    checkpoint.save(1, {"x": 1})
    threading.Timer(0.3, disk.open.set).start()
    Coming("leave", 20.0).ready()
    assert in_file(tmp_path / "c.pt")["step"] == 1


@pytest.mark.parametrize("goes", ["never comes", "is called off", "stays"])
def test_ready_returns_once_no_change_is_coming(goes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mailbox = Mailbox()
    reader = MailboxReader(mailbox.environment())
    monkeypatch.setattr(step_boundary, "_reader", lambda: reader)
    monkeypatch.setattr(step_boundary, "NEWS_S", 0.4)
    monkeypatch.setattr(step_boundary, "STALL_S", 2.0)
    if goes != "never comes":
        mailbox.post(PlannedChange("grow", 9.0))
    withdrawal = threading.Timer(0.2, mailbox.withdraw)
    if goes == "is called off":
        withdrawal.start()
    begun_at = time.monotonic()
    Coming("grow", 9.0).ready()
    took_s = time.monotonic() - begun_at
    assert (took_s >= 2.0) is (goes == "stays")
    assert took_s >= 0.2
    assert mailbox.is_awaited()  # it trains on, and is to be asked again


def test_a_process_that_ends_waits_for_the_file(tmp_path: Path) -> None:
    code = (
        "import sys, torch; from slurm_hooks.elastic import Checkpoint;"
        "Checkpoint(sys.argv[1]).save(1, {'x': torch.ones(8, 1 << 20)}); sys.exit(5)"
    )
    path = tmp_path / "c.pt"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "MALLEABLE_SLOTS": ""}
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], check=False, env=env, timeout=150
    )
    assert done.returncode == 5
    assert in_file(path)["content"]["x"].shape == (8, 1 << 20)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_is_kept_and_its_file_is_replaced(
    tmp_path: Path, is_kept: bool, is_there: bool
) -> None:
    """The link may lie in a home with little room, the file on a large file system."""
    home, large = tmp_path / "home", tmp_path / "large"
    home.mkdir()
    large.mkdir()
    (home / "c.pt").symlink_to(large / "model.pt")
    if is_there:
        torch.save({"step": 1, "content": {}}, large / "model.pt")
    checkpoint = Checkpoint(home / "c.pt")
    checkpoint.save(2, {"x": 1})
    checkpoint.wait()
    assert in_file(large / "model.pt")["step"] == 2
    assert [(path.name, path.is_symlink()) for path in home.iterdir()] == [("c.pt", True)]
    assert len(list(large.iterdir())) == 1
    assert Checkpoint(home / "c.pt").load() == (2, {"x": 1})


def test_loaded_state_survives_the_removal_of_the_file(tmp_path: Path) -> None:
    """A page of a mapped file that the file system has lost ends the process."""
    path = tmp_path / "c.pt"
    torch.save({"step": 3, "content": {"x": full(3)}}, path)
    code = (
        "import os, sys; from slurm_hooks.elastic import Checkpoint;"
        "step, content = Checkpoint(sys.argv[1]).load(); os.truncate(sys.argv[1], 0);"
        "sys.exit(int(content['x'].sum() != 3 * len(content['x'])))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "MALLEABLE_SLOTS": ""}
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], check=False, env=env, timeout=150
    )
    assert done.returncode == 0


def test_a_file_that_another_node_replaces_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save({"step": 3, "content": {"x": full(3)}}, tmp_path / "c.pt")
    load, failures = torch.load, [OSError(errno.ESTALE, "Stale file handle")]

    def once_stale(*words: Any, **named: Any) -> Any:
        if failures:
            torch.save({"step": 4, "content": {"x": full(4)}}, tmp_path / "c.pt")
            raise failures.pop()
        return load(*words, **named)

    monkeypatch.setattr(torch, "load", once_stale)
    step, content = Checkpoint(tmp_path / "c.pt").load()
    assert (step, float(content["x"][0])) == (4, 4.0)


@pytest.mark.parametrize(
    ("nodes", "room", "seen"), [("2", 1 << 30, 1), ("1", 1 << 30, 0), ("2", 0, 0)]
)
def test_only_a_copy_that_survives_the_node_counts_as_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: str, room: int, seen: int
) -> None:
    """Otherwise a single-node job would count as a job that loses no work."""
    mailbox = Mailbox()
    for name, value in {**mailbox.environment(), "GROUP_WORLD_SIZE": nodes}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("slurm_hooks.elastic.script.node_memory.room", lambda: room)
    saves: list[float] = []
    monkeypatch.setattr(module.observation, "see_saved", saves.append)
    Checkpoint(tmp_path / "c.pt").save(1, {"x": full(1)}, to_file=False)
    assert len(saves) == seen
