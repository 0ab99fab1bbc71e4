"""Learning gives the truth from honest reports, and no dangerous curve from others."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.rates import ANY_RATES, rates_of
from slurm_hooks.learning.learned import learn
from slurm_hooks.learning.reports import current
from slurm_hooks.learning.throughput import Shape
from slurm_hooks.model import Curve, Rate

NETWORKS = [Shape(0.0, 0.05, 1.0), Shape(0.1, 0.5, 2.0), Shape(0.9, 0.3, 1.0), Shape(0.3, 1.0, 1.5)]


def is_safe(curve: Curve, unit: int, most: int) -> bool:
    """True if it is finite, rises, and is never above a line through its rate at 1 unit."""
    points = curve.points
    base = curve(unit) / unit
    return (
        all(math.isfinite(v) for _, v in points)
        and base > 0
        and points[1][0] == unit
        and points[-1][0] <= max(most, unit)
        and all(a <= b for (_, a), (_, b) in zip(points, points[1:]))
        and all(v <= base * n * (1 + 1e-9) for n, v in points)
    )


@settings(max_examples=150, deadline=None)
@given(st.lists(ANY_RATES, max_size=30), st.integers(1, 4), st.integers(1, 40))
def test_the_curve_of_any_reports_is_safe(rates: list[Rate], unit: int, units: int) -> None:
    learned = learn(current(rates), unit, unit * units)
    curves = [*learned.plausible, *([learned.curve] if learned.curve else [])]
    assert all(is_safe(curve, unit, unit * units) for curve in curves)
    assert learned.plausible
    assert learned.spread(unit) >= 0


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(NETWORKS), st.floats(1e-6, 1e9))
def test_the_counted_unit_makes_no_difference(shape: Shape, scale: float) -> None:
    plain = rates_of(shape, (1, 2, 8))
    scaled = [replace(r, per_s=r.per_s * scale) for r in plain]
    one, other = learn(tuple(plain), 1, 16).curve, learn(tuple(scaled), 1, 16).curve
    assert one
    assert other
    assert other(16) / other(1) == pytest.approx(one(16) / one(1), rel=1e-6)


@pytest.mark.parametrize("shape", NETWORKS)
@pytest.mark.parametrize("unit", [1, 2])
def test_three_sizes_say_how_a_job_scales(shape: Shape, unit: int) -> None:
    rates = rates_of(shape, (1, 2, 16), noise=0.01)
    learned = learn(tuple(replace(r, nodes=r.nodes * unit) for r in rates), unit, 32 * unit)
    assert learned.curve
    for units in (4, 8, 16, 32):
        speedup = learned.curve(units * unit) / learned.curve(unit)
        assert speedup == pytest.approx(units / shape.slowdown(units), rel=0.1)
    assert learned.spread(16 * unit) < 0.05
    assert learned.sizes_seen == (unit, 2 * unit, 16 * unit)


def test_more_rates_narrow_the_spread() -> None:
    rates = rates_of(NETWORKS[1], (1, 2, 16))
    left = [learn(tuple(rates[:n]), 1, 16).spread(16) for n in (1, 2, 3)]
    assert left[0] > left[1] > left[2]


@pytest.mark.parametrize("sizes", [(), (1,), (16,), (8, 16)])
def test_too_little_makes_no_curve(sizes: tuple[int, ...]) -> None:
    assert learn(tuple(rates_of(NETWORKS[1], sizes)), 1, 16).curve is None


def test_the_smallest_that_a_job_can_have_is_small_enough() -> None:
    rates = rates_of(NETWORKS[1], (8, 16))
    assert learn(tuple(rates), 1, 16, min_nodes=8).curve


def test_three_hundred_jobs_are_learned_within_a_tick() -> None:
    jobs = [tuple(rates_of(NETWORKS[k % 4], (1, 2, 8, 13), 0.03, seed=k)) for k in range(300)]
    learn(jobs[0], 1, 64)
    began = time.process_time()
    for rates in jobs:
        learn(rates, 1, 64)
    assert time.process_time() - began < 1.5
