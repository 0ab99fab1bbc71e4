"""Gangs that restart at each change, on a real Slurm.

They grow, lose a node to another job and a node to a death, and finish.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from engines.recipes import Recipe
from promises.bench import Bench
from waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.engines]
OPEN_MPI = {  # all nodes of a sandbox are this host, which may be without a network
    "OMPI_MCA_btl_tcp_if_include": "lo",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def sizes(recipe: Recipe, job: int) -> list[int]:
    """The sizes at which the newest steps were done, by the logs of all fragments."""
    logs = recipe.bench.box.work.glob(f"slurm-{job}_*.out")
    lines = re.findall(
        r"^step (\d+) of \d+: (\d+) ", "".join(p.read_text() for p in logs), re.MULTILINE
    )
    return [int(size) for _, size in sorted(lines, key=lambda line: int(line[0]))]


def passes(recipe: Recipe, job: int, *expected: int) -> None:
    """Wait until steps have been done with all these sizes in turn."""

    def is_so() -> bool:
        left = iter(sizes(recipe, job))
        return all(size in left for size in expected)

    recipe.tick_until(is_so, job)


def live_through(recipe: Recipe, job: int, program: str) -> float:
    """Grow, be preempted, grow again, lose a worker, end. Return the accuracy."""
    passes(recipe, job, 4)
    with recipe.preempted(nodes=1):
        passes(recipe, job, 4, 3)
    passes(recipe, job, 4, 3, 4)
    workers = recipe.processes(program)
    os.kill(workers[-1], signal.SIGKILL)
    wait_until(lambda: not set(workers) & set(recipe.processes(program)))
    recipe.tick_to_end(job)
    wait_until(lambda: not rounds_alive(recipe))
    return float(json.loads((recipe.place / "result.json").read_text())["accuracy"])


def test_mpi(bench: Bench) -> None:
    pytest.importorskip("mpi4py")
    if not shutil.which("mpirun.openmpi"):
        pytest.skip("mpirun.openmpi is not installed (Debian: openmpi-bin)")
    lives_with_open_mpi(bench, "mpi")


@pytest.mark.nightly
def test_horovod(bench: Bench) -> None:
    pytest.importorskip("horovod.torch")
    lives_with_open_mpi(bench, "horovod")


def lives_with_open_mpi(bench: Bench, example: str) -> None:
    recipe = Recipe.copied(bench, example)
    script = recipe.place / "train.sh"
    exports = "".join(f"export {name}={value}\n" for name, value in OPEN_MPI.items())
    script.write_text(exports + script.read_text())
    job = recipe.submit("train.sh", "--steps=600", "--pace=0.5", "--every=5")
    assert live_through(recipe, job, "train.py") > 0.9


# It ignores SIGTERM. Its child has its own session, as each rank has its own group.
STUBBORN = """#!/bin/bash
trap '' TERM INT HUP
setsid sleep 977 &
echo "$MALLEABLE_ROUND" >> {place}/rounds
sleep 988
"""


def rounds_alive(recipe: Recipe) -> list[int]:
    """The round number of each process of the job that was started in a round."""
    wanted = f"MALLEABLE_DIR={recipe.bench.box.work}"
    rounds = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (entry / "environ").read_text(errors="replace").split("\0")
            if any(word.startswith(wanted) for word in words):
                rounds += [int(w[16:]) for w in words if w.startswith("MALLEABLE_ROUND=")]
    return rounds


@pytest.mark.parametrize("mpirun", ["mpirun.openmpi", "mpirun.mpich"])
def test_no_process_of_a_round_outlives_it(bench: Bench, mpirun: str) -> None:
    if not shutil.which(mpirun):
        pytest.skip(f"{mpirun} is not installed (Debian: openmpi-bin, mpich)")
    recipe = Recipe.copied(bench, "mpi")
    rank = recipe.place / "rank.sh"
    rank.write_text(STUBBORN.format(place=recipe.place))
    rank.chmod(0o755)
    exports = "".join(f"export {name}={value}\n" for name, value in OPEN_MPI.items())
    run = f"malleable run --grace=2 -- {mpirun} {rank}\n"
    (recipe.place / "train.sh").write_text(f"#!/bin/bash\n{exports}{run}")
    job = recipe.submit("train.sh", request="1-4,engine=mpi")

    def has_begun(size: int, at_least: int) -> bool:
        noted = recipe.place / "rounds"
        rounds = [int(word) for word in noted.read_text().split()] if noted.exists() else [0]
        return max(rounds) >= at_least and rounds.count(max(rounds)) == size

    recipe.tick_until(lambda: has_begun(4, 1), job)
    first = max(rounds_alive(recipe))
    with recipe.preempted(nodes=1):
        recipe.tick_until(lambda: has_begun(3, first + 1), job)
        assert min(rounds_alive(recipe)) == first + 1
    recipe.tick_until(lambda: has_begun(4, first + 2), job)
    assert min(rounds_alive(recipe)) == first + 2
    bench.box.run(["scancel", str(job)])
    wait_until(lambda: not rounds_alive(recipe))


@pytest.mark.nightly
def test_tensorflow(bench: Bench) -> None:
    pytest.importorskip("tf_keras")
    recipe = Recipe.copied(bench, "tensorflow")
    job = recipe.submit("train.sh", "--epochs=160", "--pace=0.5")
    assert live_through(recipe, job, "train.py") > 0.9


@pytest.mark.nightly
def test_jax(bench: Bench) -> None:
    pytest.importorskip("jax")
    recipe = Recipe.copied(bench, "jax")
    job = recipe.submit("train.sh", "--steps=400", "--pace=0.4", "--every=5")
    assert live_through(recipe, job, "train.py") > 0.9
