"""A Lightning script without a line of ours."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from elastic.gang import Gang
from waiting import wait_until

from .notes import LONG, NNODES, begin, noted, resumed_after, train_on

pytest.importorskip("lightning.pytorch", reason="not installed: make test-frameworks")

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(1200)]


def test_a_planned_change_repeats_no_step_of_a_gan(gang: Gang) -> None:
    """Each batch is two steps, by two optimizers, and most of its time lies between them."""
    gang.flags = ["--nproc-per-node=2"]
    begin(gang, "train_gan.py", world=4)
    train_on(gang, 8)
    t = time.time()
    gang.start(3, NNODES, LONG)
    gang.wait_world(6, since=t, timeout=300)
    assert_nothing_is_repeated(gang, t)
    t = gang.notify(1)
    gang.wait_world(4, since=t, timeout=300)
    assert_nothing_is_repeated(gang, t)


def assert_nothing_is_repeated(gang: Gang, since: float) -> None:
    step = resumed_after(gang, since)
    begun = min(b["t"] for b in gang.begins() if b["t"] > since)
    assert max(row["step"] for row in noted(gang) if row["t"] < begun) == step


@pytest.mark.nightly
def test_a_search_that_draws_another_model_continues(gang: Gang) -> None:
    gang.script = Path(__file__).with_name("train_search.py")
    gang.start(1, "1:1", 0)
    wait_until(lambda: len(gang.steps()) > 10, explain=gang.dump)
    os.kill(min(gang.worker_pids(1)), signal.SIGTERM)
    assert gang.wait_exit(1, timeout=200) == [0], gang.dump()
    assert "belongs to another model" in gang.log(1)


PAGE = Path(__file__).parents[2] / "docs" / "users" / "frameworks.md"
START = """
import torch, lightning as L
from lightning import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(8, 1)
    def on_train_start(self):
        print("starts at", self.global_step, flush=True)
    def training_step(self, batch, index):
        return (self.line(batch) ** 2).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-2)
    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=8)
model, data = Net(), None
"""


@pytest.mark.parametrize(("left_out", "second"), [("", 10), ("dirpath='ck', ", 0)])
def test_the_lines_of_the_page_resume_in_a_new_job(
    tmp_path: Path, left_out: str, second: int
) -> None:
    """Without a fixed directory a new job begins again, as the page says."""
    shown = re.findall(
        r"^    (from .*)\n    (saves = .*)\n    (trainer = .*)\n    (trainer.fit.*)$",
        PAGE.read_text(),
        re.M,
    )
    lines = "\n".join(shown[0]).replace('dirpath="checkpoints/run1"', "dirpath='ck'")
    lines = lines.replace("every_n_train_steps=500", "every_n_train_steps=5").replace(
        left_out, "", 1
    )
    host = "accelerator='cpu', devices=1, max_steps=10 * int(sys.argv[1])"
    lines = lines.replace("devices=8, num_nodes=4", host)
    script = tmp_path / "start.py"
    script.write_text(f"import sys{START}{lines}\n")
    starts = []
    for turn in ("1", "2"):
        argv = [sys.executable, str(script), turn]
        done = subprocess.run(
            argv, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        starts += re.findall(r"starts at (\d+)", done.stdout)
    assert starts == ["0", str(second)]
