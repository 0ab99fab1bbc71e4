"""Shared directories in trouble, many agents, odd clocks, and hostile content."""

from __future__ import annotations

import os
import pickle
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_hooks.elastic.rendezvous.directory import DirectoryError, SharedDirectory
from slurm_hooks.elastic.rendezvous.patient_directory import PatientDirectory
from slurm_hooks.elastic.rendezvous.state import Admission, Member, Outcome, State, admit

from .members import opened


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("executed",))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A separate file system of 64 KiB. It needs root."""
    disk = tmp_path / "disk"
    disk.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if os.getuid() or subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("mounting a tmpfs needs root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def slow(monkeypatch: pytest.MonkeyPatch, delay_s: float) -> None:
    """Make every operation on a file take so long."""

    def late(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            time.sleep(delay_s)
            return function(*args, **kwargs)

        return call

    for name in ("open", "link", "unlink", "listdir", "fsync", "pwrite"):
        monkeypatch.setattr(os, name, late(getattr(os, name)))


@pytest.mark.slow
def test_a_very_slow_directory_loses_no_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every operation takes half a second, with two agents at once."""
    agents = [opened(tmp_path) for _ in range(2)]
    slow(monkeypatch, 0.5)
    written: list[int] = []
    refused: list[DirectoryError] = []

    def work(agent: SharedDirectory) -> None:
        try:
            written.append(agent.update(lambda s: replace(s, rounds=s.rounds + 1)).revision)
        except DirectoryError as error:
            refused.append(error)

    threads = [threading.Thread(target=work, args=(agent,)) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert agents[0].read().rounds == len(written) >= 1
    assert len(set(written)) == len(written)
    assert all("slow" in str(error) for error in refused)


def test_a_full_disk_is_reported_and_leaves_the_state_whole(small_disk: Path) -> None:
    shared = opened(small_disk)
    before = shared.update(lambda s: replace(s, rounds=1))
    with open(small_disk / "ballast", "wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    with pytest.raises(DirectoryError, match="free some space or quota"):
        shared.update(lambda s: replace(s, rounds=2))
    with pytest.raises(DirectoryError, match="free some space or quota"):
        SharedDirectory(small_disk, "7").open()
    assert SharedDirectory(small_disk, "7").read() == before
    (small_disk / "ballast").unlink()
    assert shared.update(lambda s: replace(s, rounds=2)).rounds == 2


def test_a_read_only_disk_is_reported(small_disk: Path) -> None:
    shared = opened(small_disk)
    before = shared.update(lambda s: replace(s, rounds=1))
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(DirectoryError, match="that the compute nodes can write"):
        shared.update(lambda s: replace(s, rounds=2))
    with pytest.raises(DirectoryError, match="that the compute nodes can write"):
        SharedDirectory(small_disk, "7").open()
    assert shared.read() == before


@pytest.mark.parametrize("skew_s", [-60, 60])
def test_a_clock_that_is_a_minute_off_changes_no_admission(skew_s: int) -> None:
    now = 1_700_000_000
    newcomer = Member("f" * 16, 3, 0, "1.0", "n3")
    over = State(run="7", outcome=Outcome.FINISHED, outcome_at=now, done=((1, 0, "1.0"),))
    assert admit(over, newcomer, 1, now + skew_s) is Admission.NOTHING_LEFT
    assert admit(State(run="7"), newcomer, 1, now + skew_s) is Admission.JOIN


def test_a_file_server_that_was_away_uses_up_no_patience(tmp_path: Path) -> None:
    """A call hangs until the server is back. Then all agents write at once, and most of them are
    too slow for their own limit. That is no lasting trouble.
    """
    patient = PatientDirectory(opened(tmp_path), patience_s=0.2)
    calls: list[float] = []

    def deed() -> None:
        calls.append(time.monotonic())
        if len(calls) == 1:
            time.sleep(0.5)
            raise DirectoryError("cannot update within 30 s")

    patient.do_patiently(deed)
    assert len(calls) == 2


@pytest.mark.parametrize("name", ["state.1", "beats/00000000000000aa", "stages/1.0"])
def test_hostile_content_is_not_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    shared = opened(tmp_path / "job")
    for content in (pickle.dumps(Bomb()), b"__import__('os').mkdir('executed')", b"\0" * 99):
        (shared.path / name).write_bytes(content)
        if name == "state.1":
            with pytest.raises(DirectoryError):
                shared.read()
        assert shared.read_beat("00000000000000aa") is None
        assert shared.read_stage("1.0", "9.0") == 1
    assert not (tmp_path / "executed").exists()


@pytest.mark.torch
def test_a_hostile_checkpoint_is_not_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    from slurm_hooks.elastic import Checkpoint  # noqa: PLC0415

    monkeypatch.chdir(tmp_path)
    torch.save({"step": 1, "content": Bomb()}, tmp_path / "checkpoint.pt")
    with pytest.raises(pickle.UnpicklingError):
        Checkpoint(tmp_path / "checkpoint.pt").load()
    assert not (tmp_path / "executed").exists()
    checkpoint = Checkpoint(tmp_path / "good.pt")
    assert checkpoint.load() == (0, {})
    checkpoint.save(7, {"a": torch.ones(2)})
    assert Checkpoint(tmp_path / "good.pt").load()[0] == 7
