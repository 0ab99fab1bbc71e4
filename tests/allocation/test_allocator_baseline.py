"""The node-level formulation in benchmarks/: same optimum as ours, and its published defect."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from slurm_hooks.model import Curve

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def baseline() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        yield importlib.import_module("bftrainer")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_same_optimum_as_ours(baseline: ModuleType, seed: int) -> None:
    trainers = baseline.make_trainers(4, 16, seed)
    solver = baseline.find_solver("cbc", 30.0, 1e-9)
    theirs = baseline.run_node_level(trainers, 16, solver)
    ours = baseline.run_ours(trainers, 16, 1e-9)
    assert theirs.is_proven
    worth = baseline.worth(trainers, theirs.sizes)
    assert baseline.worth(trainers, ours.sizes) == pytest.approx(worth, rel=1e-4)


def test_published_big_m_caps_growth_at_half_of_the_machine(baseline: ModuleType) -> None:
    assert baseline.big_m() == {"published": 5, "repaired": 10, "ours": 10}


def test_more_than_the_free_nodes_is_not_given(baseline: ModuleType) -> None:
    held = frozenset(range(6))
    trainers = [baseline.Trainer(1, 64, Curve(((0, 0.0), (64, 64.0))), held)]
    run = baseline.run_node_level(trainers, 8, baseline.find_solver("cbc", 30.0, 1e-9))
    assert run.sizes == (8,)
