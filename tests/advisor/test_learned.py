"""Learning gives the truth from honest jobs, and no dangerous curve from other jobs."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from advisor.rates import ANY_RATES, priors, rates_of, shuffled
from slurm_hooks.learning.learned import learn
from slurm_hooks.learning.prior import Prior, fit_of, prior_of
from slurm_hooks.learning.throughput import Shape
from slurm_hooks.model import Curve, Rate

NOBODY = prior_of()
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
@given(st.lists(ANY_RATES, max_size=30), priors(), st.integers(1, 4), st.integers(1, 40))
def test_the_curve_of_any_reports_is_safe(
    rates: list[Rate], prior: Prior, unit: int, units: int
) -> None:
    learned = learn(rates, prior, unit, unit * units)
    curves = [*learned.plausible, *([learned.curve] if learned.curve else [])]
    assert all(is_safe(curve, unit, unit * units) for curve in curves)
    assert learned.plausible
    assert learned.spread(unit) >= 0


@settings(max_examples=50, deadline=None)
@example([Rate(1, 1.0, 0.0, 0, 0.0), Rate(1, 1.0, 0.0, 0, 1.0), Rate(1, 2.0, 0.0, 0, 2.0)], 0)
@given(st.lists(ANY_RATES, max_size=12), st.integers(0, 99))
def test_the_order_of_reported_rates_does_not_matter(rates: list[Rate], seed: int) -> None:
    assert learn(rates, NOBODY, 1, 16) == learn(shuffled(rates, seed), NOBODY, 1, 16)


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(NETWORKS), st.floats(1e-6, 1e9))
def test_the_counted_unit_makes_no_difference(shape: Shape, scale: float) -> None:
    plain = rates_of(shape, (1, 2, 8))
    scaled = [replace(r, per_s=r.per_s * scale) for r in plain]
    one, other = learn(plain, NOBODY, 1, 16).curve, learn(scaled, NOBODY, 1, 16).curve
    assert one
    assert other
    assert other(16) / other(1) == pytest.approx(one(16) / one(1), rel=1e-6)


@pytest.mark.parametrize("shape", NETWORKS)
@pytest.mark.parametrize("unit", [1, 2])
def test_three_sizes_say_how_a_job_scales(shape: Shape, unit: int) -> None:
    rates = rates_of(shape, (1, 2, 16), noise=0.01)
    learned = learn([replace(r, nodes=r.nodes * unit) for r in rates], NOBODY, unit, 32 * unit)
    assert learned.curve
    for units in (4, 8, 16, 32):
        speedup = learned.curve(units * unit) / learned.curve(unit)
        assert speedup == pytest.approx(units / shape.slowdown(units), rel=0.1)
    assert learned.spread(16 * unit) < 0.05
    assert learned.sizes_seen == (unit, 2 * unit, 16 * unit)


def test_more_rates_narrow_the_spread() -> None:
    rates = rates_of(NETWORKS[1], (1, 2, 16))
    left = [learn(rates[:n], NOBODY, 1, 16).spread(16) for n in (1, 2, 3)]
    assert left[0] > left[1] > left[2]


@pytest.mark.parametrize("sizes", [(), (1,), (16,), (8, 16)])
def test_too_little_makes_no_curve(sizes: tuple[int, ...]) -> None:
    assert learn(rates_of(NETWORKS[1], sizes), NOBODY, 1, 16).curve is None


def test_the_smallest_that_a_job_can_have_is_small_enough() -> None:
    rates = rates_of(NETWORKS[1], (8, 16))
    assert learn(rates, NOBODY, 1, 16, min_nodes=8).curve


def test_a_known_family_needs_no_rates() -> None:
    shape = NETWORKS[2]
    fits = [fit_of(rates_of(shape, (1, 2, 8), 0.01, seed), 1) for seed in range(2)]
    learned = learn([], prior_of([f for f in fits if f], ()), 1, 16)
    assert learned.is_shared
    assert learned.curve
    speedup = learned.curve(16) / learned.curve(1)
    assert speedup == pytest.approx(16 / shape.slowdown(16), rel=0.15)


def test_a_job_that_is_unlike_its_family_is_believed() -> None:
    usual, own = NETWORKS[2], NETWORKS[0]
    fits = [fit_of(rates_of(usual, (1, 2, 8), 0.01, seed), 1) for seed in range(5)]
    learned = learn(rates_of(own, (1, 2, 8)), prior_of([f for f in fits if f], ()), 1, 16)
    assert learned.curve
    assert learned.curve(8) / learned.curve(1) == pytest.approx(8 / own.slowdown(8), rel=0.1)


def test_other_users_jobs_give_the_expectation() -> None:
    cliff = [fit_of(rates_of(Shape(c, 0.1, 1.0), (1, 2, 16)), 1) for c in (0.8, 0.9, 1.0)]
    rates = rates_of(Shape(0.9, 0.1, 1.0), (1,))
    among = learn(rates, prior_of((), [f for f in cliff if f]), 1, 16)
    alone = learn(rates, NOBODY, 1, 16)
    assert sum(c(2) for c in among.plausible) < sum(c(2) for c in alone.plausible)


def test_three_hundred_jobs_are_learned_within_a_tick() -> None:
    jobs = [rates_of(NETWORKS[k % 4], (1, 2, 8, 13), 0.03, seed=k) for k in range(300)]
    learn(jobs[0], NOBODY, 1, 64)
    began = time.process_time()
    for rates in jobs:
        learn(rates, NOBODY, 1, 64)
    assert time.process_time() - began < 1.5


def test_jobs_with_few_rates_do_not_blur_the_curve_of_their_family() -> None:
    shape = NETWORKS[2]
    sharp = [fit_of(rates_of(shape, (1, 2, 8, 16), 0.01, seed), 1) for seed in range(2)]
    vague = [fit_of(rates_of(shape, (6, 7), 0.03, seed), 1) for seed in range(30)]
    one = learn((), prior_of([f for f in sharp if f]), 1, 16)
    other = learn((), prior_of([f for f in (*vague, *sharp) if f]), 1, 16)
    assert one.curve
    assert other.curve
    assert other.curve(16) / other.curve(1) == pytest.approx(one.curve(16) / one.curve(1), rel=0.1)
