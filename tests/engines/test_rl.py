"""Reinforcement learning: workers start and leave beside a permanent trainer, and the
reward rises.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from engines.pools import preempt
from engines.recipes import Recipe
from promises.bench import TRAINER, Bench
from waiting import wait_until

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.slurm, pytest.mark.engines, pytest.mark.timeout(400)]
PLACE = f"PATH={Path(sys.executable).parent}:{os.environ['PATH']}"
NODE_S = 120.0  # of each way to play


def start_trainer(recipe: Recipe, *words: str) -> int:
    """An ordinary job, as in the README."""
    options = [
        "--partition=main",
        "--time=10",
        f"--chdir={recipe.place}",
        f"--export=ALL,{PLACE},OMP_NUM_THREADS=1",
    ]
    argv = ["sbatch", "--parsable", *options, str(recipe.place / "trainer.sh"), *words]
    return int(recipe.bench.box.run(argv).stdout)


def start_workers(recipe: Recipe, most: int, *words: str) -> int:
    """The pool. A worker that Slurm takes is killed at once: it loses its rollout."""
    place = f"PATH={Path(sys.executable).parent}:$PATH"  # `malleable run` is the plugin's
    inner = f"export {place} OMP_NUM_THREADS=1 MALLEABLE_FAREWELL_S=0\ncd {recipe.place}"
    options = [f"--output={recipe.place}/workers.log", "--open-mode=append", "--time=30"]
    command = f"{inner}\n. ./workers.sh {' '.join(words)}"
    return recipe.bench.submit(command, f"0-{most},engine=pool", TRAINER, options)


def names(recipe: Recipe, log: str, verb: str) -> list[str]:
    """The names of the rollouts in these lines of a log."""
    path = recipe.place / log
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.split()[1] for line in lines if line.startswith(f"{verb} ")]


def playing(recipe: Recipe) -> set[str]:
    """Rollouts that have begun and are not in the queue."""
    begun, queued = (names(recipe, "workers.log", verb) for verb in ("begun", "queued"))
    return set(begun) - set(queued)


def rewards(recipe: Recipe) -> list[float]:
    """The rewards of each version."""
    text = (recipe.place / "trainer.log").read_text()
    return [float(reward) for reward in re.findall(r"^version \d+: reward (\S+)", text, re.M)]


def process_of(name: str) -> str:
    """The process of the worker that has made a rollout."""
    return name.split(".")[1]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_the_reward_rises_although_workers_start_and_end(bench: Bench) -> None:
    recipe = Recipe.copied(bench, "reinforcement")
    trainer = start_trainer(recipe, "--versions=36", "--rollouts=2", "--workers=3")
    wait_until((recipe.place / "run" / "weights").exists)
    job = start_workers(recipe, 3, "--pace=1.5")
    recipe.tick_until(lambda: len(playing(recipe)) == 3, job)
    recipe.tick_until(lambda: len(names(recipe, "trainer.log", "taken")) >= 8, job)
    preempt(bench, 2, 4)  # all nodes are in use: two workers go in mid-rollout
    lost = playing(recipe)
    recipe.tick_until(lambda: len(playing(recipe) - lost) >= 2, job)

    def is_over() -> bool:
        return not bench.box.run(["squeue", "-h", "-j", str(trainer)], check=False).stdout.strip()

    recipe.tick_until(is_over, job)
    recipe.tick_to_end(job)  # by itself: the trainer has closed the queue
    check_the_books(recipe)
    assert 1 <= len(playing(recipe)) <= 2  # of two workers, each may have been between two versions
    assert playing(recipe) <= lost
    curve = rewards(recipe)
    assert len(curve) == 36
    assert mean(curve[:3]) < 0.2
    assert mean(curve[-6:]) > 0.5
    print(f"reward {mean(curve[:3]):.2f} to {mean(curve[-6:]):.2f}, lost {len(playing(recipe))}")


def check_the_books(recipe: Recipe) -> None:
    """Each queued rollout was taken once, or dropped, or waits.

    Each process has lost at most its last rollout.
    """
    begun, queued = (names(recipe, "workers.log", verb) for verb in ("begun", "queued"))
    taken, dropped = (names(recipe, "trainer.log", verb) for verb in ("taken", "dropped"))
    waiting = [path.name for path in (recipe.place / "run" / "queue").iterdir()]
    saved = torch.load(recipe.place / "run" / "checkpoint.pt", weights_only=True)
    assert len(begun) == len(set(begun))
    assert sorted([*taken, *dropped, *waiting]) == sorted(queued)
    assert saved["counts"] == {"taken": len(taken), "dropped": len(dropped), "unreadable": 0}
    last = {process_of(name): name for name in begun}
    assert all(last[process_of(name)] == name for name in playing(recipe))


@pytest.mark.nightly
def test_rollouts_per_node_hour_beside_a_fixed_number_of_workers(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have the same node-seconds. The test takes the rollouts, like a trainer that is
    never busy.
    """
    monkeypatch.syspath_prepend(str(Recipe.source("reinforcement")))
    recipe = Recipe.copied(bench, "reinforcement")
    place = __import__("exchange").Exchange(recipe.place / "run")
    place.publish(0, __import__("policy").Policy().state_dict())
    job = start_fixed(recipe, 3, "--pace=1")
    fixed = played_for(recipe, place, job, {})
    bench.box.run(["scancel", str(job)])
    wait_until(lambda: not running(bench, job))
    place.remove(set(place.waiting()))
    job = start_workers(recipe, 4, "--pace=1")
    pool = played_for(recipe, place, job, {0.25 * NODE_S: 2, 0.75 * NODE_S: 2})
    load = os.getloadavg()[0]
    print(
        f"rollouts per node-hour: {fixed:.0f} by 3 fixed workers, {pool:.0f} by a pool that loses "
        f"2 workers for 5 s twice ({pool / fixed:.0%}); load {load:.0f}"
    )
    assert pool > 0.3 * fixed


