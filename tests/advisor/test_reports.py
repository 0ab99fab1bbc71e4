"""The rates that count: those of sizes that a job may have, and of its present work."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.rates import ANY_RATES, rates_of
from build import after, make_fragment, make_job, make_request
from rate_tellers import moment, rate, teller
from slurm_hooks.learning.reports import current, in_order, report_of
from slurm_hooks.learning.throughput import MOST_SIZES, Shape
from slurm_hooks.model import Counts, FragmentState, MalleableJob, Rate, Slot, Telemetry
from slurm_hooks.model.resources import GPU

SHAPE = Shape(0.1, 0.3, 1.0)


def counted(job: MalleableJob) -> list[int]:
    return [each.nodes for each in report_of(job, moment(0)).rates]


def faster(rates: list[Rate], by: float, later: int = 1000) -> list[Rate]:
    return [replace(r, per_s=r.per_s * by, at=r.at + later) for r in rates]


@settings(max_examples=100, deadline=None)
@given(st.lists(ANY_RATES, max_size=30))
def test_a_rate_of_each_size_counts_and_the_newest_always(rates: list[Rate]) -> None:
    kept = current(rates)
    assert set(kept) <= set(rates)
    assert kept == tuple(in_order(kept))
    assert len({each.nodes for each in kept}) == len(kept)
    assert kept[-1:] == tuple(in_order(rates)[-1:])


def test_reports_of_all_fragments_count() -> None:
    first, second = [rate(1, 10), rate(4, 20)], [rate(2, 15), rate(8, 30)]
    assert counted(teller(7, first, second)) == [1, 2, 4, 8]
    assert counted(teller(7)) == []
    assert counted(teller(7, first, [rate(1, 30, per_s=9.0)])) == [1]


SAME_SECOND = st.builds(rate, st.integers(1, 3), st.integers(0, 1), st.floats(90, 110))
TELEMETRIES = st.builds(
    Telemetry,
    st.lists(SAME_SECOND, max_size=3).map(tuple),
    st.sampled_from(Counts),
    st.none() | st.floats(0, 1),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(TELEMETRIES, min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_the_fragments_does_not_matter(reports: list[Telemetry], draw: Random) -> None:
    """A report changes no allocation because Slurm lists its fragment first."""
    job = teller(7, *[[] for _ in reports])
    fragments = [replace(f, telemetry=each) for f, each in zip(job.fragments, reports)]
    ordered = replace(job, fragments=tuple(fragments))
    draw.shuffle(fragments)
    shuffled = replace(job, fragments=tuple(fragments))
    assert report_of(ordered, moment(0)) == report_of(shuffled, moment(0))


def test_sizes_that_the_job_cannot_have_are_left_out() -> None:
    said = [rate(4), rate(6), rate(8)]
    assert counted(teller(7, said, most=4, unit=4)) == [4]
    assert counted(teller(7, said, most=6, unit=3)) == [6]
    assert counted(teller(7, [replace(rate(4), error=0.6)])) == []


def test_a_rate_at_17_gpus_counts_for_a_job_that_may_have_them() -> None:
    telemetry = Telemetry((rate(16), rate(17)))
    for unit, sizes in ((1, [16, 17]), (2, [16])):
        request = replace(make_request(4, 64, unit), slot=Slot(GPU))
        fragment = make_fragment(
            0, FragmentState.RUNNING, ["n1"], telemetry=telemetry, start=after(-9e9)
        )
        assert counted(make_job(fragment, request=request)) == sizes


@pytest.mark.parametrize("ahead_s", [10**3, 10**8])
def test_a_rate_from_the_future_does_not_count(ahead_s: int) -> None:
    """It would be the newest forever, and it contradicts the true rates."""
    true = [rate(1, moment(-60)), rate(2, moment(200))]
    false = [rate(2, moment(ahead_s), per_s=9.0), rate(4, moment(-30))]
    assert counted(teller(7, true, false)) == [1, 4, 2]
    in_steps = Telemetry((rate(8, moment(ahead_s)),), Counts.STEPS, sync=0.5)
    job = teller(7, true, false)
    second = replace(job.fragments[1], telemetry=in_steps)
    report = report_of(replace(job, fragments=(job.fragments[0], second)), moment(0))
    assert (report.rates, report.sync) == (tuple(true), None)


def test_a_gang_that_has_other_gpus_now_is_learned_again() -> None:
    """Its agents remember what they measured on the GPUs that it had before."""
    start = after(-600)
    at = int(start.timestamp())
    request = replace(make_request(1, 8), slot=Slot(GPU))
    said = Telemetry((rate(4, at - 1), rate(2, at)))
    fragment = make_fragment(0, FragmentState.RUNNING, ["n1"], telemetry=said, start=start)
    assert counted(make_job(fragment, request=request)) == [2]
    assert counted(make_job(fragment, request=make_request(1, 8))) == [4, 2]


def test_steps_and_samples_are_not_compared() -> None:
    job = teller(7, [rate(1, 1), rate(2, 2)], [rate(4, 3)])
    in_steps = Telemetry((rate(4, 3),), Counts.STEPS)
    second = replace(job.fragments[1], telemetry=in_steps)
    assert counted(replace(job, fragments=(job.fragments[0], second))) == [4]


def test_a_steady_job_keeps_the_newest_rate_of_each_size() -> None:
    rates = rates_of(SHAPE, (1, 2, 8, 2, 8, 1), noise=0.02)
    assert current(rates) == tuple(rates[3:])


@pytest.mark.parametrize("sizes", [range(1, 1001), range(1000, 0, -1)])
def test_of_a_flood_of_rates_few_sizes_count(sizes: range) -> None:
    """A user's text must not delay a tick. The smallest size is needed for every speed-up."""
    flood = rates_of(SHAPE, sizes)
    reports = [flood[k : k + 4] for k in range(0, len(flood), 4)]
    smallest = [1] if sizes[0] == 1 else []
    assert counted(teller(7, *reports, most=1000)) == [*smallest, *sizes[-MOST_SIZES:]]


def test_a_change_makes_older_rates_void() -> None:
    rates = rates_of(SHAPE, (1, 2, 8))
    new = faster(rates[-1:], 0.6)
    assert current([*rates, *new]) == tuple(new)


def test_another_batch_on_each_node_is_other_work() -> None:
    rates = [replace(r, batch=64.0 * r.nodes) for r in rates_of(SHAPE, (1, 2, 8))]
    bigger = [replace(rates[-1], nodes=4, batch=200.0 * 4, at=500)]
    assert current([*rates, *bigger]) == tuple(bigger)


@pytest.mark.parametrize("batches", [(64.0, 128.0, 512.0), (512.0, 512.0, 512.0)])
def test_a_batch_that_is_kept_on_each_node_or_in_all_is_no_change(
    batches: tuple[float, ...],
) -> None:
    rates = [replace(r, batch=b) for r, b in zip(rates_of(SHAPE, (1, 2, 8)), batches)]
    assert current(rates) == tuple(rates)


def test_rates_that_cannot_both_be_true_are_of_different_work() -> None:
    rates = rates_of(SHAPE, (1, 2))
    new = faster(rates_of(SHAPE, (8, 16)), 5.0)
    assert current([*rates, *new]) == tuple(new)


def test_a_bad_network_on_two_nodes_is_no_change() -> None:
    """Seen in real curves: .42 of a single node's rate on two nodes, 1.02 on three."""
    rates = [Rate(1, 100, 0.03, 0), Rate(2, 42, 0.03, 60), Rate(3, 102, 0.03, 120)]
    assert current(rates) == tuple(rates)
