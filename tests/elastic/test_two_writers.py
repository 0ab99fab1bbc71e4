"""Several processes write the same checkpoint.

The node of the first has lost the network but not the storage, or an agent leaves while others
train.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from slurm_hooks.elastic import Checkpoint  # noqa: E402
from slurm_hooks.elastic.script.draft import QUIET_S, Draft  # noqa: E402
from slurm_hooks.elastic.script.file_writer import FileWriter  # noqa: E402
from slurm_hooks.elastic.script.stored_step import step_on_disk  # noqa: E402

pytestmark = [pytest.mark.torch]

ROUNDS = 30
WRITE = f"""
import sys, torch
from slurm_hooks.elastic import Checkpoint

checkpoint = Checkpoint(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for step in range(int(sys.argv[2]), {2 * ROUNDS}, 2):
    checkpoint.save(step, {{"x": torch.full((1 << 20,), step)}})
    checkpoint.wait()
"""


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[list[Any]]:
    """Two writers, each of every second step, in fragments of the job that owns the file's
    directory.
    """
    env = {**os.environ, "MALLEABLE_DIR": str(tmp_path), "MALLEABLE_JOB_ID": "7"}
    env |= {"PYTHONPATH": os.pathsep.join(sys.path), "MALLEABLE_SLOTS": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", WRITE, str(tmp_path / "c.pt")]
    with ExitStack() as stack:
        started = []
        for fragment in ("0", "1"):
            process: Any = subprocess.Popen(
                [*command, fragment],
                env={**env, "MALLEABLE_FRAGMENT": fragment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            started.append(process)
        yield started


def read_while_written(path: Path, writers: list[Any]) -> Iterator[tuple[int, Any]]:
    while any(process.poll() is None for process in writers):
        if path.exists():
            record = torch.load(path, weights_only=True)
            yield record["step"], record["content"]["x"]


def test_the_file_is_always_whole_and_its_step_never_decreases(
    tmp_path: Path, writers: list[Any]
) -> None:
    path = tmp_path / "c.pt"
    for process in writers:
        assert process.stdout.readline() == "ready\n"
    for process in writers:
        process.stdin.write("\n")
        process.stdin.flush()
    last, seen = -1, 0
    for step, x in read_while_written(path, writers):
        assert step >= last
        assert torch.equal(x, torch.full_like(x, step))
        last, seen = step, seen + 1
    assert [process.returncode for process in writers] == [0, 0]
    assert seen > 2
    assert step_on_disk(path) == 2 * ROUNDS - 1
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["c.pt", "checkpoint.lock"]


def test_a_newer_file_is_kept_and_the_log_says_so_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.pt"
    early = Checkpoint(path)
    early.save(100, {})
    early.wait()
    late = Checkpoint(path)
    for step in (4, 5):
        late.save(step, {})
        late.wait()
    assert step_on_disk(path) == 100
    assert capfd.readouterr().err.count("is not written, because") == 1
    assert list(tmp_path.iterdir()) == [path]
    late.save(100, {"again": True})
    assert late.load() == (100, {"again": True})


@pytest.fixture
def in_fragment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLEABLE_FRAGMENT", "3")
    monkeypatch.setenv("MALLEABLE_JOB_ID", "7")
    monkeypatch.delenv("SLURM_PROCID", raising=False)


DRAFTS = {
    "c.pt.3.7.0.99.0.new": 0.0,  # of a process that trained here before
    "c.pt.4.7.0.99.0.new": QUIET_S + 60,
    "c.pt.0.6.0.99.0.new": QUIET_S + 60,  # of another job
}
OTHERS = {
    "c.pt.4.7.0.99.0.new": 0.0,  # its writer may live
    "c.pt.new": QUIET_S + 60,
    "c.pt.3.7.0.99.new": QUIET_S + 60,
    "b.pt.3.7.0.99.0.new": QUIET_S + 60,
    "c.pt.3.7.0.99.0.newer": QUIET_S + 60,
}


def leave(place: Path, drafts: dict[str, float]) -> None:
    for name, age_s in drafts.items():
        (place / name).write_text("half")
        os.utime(place / name, (time.time() - age_s,) * 2)


def test_drafts_of_writers_that_were_killed_are_removed(tmp_path: Path, in_fragment: None) -> None:
    leave(tmp_path, DRAFTS)
    FileWriter(tmp_path / "c.pt").write({"step": 1})
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.pt"]


def test_other_files_are_kept(tmp_path: Path, in_fragment: None) -> None:
    leave(tmp_path, OTHERS)
    os.symlink(tmp_path / "c.pt.new", tmp_path / "c.pt.3.7.0.98.0.new")
    os.mkdir(tmp_path / "c.pt.3.7.0.97.0.new")
    before = {*OTHERS, "c.pt.3.7.0.98.0.new", "c.pt.3.7.0.97.0.new"}
    FileWriter(tmp_path / "c.pt").write({"step": 1})
    assert {entry.name for entry in tmp_path.iterdir()} == {*before, "c.pt"}


def test_outside_of_a_job_only_quiet_drafts_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MALLEABLE_FRAGMENT", raising=False)
    leave(tmp_path, {"c.pt.0.0.0.99.0.new": 0.0, "c.pt.0.0.0.98.0.new": QUIET_S + 60})
    FileWriter(tmp_path / "c.pt").write({"step": 1})
    assert {entry.name for entry in tmp_path.iterdir()} == {"c.pt", "c.pt.0.0.0.99.0.new"}


@pytest.mark.parametrize("ahead_s", [-10 * QUIET_S, 10 * QUIET_S])
def test_the_age_of_a_draft_is_counted_by_the_clock_of_its_file_system(
    tmp_path: Path, in_fragment: None, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    """This host's clock is ahead of the file server's by so much."""
    leave(tmp_path, {"c.pt.4.7.0.99.0.new": 0.0, "c.pt.4.7.0.98.0.new": QUIET_S + 60})
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + ahead_s)
    FileWriter(tmp_path / "c.pt").write({"step": 1})
    assert {entry.name for entry in tmp_path.iterdir()} == {"c.pt", "c.pt.4.7.0.99.0.new"}


def test_a_process_keeps_its_own_other_drafts(tmp_path: Path, in_fragment: None) -> None:
    path = tmp_path / "c.pt"
    other = Draft(path, os.environ)
    torch.save({"step": 2}, other.path)
    FileWriter(path).write({"step": 1})
    assert other.put(2) == 2
    assert step_on_disk(path) == 2
