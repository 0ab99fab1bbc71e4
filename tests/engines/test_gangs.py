"""Gangs that are started anew, on a real Slurm: they grow, lose a node to another job and one to a
death, and finish.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal

import pytest

from engines.recipes import Recipe
from promises.bench import Bench
from waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.engines, pytest.mark.timeout(300)]
OPEN_MPI = {  # all nodes of a sandbox are this host, which may be without a network
    "OMPI_MCA_btl_tcp_if_include": "lo",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def sizes(recipe: Recipe, job: int) -> list[int]:
    """With how many the newest steps were done, as the logs of all fragments say."""
    logs = recipe.bench.box.work.glob(f"slurm-{job}_*.out")
    lines = re.findall(
        r"^step (\d+) of \d+: (\d+) ", "".join(p.read_text() for p in logs), re.MULTILINE
    )
    return [int(size) for _, size in sorted(lines, key=lambda line: int(line[0]))]


def passes(recipe: Recipe, job: int, *expected: int) -> None:
    """Wait until steps have been done with all these sizes, one after the other."""

    def is_so() -> bool:
        left = iter(sizes(recipe, job))
        return all(size in left for size in expected)

    recipe.tick_until(is_so, 90, job)


def live_through(recipe: Recipe, job: int, program: str) -> float:
    """Growth, a preemption, growth again, a death, the end; the accuracy reached."""
    passes(recipe, job, 4)
    recipe.preempt(nodes=1, seconds=12)
    passes(recipe, job, 4, 3)
    passes(recipe, job, 4, 3, 4)
    workers = recipe.processes(program)
    os.kill(workers[-1], signal.SIGKILL)
    wait_until(lambda: not set(workers) & set(recipe.processes(program)), 30)
    recipe.tick_to_end(job, 150)
    return float(json.loads((recipe.place / "result.json").read_text())["accuracy"])


def test_mpi(bench: Bench) -> None:
    pytest.importorskip("mpi4py")
    if not shutil.which("mpirun.openmpi"):
        pytest.skip("mpirun.openmpi is not installed (Debian: openmpi-bin)")
    recipe = Recipe.copied(bench, "mpi")
    script = recipe.place / "train.sh"
    exports = "".join(f"export {name}={value}\n" for name, value in OPEN_MPI.items())
    script.write_text(exports + script.read_text())
    job = recipe.submit("train.sh", "--steps=600", "--pace=0.5", "--every=5")
    assert live_through(recipe, job, "train.py") > 0.9


def test_tensorflow(bench: Bench) -> None:
    pytest.importorskip("tf_keras")
    recipe = Recipe.copied(bench, "tensorflow")
    job = recipe.submit("train.sh", "--epochs=40", "--pace=0.5")
    assert live_through(recipe, job, "train.py") > 0.9
