"""The example trains to its stated accuracy, and growing or shrinking does not change the
result.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch]

SCRIPT = Path(__file__).parents[2] / "examples" / "digits" / "train.py"


def train(work: Path, processes: int, steps: int) -> dict[str, object]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    # a host that cannot resolve its own name would wait for itself
    command += ["--local-addr=127.0.0.1", f"--nproc-per-node={processes}", str(SCRIPT)]
    command += [f"--steps={steps}", f"--work={work}"]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "SLURM_"))}
    subprocess.run(command, env={**env, "OMP_NUM_THREADS": "1"}, check=True, timeout=150)
    return dict(json.loads((work / "result.json").read_text()))


def test_accuracy_and_resuming_on_another_number_of_processes(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    train(tmp_path, 2, 300)
    result = train(tmp_path, 1, 600)
    assert result["worlds"] == [1, 2]
    assert result["starts"] == [[0, 2], [300, 1]]
    assert float(str(result["accuracy"])) >= 0.95


@pytest.mark.nightly
def test_the_optional_lines_work_without_a_job_as_well(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [str(SCRIPT.with_name("train_more.py")), f"--work={tmp_path}", "--steps=300"]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "SLURM_"))}
    done = subprocess.run(command, env=env, check=True, timeout=150, capture_output=True, text=True)
    assert float(done.stdout.partition("accuracy ")[2].split()[0]) >= 0.95
