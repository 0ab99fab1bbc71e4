"""Jobs with hidden curves: the cost of learning. The learner never reads the true curves."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from replay.worlds import SIX_FOUR_COSTS, world
from slurm_hooks.allocation.objectives import speedup
from slurm_hooks.learning.throughput import Shape
from slurm_hooks.model import Curve
from slurm_hooks.replay.record import dedicated
from slurm_hooks.replay.work import Kind, kind
from slurm_hooks.replay.world.learner import TOLD_AFTER_S, Learner
from slurm_hooks.replay.world.planners import Shipped

SIZES = (1, 2, 4, 8)


def curve_of(shape: Shape) -> Curve:
    return Curve(((0, 0.0), *((n, 100 * n / shape.slowdown(n)) for n in SIZES)))


SITE = {
    "steep": curve_of(Shape(0.0, 0.05, 1.0)),
    "usual": curve_of(Shape(0.15, 0.4, 1.0)),
    "flat": curve_of(Shape(0.9, 0.8, 1.0)),
    "cliff": curve_of(Shape(1.0, 0.1, 2.0)),
}


def job(name: str, node_s: float) -> Kind:
    return kind(name, SITE[name], (1, 8), 100 * node_s)


def learner() -> Learner:
    return Learner(Shipped(speedup))


def test_learned_curves_are_nearly_as_good_as_true_curves() -> None:
    parts = [job(name, 8_000.0) for name in ("steep", "flat", "usual", "cliff")]
    learns = learner()
    known = world(dedicated(8, 0.0, 9_000.0), 3, parts, SIX_FOUR_COSTS).run()
    by_learner = world(dedicated(8, 0.0, 9_000.0), 3, parts, SIX_FOUR_COSTS, planner=learns).run()
    done = [math.fsum(outcome.ledger.images.values()) for outcome in (known, by_learner)]
    assert done[1] > 0.9 * done[0]


@pytest.mark.parametrize(("seconds", "shown"), [(TOLD_AFTER_S - 1, ()), (TOLD_AFTER_S, (2,))])
def test_a_size_is_known_after_a_steady_time_that_is_long_enough(
    seconds: float, shown: tuple[int, ...]
) -> None:
    member = SimpleNamespace(
        number=1, kind=job("flat", 1e6), size=2, worked=lambda _now: {2: seconds}
    )
    assert learner().learned(100.0, [member])[1].sizes_seen == shown  # type: ignore[list-item]
