"""What a script gets wrong is told when it does so, not when a node is lost."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from slurm_hooks.elastic.mailbox import Mailbox  # noqa: E402
from slurm_hooks.elastic.script.checkpoint import Checkpoint  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("step", [1.5, "1", None, -1, 1 << 63, torch.tensor(0.5)])
def test_what_is_no_number_of_steps_is_refused(tmp_path: Path, step: Any) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint.pt")
    with pytest.raises(TypeError, match="an integer from 0 on"):
        checkpoint.reached(step)
    with pytest.raises(TypeError, match="an integer from 0 on"):
        checkpoint.save(step, {})


def test_a_tensor_may_count_steps(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint.pt")
    checkpoint.save(torch.tensor(3), {})
    assert checkpoint.load() == (3, {})


def test_nothing_is_promised_where_signals_cannot_be_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    mailbox = Mailbox()
    for name, value in mailbox.environment().items():
        monkeypatch.setenv(name, value)
    checkpoint = Checkpoint(tmp_path / "checkpoint.pt")

    def train() -> None:
        checkpoint.watch(model=torch.nn.Linear(2, 2))
        checkpoint.reached(1)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert not mailbox.is_watched()
    assert "not called in the main thread" in "".join(capfd.readouterr())
