"""Benchmarks are run by hand; what they import must not go without anybody noticing."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

FOUND = sorted((Path(__file__).resolve().parents[2] / "benchmarks").glob("*.py"))


def test_there_are_benchmarks() -> None:
    assert FOUND


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_it_finds_all_that_it_imports(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(path.parent), *sys.path])
    runpy.run_path(str(path), run_name="benchmark")


def test_the_tick_benchmark_plans_what_it_made() -> None:
    found = runpy.run_path(str(FOUND[0].with_name("tick_plan.py")), run_name="benchmark")
    cost = found["measure"](nodes=40, jobs=4, fragments=16)
    assert cost.actions > 0
    assert cost.plan_s >= 0
