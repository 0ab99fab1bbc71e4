"""Benchmarks are run by hand; what they import must not go without anybody noticing."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

OPTIONAL = {"mpi4py", "tensorflow"}  # of trainings that only jobs run
FOUND = sorted((Path(__file__).resolve().parents[2] / "benchmarks").glob("*.py"))


def test_there_are_benchmarks() -> None:
    assert FOUND


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_it_finds_all_that_it_imports(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(path.parent), *sys.path])
    try:
        runpy.run_path(str(path), run_name="benchmark")
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL:
            raise
        pytest.skip(f"{error.name} is not installed")


def test_the_tick_benchmark_plans_what_it_made() -> None:
    found = runpy.run_path(str(FOUND[0].with_name("tick_plan.py")), run_name="benchmark")
    cost = found["measure"](nodes=40, jobs=4, fragments=16)
    assert cost.actions > 0
    assert cost.plan_s >= 0
