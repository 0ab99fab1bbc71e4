"""Mistakes of a script are reported when it makes them, not when a node is lost."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from slurm_hooks.elastic.mailbox import Mailbox  # noqa: E402
from slurm_hooks.elastic.script.checkpoint import Checkpoint  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("step", [1.5, "1", None, -1, 1 << 63, torch.tensor(0.5)])
def test_a_value_that_is_no_number_of_steps_is_refused(tmp_path: Path, step: Any) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint.pt")
    with pytest.raises(TypeError, match="an integer from 0 on"):
        checkpoint.reached(step)
    with pytest.raises(TypeError, match="an integer from 0 on"):
        checkpoint.save(step, {})


def test_a_process_that_has_not_joined_the_others_cannot_save_or_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    checkpoint = Checkpoint(tmp_path / "checkpoint.pt")
    checkpoint.watch(model=torch.nn.Linear(2, 2))
    for call in (
        checkpoint.load,
        checkpoint.resume,
        lambda: checkpoint.save(1),
        lambda: checkpoint.reached(1),
    ):
        with pytest.raises(RuntimeError, match=r"call dist.init_process_group\(\) first"):
            call()
    init = f"file://{tmp_path}/store"
    dist.init_process_group("gloo", init_method=init, rank=0, world_size=1)
    try:
        assert checkpoint.resume() == 0
        checkpoint.reached(1)
        checkpoint.save(1)
        checkpoint.wait()
    finally:
        dist.destroy_process_group()
    assert (tmp_path / "checkpoint.pt").exists()


def test_a_tensor_may_count_steps(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint.pt")
    checkpoint.save(torch.tensor(3), {})
    assert checkpoint.load() == (3, {})


@pytest.fixture
def mailbox(monkeypatch: pytest.MonkeyPatch) -> Mailbox:
    mailbox = Mailbox()
    for name, value in mailbox.environment().items():
        monkeypatch.setenv(name, value)
    return mailbox


def test_steps_that_restart_are_a_line(
    mailbox: Mailbox, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint.pt")
    for step in (1, 2, 2, 3):
        checkpoint.reached(step)
    assert not "".join(capfd.readouterr())
    for step in (1, 2, 1):
        checkpoint.reached(step)
    said = "".join(capfd.readouterr())
    assert said.count("step 1 comes after step 3: count steps over the whole training") == 1
    checkpoint.save(9, {})
    checkpoint.wait()
    again = Checkpoint(tmp_path / "checkpoint.pt")
    assert again.load()[0] == 9
    again.save(1, {}, to_file=False)
    assert "step 1 comes after step 9" in "".join(capfd.readouterr())


def test_a_file_alone_may_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MALLEABLE_SLOTS", raising=False)
    checkpoint = Checkpoint(tmp_path / "checkpoint.pt")
    for step in (3, 1):
        checkpoint.save(step, {})
    checkpoint.wait()
    assert not "".join(capfd.readouterr())


def test_several_watched_states_at_once_have_no_promise(
    mailbox: Mailbox, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    nets = [torch.nn.Linear(2, 2) for _ in range(3)]
    names = "generator", "critic", "later"
    parts = [Checkpoint(tmp_path / f"{name}.pt") for name in names]
    parts[0].watch(net=nets[0])
    parts[0].reached(1)
    assert mailbox.is_watched()
    parts[1].watch(net=nets[1])
    for part in parts[:2]:
        part.reached(2)
    assert not mailbox.is_watched()
    assert mailbox.file() == ""
    said = "".join(capfd.readouterr())
    assert said.count("critic.pt is watched while ") == 1
    assert "generator.pt still is" in said
    for part in parts[:2]:
        part.end()
    again = Checkpoint(tmp_path / "generator.pt")
    again.watch(net=nets[2])
    again.reached(1)
    assert mailbox.is_watched()
    again.end()
    assert not mailbox.is_watched()


def test_no_promise_where_signals_cannot_be_received(
    mailbox: Mailbox, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint.pt")

    def train() -> None:
        checkpoint.watch(model=torch.nn.Linear(2, 2))
        checkpoint.reached(1)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert not mailbox.is_watched()
    assert "not called in the main thread" in "".join(capfd.readouterr())