def start_fixed(recipe: Recipe, nodes: int, *words: str) -> int:
    """An ordinary job with a worker on each of its nodes."""
    options = ["--partition=main", "--time=10", "--exclusive", f"--nodes={nodes}"]
    options += [f"--chdir={recipe.place}", f"--export=ALL,{PLACE},OMP_NUM_THREADS=1"]
    worker = f"MALLEABLE_FRAGMENT=$SLURM_PROCID exec python3 worker.py {' '.join(words)}"
    argv = ["sbatch", "--parsable", *options, f"--wrap=srun sh -c '{worker}'"]
    return int(recipe.bench.box.run(argv).stdout)


def running(bench: Bench, job: int) -> int:
    """The nodes of the job now."""
    asked = ["squeue", "-h", "-t", "RUNNING,COMPLETING", "-o", "%D", "-j", str(job)]
    return sum(map(int, bench.box.run(asked, check=False).stdout.split()))


def played_for(recipe: Recipe, place: Any, job: int, taken: dict[float, int]) -> float:
    """Rollouts per node-hour of a job in NODE_S. After so many node-seconds an ordinary job takes
    so many nodes."""
    bench, left = recipe.bench, dict(taken)
    used, rollouts, last = 0.0, 0, time.monotonic()
    while used < NODE_S:
        nodes, now = running(bench, job), time.monotonic()
        used, last = used + nodes * (now - last), now
        arrivals = set(place.waiting())
        rollouts += len(arrivals)
        place.remove(arrivals)
        for at in [at for at in left if at <= used]:
            take(bench, left.pop(at))
        bench.tick()
        time.sleep(0.3)
    return rollouts / used * 3600


def take(bench: Bench, nodes: int) -> None:
    words = ["sbatch", "--partition=main", f"--nodes={nodes}", "--exclusive", "--time=1"]
    bench.box.run([*words, "--output=/dev/null", "--wrap=sleep 5"])
