"""What is looked at: little, never beyond the budget, and nothing that could not matter."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.rates import ANY_RATES, priors, rates_of
from slurm_hooks.learning.learned import learn
from slurm_hooks.learning.prior import Prior, fit_of, prior_of
from slurm_hooks.learning.probe import (
    Costs,
    Looker,
    Probe,
    Purpose,
    is_affordable,
    judge,
    optimistic,
    price_of,
    table_of,
    wanted,
)
from slurm_hooks.learning.throughput import Shape
from slurm_hooks.model import Curve, Learned, Rate, Why

COSTS = Costs(15.0, 18.0, 12.0)
SHAPE = Shape(0.2, 0.4, 1.0)
NOBODY = prior_of()
UNKNOWN = learn((), NOBODY, 1, 32)


def looker(learned: Learned = UNKNOWN, **fields: object) -> Looker:
    usual = Looker("7", learned, unit=1, least=1, most=32, nodes=0, share=8)
    return replace(usual, **fields)  # type: ignore[arg-type]


def known(*sizes: int, shape: Shape = SHAPE, noise: float = 0.01) -> Learned:
    return learn(rates_of(shape, sizes, noise), NOBODY, 1, 32)


def purposes(job: Looker, budget: float = 0.02) -> list[tuple[Purpose, int]]:
    return [(p.purpose, p.nodes) for p in wanted([job], COSTS, 0.5, budget)]


def test_a_job_begins_on_its_smallest_size() -> None:
    assert purposes(looker()) == [(Purpose.SMALLEST, 1)]
    assert purposes(looker(least=4, unit=2)) == [(Purpose.SMALLEST, 4)]


def test_a_job_whose_family_is_known_is_not_looked_at() -> None:
    fits = [fit_of(rates_of(SHAPE, (1, 2, 8), 0.01, seed), 1) for seed in range(3)]
    learned = learn((), prior_of([f for f in fits if f], ()), 1, 32)
    assert purposes(looker(learned)) == []


def test_a_job_of_one_size_is_not_looked_at() -> None:
    assert purposes(looker(least=8, most=8)) == []


def test_a_size_that_tells_nothing_is_given_up() -> None:
    assert purposes(looker(nodes=1)) == [(Purpose.SMALLEST, 1)]
    assert purposes(looker(nodes=1, is_hopeless=True)) == []


def test_a_job_that_has_told_nothing_since_it_began_is_not_made_smaller() -> None:
    assert purposes(looker(nodes=4)) == [(Purpose.SMALLEST, 1)]
    assert purposes(looker(nodes=4, is_silent=True)) == []


def test_what_is_done_again_after_a_change_counts_as_part_of_a_look() -> None:
    assert purposes(looker(nodes=8, redone_s=1.0)) == [(Purpose.SMALLEST, 1)]
    assert purposes(looker(nodes=8, redone_s=300.0)) == []
    assert purposes(looker(nodes=0, redone_s=300.0)) == [(Purpose.SMALLEST, 1)]


def test_without_a_budget_nothing_is_looked_at() -> None:
    assert purposes(looker(), budget=0.0) == []
    assert purposes(looker(replace(UNKNOWN, probed_node_s=1e9))) == []


def test_an_old_job_that_is_wide_is_made_small_only_if_it_has_earned_it() -> None:
    wide = learn(rates_of(SHAPE, (8,)), NOBODY, 1, 32)
    spent = replace(wide, probed_node_s=600.0)
    assert purposes(looker(spent, nodes=8)) == []
    assert purposes(looker(replace(spent, node_s=1e6), nodes=8)) == [(Purpose.SMALLEST, 1)]


def test_what_is_known_well_is_left_alone() -> None:
    assert purposes(looker(known(1, 2, 4, 8, 16, 32), nodes=8)) == []


def test_why_a_job_is_not_looked_at() -> None:
    def why(budget: float = 0.02, **fields: object) -> object:
        return judge(looker(**fields), COSTS, 0.5, budget)  # type: ignore[arg-type]

    blurred = replace(known(1, 2, noise=0.03), node_s=1e6)
    old = {"nodes": 2, "age_s": 40_000.0}
    assert why(0.0) is Why.NO_BUDGET
    assert why(nodes=1, is_hopeless=True) is Why.SILENT
    assert why(learned=known(1), nodes=1) is Why.SHARE
    assert why(learned=known(1, 2, 4, 8, 16, 32), nodes=8) is Why.NOT_WORTH_IT
    assert why(least=8, most=8) is Why.NOT_WORTH_IT
    assert isinstance(why(learned=blurred, **old), Probe)
    assert why(learned=replace(blurred, probed_node_s=20_200.0), **old) is Why.SPENT
    shared = replace(blurred, is_shared=True)
    assert why(learned=shared, nodes=2, age_s=600.0) is Why.FAMILY


def test_what_could_pay_is_looked_at() -> None:
    """Seen up to two nodes only, it may be worth eight, or not: the job is to stay for long."""
    learned = replace(known(1, 2, noise=0.03), node_s=1e6)
    found = wanted([looker(learned, nodes=2, age_s=40_000.0)], COSTS, 0.5)
    assert [p.purpose for p in found] == [Purpose.LARGER]
    assert 2 < found[0].nodes <= 8
    assert found[0].gain_node_s > found[0].cost_node_s


@settings(max_examples=100, deadline=None)
@given(
    st.lists(ANY_RATES, max_size=10),
    priors(),
    st.integers(1, 3),
    st.integers(1, 10),
    st.integers(0, 20),
    st.floats(0, 1e6),
    st.floats(0, 0.1),
)
def test_whatever_is_known_a_look_is_possible_and_within_the_budget(
    rates: list[Rate],
    prior: Prior,
    unit: int,
    units: int,
    has: int,
    spent: float,
    budget: float,
) -> None:
    learned = replace(
        learn(rates, prior, unit, unit * units), probed_node_s=spent, node_s=2 * spent
    )
    most = unit * units
    job = looker(learned, unit=unit, least=unit, most=most, nodes=min(has * unit, most))
    for probe in wanted([job], COSTS, 0.5, budget):
        assert unit <= probe.nodes <= most
        assert probe.nodes % unit == 0
        assert is_affordable(probe, job, budget)


@settings(deadline=None)
@given(st.floats(0, 1))
def test_knowing_more_is_worth_nothing_where_all_agree(price: float) -> None:
    curve = Curve(((0, 0.0), (1, 1.0), (8, 5.0)))
    table = table_of(Learned(curve, (curve,) * 8, (1, 8)), 1, 1, 8)
    assert table.value_of_knowing(price) == pytest.approx(0, abs=1e-12)


def test_knowing_more_is_worth_what_the_wrong_size_costs() -> None:
    """At .5 a node, 1 node is best if the job does not scale (worth .5), and 8 if it does (4): one
    of both would be right. Without knowing, 8: worth (1 - 4 + 8 - 4) / 2 = .5."""
    flat, steep = Curve(((0, 0.0), (1, 1.0), (8, 1.0))), Curve(((0, 0.0), (1, 1.0), (8, 8.0)))
    learned = Learned(flat, (flat, steep), (1,))
    table = table_of(learned, 1, 1, 8)
    assert table.value_of_knowing(0.5) == pytest.approx((0.5 + 4) / 2 - 0.5)
    assert table.boldest(0.5) == 8
    assert optimistic(learned, 1)(8) == pytest.approx(8)


def test_a_look_goes_on_until_it_has_shown_something() -> None:
    learned = replace(known(1, 2, noise=0.03), node_s=1e6)
    asked = wanted([looker(learned, nodes=2, age_s=40_000.0)], COSTS, 0.5)[0]
    there = looker(learned, nodes=asked.nodes, age_s=40_000.0)
    assert wanted([there], COSTS, 0.5)[0].nodes == asked.nodes
    assert wanted([there], COSTS, 0.5)[0].cost_node_s == 0
    assert wanted([replace(there, is_hopeless=True)], COSTS, 0.5) == ()
    small = replace(learn(rates_of(SHAPE, (1, 9), 0.03), NOBODY, 1, 32), node_s=1e7)
    back = wanted([looker(small, nodes=2, most=9, age_s=40_000.0)], COSTS, 0.5)
    assert [(p.purpose, p.nodes) for p in back] in ([], [(Purpose.SECOND, 2)])


def test_the_price_of_a_node_is_what_the_last_one_brings() -> None:
    """Hulls: 1 node at 1 and 7 more at .5; a job that nobody knows takes its 8 at 1."""
    curve = Curve(((0, 0.0), (1, 10.0), (8, 45.0)))
    learned = Learned(curve, (curve,), (1, 8))
    assert price_of([looker(learned, most=8)], 4) == pytest.approx(0.5)
    assert price_of([looker(learned, most=8)], 9) == 0
    assert price_of([looker(learned, most=8), looker()], 8) == 1
    assert price_of([looker(learned, most=8), looker()], 12) == pytest.approx(0.5)


def test_a_cliff_does_not_hide_what_lies_behind_it() -> None:
    curve = Curve(((0, 0.0), (1, 1.0), (2, 1.0), (8, 7.2)))
    learned = Learned(curve, (curve,), (1, 2, 8))
    assert price_of([looker(learned, most=8)], 4) == pytest.approx(6.2 / 7)


def test_a_young_job_of_a_known_family_is_left_alone_and_an_old_one_is_not() -> None:
    learned = replace(known(1, 2, noise=0.03), node_s=1e6, is_shared=True)
    assert wanted([looker(learned, nodes=2, age_s=600.0)], COSTS, 0.5) == ()
    assert wanted([looker(learned, nodes=2, age_s=40_000.0)], COSTS, 0.5)
