"""The loop over epochs of docs/users/checkpoints.md trains and resumes as it is printed."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "users" / "checkpoints.md"
BEFORE = """
import os
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
dist.init_process_group("gloo")
torch.manual_seed(0)
device = torch.device("cpu")
data = TensorDataset(torch.randn(600, 8), torch.randint(0, 4, (600,)))
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
"""
AFTER = """
if rank == 0:
    print("from", first, "to", step, scheduler.get_last_lr())
dist.destroy_process_group()
"""


@pytest.mark.torch
def test_the_loop_over_epochs_trains_and_resumes(tmp_path: Path) -> None:
    blocks = map(textwrap.dedent, re.findall(r"(?:^    .*\n)+", PAGE.read_text(), re.M))
    (loop,) = (block for block in blocks if "per_epoch = len(data)" in block)
    assert "90 * per_epoch" in loop
    script = tmp_path / "train.py"
    printed = []
    for processes, epochs in ((2, 3), (1, 5)):
        script.write_text(BEFORE + loop.replace("90 * per_epoch", f"{epochs} * per_epoch") + AFTER)
        argv = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        argv += ["--local-ranks-filter=0"]  # lines of two processes may mix
        done = subprocess.run(
            [sys.executable, *argv, str(script)],
            cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        printed.append(done.stdout.splitlines())
    first, then = printed
    assert "epoch 3 is over" in first
    assert "from 0 to 6 [0.0125]" in first
    assert then == ["epoch 4 is over", "epoch 5 is over", "from 6 to 10 [0.003125]"]
