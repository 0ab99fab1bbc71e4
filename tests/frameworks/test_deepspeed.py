"""DeepSpeed's ZeRO by its universal checkpoint: another number of processes loads the newest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from elastic.gang import Gang

from .notes import LONG, NNODES, begin, train_on
from .test_fsdp import resumed_after

pytest.importorskip("deepspeed", reason="not installed: pip install deepspeed==0.19.8")

EXAMPLE = Path(__file__).parents[2] / "examples" / "deepspeed" / "train.py"
pytestmark = [pytest.mark.frameworks, pytest.mark.nightly, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for the code that DeepSpeed compiles at its first start."""
    return tmp_path_factory.mktemp("built")


@pytest.fixture
def zero(gang: Gang, built: Path) -> Gang:
    for lock in built.rglob("lock"):  # of a process that was killed: others would wait for it
        lock.unlink()
    gang.extra["TORCH_EXTENSIONS_DIR"] = str(built)
    return gang


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_another_number_of_nodes_loads_the_last_checkpoint(zero: Gang, stage: int) -> None:
    zero.extra["TRAIN_STAGE"] = str(stage)
    begin(zero, "train_deepspeed.py")
    for change, world in (("grow", 3), ("kill", 2)):
        train_on(zero)
        t = time.time()
        if change == "grow":
            zero.start(3, NNODES, LONG)
        else:
            zero.cut_off(1, signal.SIGKILL)
        zero.wait_world(world, since=t, timeout=300)
        step, last = resumed_after(zero, t)
        assert step % 10 == 0
        assert 0 < step <= last <= step + 11


def test_a_planned_change_that_the_script_hears_of_costs_no_step(zero: Gang) -> None:
    zero.extra["TRAIN_NOTICE"] = "1"
    begin(zero, "train_deepspeed.py")
    t = time.time()
    zero.start(3, NNODES, LONG)
    zero.wait_world(3, since=t, timeout=300)
    step, last = resumed_after(zero, t)
    assert 0 < step == last


def test_the_example_itself_resumes_on_another_number_of_processes(
    tmp_path: Path, built: Path
) -> None:
    def train(processes: int, steps: int) -> str:
        """The words of the example under torchrun, as a user starts it."""
        argv = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        argv += [f"--nproc-per-node={processes}", str(EXAMPLE), f"--steps={steps}", "--every=3"]
        done = subprocess.run(
            argv,
            cwd=tmp_path,
            env={**os.environ, "TORCH_EXTENSIONS_DIR": str(built), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "step 0 of 6: 2 processes, new" in train(2, 6)
    assert "step 6 of 8: 1 processes, step-6-of-2-universal" in train(1, 8)
    assert "step 8 of 9: 1 processes, step-8-of-1\n" in train(1, 9)
