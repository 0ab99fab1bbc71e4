"""The Octave task farm: a program mapped over files, by workers that are preempted and killed."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from engines.recipes import Recipe
from promises.bench import Bench
from waiting import wait_until

TASKS = 60
pytestmark = [
    pytest.mark.engines,
    pytest.mark.timeout(180),
    pytest.mark.skipif(not shutil.which("octave-cli"), reason="no octave-cli: apt install octave"),
]


def solved(recipe: Recipe) -> dict[str, float]:
    """The frequency of each input that has a result."""
    rows = [path.read_text().split(",") for path in recipe.place.glob("results/*.csv")]
    return {row[0]: float(row[3]) for row in rows}


def make_inputs(recipe: Recipe, count: int) -> list[str]:
    subprocess.run(["./make_inputs.sh", str(count)], cwd=recipe.place, check=True, timeout=150)
    return sorted(f"inputs/{path.name}" for path in (recipe.place / "inputs").iterdir())


@contextmanager
def mapping(recipe: Recipe, inputs: list[str]) -> Iterator[subprocess.Popen[str]]:
    """`malleable map` as in the README, followed to its end."""
    words = ["map", "--max", "4", "--inputs", "-", "--", "./solve.sh", "{}"]
    environment = {**os.environ, **recipe.bench.box.environment, "PACE": "1.5"}
    process = subprocess.Popen(
        [sys.executable, "-m", "slurm_hooks.cli", *words],
        env=environment,
        cwd=recipe.place,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdin
    process.stdin.write("\n".join(inputs) + "\n")
    process.stdin.close()
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)
        assert process.stdout
        process.stdout.close()


@pytest.mark.slurm
def test_every_input_is_solved_once_although_workers_leave(bench: Bench) -> None:
    recipe = Recipe.copied(bench, "octave")
    inputs = make_inputs(recipe, TASKS)
    with mapping(recipe, inputs) as process:

        def tick_until(is_so: Callable[[], bool]) -> None:
            def is_met() -> bool:
                bench.tick()
                return is_so()

            wait_until(is_met, explain=lambda: sorted(solved(recipe)), every_s=0.5)

        tick_until(lambda: len(solved(recipe)) >= 8)
        with recipe.preempted():
            tick_until(lambda: len(solved(recipe)) >= 16)
        recipe.kill_one("./solve.sh")
        tick_until(lambda: process.poll() is not None)
        assert process.stdout
        assert process.returncode == 0, process.stdout.read()
    assert sorted(f"inputs/{name}.m" for name in solved(recipe)) == inputs
    assert not list(recipe.place.glob("results/.*"))


def test_a_task_gives_the_frequency_of_the_string(tmp_path: object) -> None:
    """A string of constant stiffness 1 has the frequency pi. A stiffer string has a higher
    frequency.
    """
    place = shutil.copytree(Recipe.source("octave"), f"{tmp_path}/octave")
    for name, stiffness in (("even", 0), ("stiff", 3)):
        with open(f"{place}/{name}.m", "w") as file:
            file.write(f"nodes = 200; stiffness = {stiffness};\n")
        subprocess.run([f"{place}/solve.sh", f"{name}.m"], check=True, timeout=150)
    subprocess.run([f"{place}/collect.sh"], check=True, timeout=150)
    with open(f"{place}/table.csv") as file:
        rows = [line.strip().split(",") for line in file]
    assert [row[0] for row in rows] == ["name", "even", "stiff"]
    assert float(rows[1][3]) == pytest.approx(math.pi, rel=1e-3)
    assert float(rows[2][3]) > math.pi
