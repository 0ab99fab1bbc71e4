"""Curves for unknown jobs, and curves from unreliable measurements."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_hooks.allocation.curves import curve_of, equal_share, equal_shares, pool_curve, prior


@given(st.floats(0, 1), st.integers(1, 3000))
def test_the_prior_rises_and_is_below_linear(serial_fraction: float, most: int) -> None:
    curve = prior(serial_fraction, most)
    assert curve.points[-1][0] == most
    for n in {1, 2, 3, 7, most // 2, most}:
        assert curve(n) <= n * (1 + 1e-9)
        assert curve(n) <= curve(n + 1) + 1e-9


def test_prior_follows_amdahl() -> None:
    curve = prior(0.1, 20)
    for n in (1, 2, 4, 16, 20):
        assert curve(n) == pytest.approx(1 / (0.1 + 0.9 / n))


@pytest.mark.parametrize(("fraction", "most"), [(-0.1, 4), (1.5, 4), (0.1, 0), (math.nan, 4)])
def test_prior_refuses_nonsense(fraction: float, most: int) -> None:
    with pytest.raises(ValueError, match="no curve"):
        prior(fraction, most)


SAMPLES = [
    ("as measured", [(1, 10.0), (2, 19.0)], [(1, 10.0), (2, 19.0)]),
    ("in any order", [(2, 19.0), (1, 10.0)], [(1, 10.0), (2, 19.0)]),
    ("median of one size", [(1, 9.0), (1, 10.0), (1, 99.0)], [(1, 10.0)]),
    ("never above linear", [(1, 10.0), (2, 90.0)], [(1, 10.0), (2, 20.0)]),
    ("never falling", [(1, 10.0), (2, 8.0)], [(1, 10.0), (2, 10.0)]),
    ("the first one sets the scale", [(4, 10.0), (8, 90.0)], [(4, 10.0), (8, 20.0)]),
    (
        "nonsense is dropped",
        [(0, 5.0), (-1, 5.0), (1, math.nan), (2, math.inf), (3, -1.0), (4, 8.0)],
        [(4, 8.0)],
    ),
]


@pytest.mark.parametrize(
    ("samples", "points"), [s[1:] for s in SAMPLES], ids=[s[0] for s in SAMPLES]
)
def test_samples_become_a_curve(
    samples: list[tuple[int, float]], points: list[tuple[int, float]]
) -> None:
    assert curve_of(samples).points == ((0, 0.0), *points)


def test_no_usable_sample() -> None:
    with pytest.raises(ValueError, match="no usable sample"):
        curve_of([(1, 0.0), (2, math.nan)])


@given(st.lists(st.tuples(st.integers(-2, 70), st.floats(allow_nan=True)), max_size=12))
def test_any_samples_make_a_safe_curve(samples: list[tuple[int, float]]) -> None:
    try:
        curve = curve_of(samples)
    except ValueError:
        return
    least, base = curve.points[1]
    for (_, low), (n, high) in zip(curve.points, curve.points[1:]):
        assert low <= high
        assert high <= base / least * n * (1 + 1e-9)


@given(st.integers(1, 100), st.integers(1, 100), st.integers(1, 4))
def test_an_equal_share_counts_for_more_than_a_perfect_scaler_s_and_the_rest_for_less(
    share: int, most: int, unit: int
) -> None:
    curve = equal_share(share, most, unit)
    first = min(share, most)
    steps = [curve(n + 1) - curve(n) for n in range(most)]
    assert all(step > 1 for step in steps[min(unit, first) : first])
    assert all(0 < step < 1 for step in steps[first:])
    assert all(a >= b - 1e-9 for a, b in zip(steps[first:], steps[first + 1 :]))


@given(st.lists(st.integers(1, 50), max_size=10), st.integers(0, 300))
def test_equal_shares_use_all_nodes_and_differ_only_where_they_must(
    most: list[int], nodes: int
) -> None:
    shares = equal_shares(most, nodes)
    assert all(1 <= share <= limit for share, limit in zip(shares, most))
    assert sum(shares) <= max(nodes, len(most))
    if nodes >= len(most):
        assert sum(shares) >= min(nodes - len(most) + 1, sum(most))
    free = [s for s, limit in zip(shares, most) if s < limit]
    assert max(free, default=0) - min(free, default=0) <= 1


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 30)), max_size=10), st.integers(0, 300)
)
def test_equal_shares_leave_every_job_its_minimum(
    bounds: list[tuple[int, int]], nodes: int
) -> None:
    least, most = [low for low, _ in bounds], [low + more for low, more in bounds]
    shares = equal_shares(most, nodes, least)
    assert all(low <= share <= high for low, share, high in zip(least, shares, most))
    assert sum(shares) == max(min(nodes, sum(most)), sum(least))
    can_give = [s for s, low in zip(shares, least) if s > low]
    can_take = [s for s, high in zip(shares, most) if s < high]
    assert max(can_give, default=0) - min(can_take, default=100) <= 1


@pytest.mark.parametrize(
    ("share", "most", "unit", "points"),
    [
        (4, 4, 1, [(4, 4.0)]),
        (9, 4, 1, [(4, 4.0)]),
        (2, 4, 1, [(2, 2.0), (4, 3.96)]),
        (0, 4, 2, [(2, 2.0), (4, 3.96)]),
        (1, 0, 1, [(1, 1.0)]),
    ],
)
def test_a_pool_is_linear_and_has_its_share(
    share: int, most: int, unit: int, points: list[tuple[int, float]]
) -> None:
    curve = pool_curve(share, most, unit)
    assert list(curve.points) == [(0, 0.0), *points]
    assert all(curve(n) <= n for n in range(1, most + 1))
