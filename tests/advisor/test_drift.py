"""The rates that count: a job that changes is learned again, and a single bad minute has no
effect.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.rates import ANY_RATES, rates_of
from slurm_hooks.learning.drift import current
from slurm_hooks.learning.throughput import Shape
from slurm_hooks.model import Rate

SHAPE = Shape(0.1, 0.3, 1.0)


def faster(rates: list[Rate], by: float, later: int = 1000) -> list[Rate]:
    return [replace(r, per_s=r.per_s * by, at=r.at + later) for r in rates]


@settings(max_examples=100, deadline=None)
@given(st.lists(ANY_RATES, max_size=30))
def test_some_of_the_reported_rates_always_count(rates: list[Rate]) -> None:
    kept = current(rates)
    assert bool(kept) == bool(rates)
    assert set(kept) <= set(rates)


def test_a_steady_job_keeps_all_its_rates() -> None:
    rates = rates_of(SHAPE, (1, 2, 8, 2, 8, 1), noise=0.02)
    assert current(rates) == tuple(rates)


def test_a_single_bad_minute_is_left_out() -> None:
    rates = rates_of(SHAPE, (1, 2, 8))
    bad = faster(rates[-1:], 0.6, 60)
    after = faster(rates[-1:], 1.0, 120)
    assert current([*rates, *bad]) == tuple(rates)
    assert current([*rates, *bad, *after]) == (*rates, *after)


def test_a_confirmed_change_makes_older_rates_void() -> None:
    rates = rates_of(SHAPE, (1, 2, 8))
    new = [*faster(rates[-1:], 0.6, 60), *faster(rates[-1:], 0.61, 120)]
    assert current([*rates, *new]) == tuple(new)


def test_another_batch_on_each_node_is_another_phase_at_once() -> None:
    rates = [replace(r, batch=64.0 * r.nodes) for r in rates_of(SHAPE, (1, 2, 8))]
    bigger = [replace(rates[-1], batch=128.0 * 8, at=500)]
    assert current([*rates, *bigger]) == tuple(bigger)


def test_a_batch_that_is_kept_on_each_node_or_in_all_is_no_change() -> None:
    rates = rates_of(SHAPE, (1, 2, 8))
    weak = [replace(r, batch=64.0 * r.nodes) for r in rates]
    strong = [replace(r, batch=512.0) for r in rates]
    assert len(current(weak)) == len(current(strong)) == 3


def test_rates_that_cannot_both_be_true_are_of_two_phases() -> None:
    rates = rates_of(SHAPE, (1, 2))
    new = faster(rates_of(SHAPE, (8, 16)), 5.0)
    assert current([*rates, *new]) == tuple(new)


def test_a_bad_network_on_two_nodes_is_no_change() -> None:
    """Seen in real curves: .42 of a single node's rate on two nodes, 1.02 on three."""
    rates = [Rate(1, 100, 0.03, 0), Rate(2, 42, 0.03, 60), Rate(3, 102, 0.03, 120)]
    assert current(rates) == tuple(rates)
