"""The plan for jobs that have reported their speed, and for jobs without a report."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

import pytest

from build import after, make_fragment, make_job, make_nodes, make_request, make_snapshot
from planning.readings import plan_for
from slurm_hooks.learning.learned import learn
from slurm_hooks.learning.reports import current
from slurm_hooks.learning.throughput import Shape
from slurm_hooks.model import (
    Curve,
    FragmentState,
    Learned,
    MalleableJob,
    NodeState,
    Rate,
    Snapshot,
    Why,
)
from slurm_hooks.report.why import reason_text

RUNNING, BUSY = FragmentState.RUNNING, NodeState.BUSY
GOOD = Curve(((0, 0.0), (1, 10.0), (8, 78.0)))
POOR = Curve(((0, 0.0), (1, 10.0), (2, 12.0), (8, 13.0)))


def known(curve: Curve) -> Learned:
    return Learned(curve, (curve,) * 8, sizes_seen=(1, 2, 8))


def seen(*jobs: MalleableJob, nodes: int = 8, **fields: object) -> Snapshot:
    return make_snapshot(*jobs, nodes=make_nodes(nodes), **fields)


def waiting(job_id: int, held: int = 8) -> MalleableJob:
    return make_job(job_id=job_id, held=held, request=make_request(1, held))


def sizes(snapshot: Snapshot) -> list[int]:
    return [job.nodes_planned for job in plan_for(snapshot).jobs]


def test_jobs_of_unknown_speed_share_equally() -> None:
    assert sizes(seen(waiting(7), waiting(8))) == [4, 4]
    assert sizes(seen(waiting(7), waiting(8), waiting(9, held=2))) == [3, 3, 2]


def test_learned_speeds_decide() -> None:
    snapshot = seen(waiting(7), waiting(8), learned={7: known(GOOD), 8: known(POOR)})
    assert sizes(snapshot) == [7, 1]


def test_a_known_job_does_not_take_the_share_of_an_unknown_job() -> None:
    snapshot = seen(waiting(7), waiting(8), learned={7: known(GOOD)})
    assert sizes(snapshot) == [4, 4]


def test_a_job_begins_on_its_least_size_if_it_is_to_be_learned() -> None:
    plan = plan_for(seen(waiting(7), waiting(8), learned={7: Learned(), 8: known(GOOD)}))
    assert [job.nodes_planned for job in plan.jobs] == [1, 7]
    assert plan.jobs[0].reasons[0].why is Why.PROBED
    assert reason_text(plan.jobs[0].reasons[0]).startswith("begins on 1 node,")
    assert Why.PROBED not in [reason.why for reason in plan.jobs[1].reasons]


def test_nodes_that_wait_for_a_measured_speed_are_idle_for_that_reason() -> None:
    snapshot = seen(waiting(7), waiting(8), learned={7: Learned(), 8: Learned()})
    idle = {each.reason: each.nodes for each in plan_for(snapshot).idle}
    assert idle == {Why.STARTING: 2, Why.PROBED: 6}


@pytest.mark.parametrize(
    "learned_of_7", [Learned(sizes_seen=(4,)), Learned(GOOD, is_shared=True), None]
)
def test_a_job_that_has_reported_or_never_will_does_not_begin_small(
    learned_of_7: Optional[Learned],
) -> None:
    learned = {8: known(GOOD)} if learned_of_7 is None else {7: learned_of_7, 8: known(GOOD)}
    assert sizes(seen(waiting(7), waiting(8), learned=learned))[0] >= 4


def test_a_job_whose_engine_reports_no_rates_begins_on_its_share() -> None:
    request = replace(make_request(1, 8), engine="torchft")
    silent = make_job(job_id=7, held=8, request=request)
    assert sizes(seen(silent, waiting(8), learned={7: Learned()})) == [4, 4]


def running_on(nodes: int, since_s: float, learned: Learned, *more: MalleableJob) -> Snapshot:
    """A job that has had its nodes for so long, beside others that wait."""
    request = make_request(1, 8)
    running = (
        make_fragment(i, RUNNING, [f"n{i + 1}"], request=request, start=after(-since_s))
        for i in range(nodes)
    )
    held = (make_fragment(i, request=request) for i in range(nodes, 8))
    taken = {f"n{i + 1}" for i in range(nodes)}
    machine = (replace(n, state=BUSY) if n.name in taken else n for n in make_nodes(8))
    job = make_job(*running, *held, request=request)
    return make_snapshot(job, *more, nodes=tuple(machine), learned={7: learned})


def test_a_job_stays_on_its_least_size_until_it_reports_but_not_without_end() -> None:
    assert sizes(running_on(1, 290, Learned(), waiting(8))) == [1, 7]
    assert sizes(running_on(1, 310, Learned(), waiting(8))) == [4, 4]


def test_a_job_that_has_more_is_not_made_smaller_to_be_seen() -> None:
    assert sizes(running_on(4, 10, Learned(), waiting(8)))[0] == 4


def test_a_job_that_waits_for_its_minimum_goes_on_beginning() -> None:
    """Its patience counts from the moment at which it has its minimum."""
    request = make_request(2, 8)
    starts = (after(-400), after(-10))
    running = (
        make_fragment(i, RUNNING, [f"n{i + 1}"], request=request, start=start)
        for i, start in enumerate(starts)
    )
    held = (make_fragment(i, request=request) for i in range(2, 8))
    nodes = (replace(n, state=BUSY) if n.name < "n3" else n for n in make_nodes(8))
    job = make_job(*running, *held, request=request)
    snapshot = make_snapshot(job, waiting(8), nodes=tuple(nodes), learned={7: Learned()})
    assert sizes(snapshot)[0] == 2


def test_no_job_begins_small_while_there_is_enough_for_all() -> None:
    assert sizes(seen(waiting(7), learned={7: Learned()})) == [8]
    enough = seen(waiting(7, 4), waiting(8, 4), learned={7: Learned(), 8: known(GOOD)})
    assert sizes(enough) == [4, 4]


def test_a_curve_that_is_given_is_believed() -> None:
    snapshot = seen(waiting(7), waiting(8), curves={7: POOR, 8: GOOD}, learned={7: Learned()})
    assert sizes(snapshot) == [1, 7]


class Machine:
    """A machine whose jobs have the plan's sizes at the next tick, and then report their speed."""

    def __init__(self, shapes: dict[int, Shape], nodes: int) -> None:
        self.shapes, self.nodes, self.ticks = shapes, nodes, 0
        self.sizes = dict.fromkeys(shapes, 0)
        self.rates: dict[int, list[Rate]] = {number: [] for number in shapes}

    def tick(self) -> dict[int, int]:
        """The sizes after another minute."""
        self.ticks += 1
        plan = plan_for(self.look())
        self.sizes = {job.job_id: job.nodes_planned for job in plan.jobs}
        for number, size in self.sizes.items():
            if size:
                rate = 10 * size / self.shapes[number].slowdown(size)
                self.rates[number].append(Rate(size, rate, 0.02, at=60 * self.ticks))
        return self.sizes

    def look(self) -> Snapshot:
        names = iter(range(1, self.nodes + 1))
        jobs = tuple(
            self.job(number, [next(names) for _ in range(size)])
            for number, size in self.sizes.items()
        )
        taken = {name for job in jobs for name in job.nodes}
        nodes = (replace(n, state=BUSY) if n.name in taken else n for n in make_nodes(self.nodes))
        learned = {number: learn(current(rates), 1, 8) for number, rates in self.rates.items()}
        return make_snapshot(*jobs, nodes=tuple(nodes), learned=learned)

    def job(self, number: int, on: list[int]) -> MalleableJob:
        request = make_request(1, 8)
        running = (
            make_fragment(i, RUNNING, [f"n{n}"], number, request=request, start=after(-60))
            for i, n in enumerate(on)
        )
        held = (make_fragment(i, job_id=number, request=request) for i in range(len(on), 8))
        return make_job(*running, *held, job_id=number, request=request)


def test_jobs_reach_suitable_sizes_and_keep_them() -> None:
    """Their rates on their least size and on their share are enough."""
    machine = Machine({7: Shape(0.0, 0.1, 1.0), 8: Shape(1.2, 0.5, 1.0)}, nodes=8)
    seen = [machine.tick() for _ in range(12)]
    assert seen[0] == {7: 1, 8: 1}
    assert seen[1] == {7: 4, 8: 4}
    assert seen[-1] == {7: 7, 8: 1}
    assert all(sizes == seen[-1] for sizes in seen[-6:])


def test_a_job_that_gets_no_node_at_all_does_not_begin() -> None:
    plan = plan_for(seen(waiting(7), waiting(8), nodes=1, learned={7: Learned(), 8: Learned()}))
    assert [job.nodes_planned for job in plan.jobs] == [1, 0]
    assert Why.PROBED not in [reason.why for reason in plan.jobs[1].reasons]


def test_a_first_job_that_scales_well_leaves_an_unknown_job_its_share() -> None:
    """A change costs pauses, so a job would never leave a share that is kept for this reason."""
    near = Curve(((0, 0.0), (1, 10.0), (8, 79.0)))
    request = make_request(1, 8)
    first = make_job(
        *(
            make_fragment(i, RUNNING, [f"n{i + 2}"], 8, request=request, start=after(-900))
            for i in range(7)
        ),
        make_fragment(7, job_id=8, request=request),
        job_id=8,
        request=request,
    )
    alone = running_on(1, 400, Learned())
    nodes = tuple(replace(n, state=BUSY) for n in make_nodes(8))
    learned = {7: Learned(), 8: known(near)}
    plan = plan_for(replace(alone, jobs=(*alone.jobs, first), nodes=nodes, learned=learned))
    assert [job.nodes_planned for job in plan.jobs] == [1, 4]  # and 4 when these have left


def test_unknown_jobs_do_not_claim_nodes_that_a_wide_job_needs() -> None:
    wide = make_request(6, 8)
    unknown = Learned(sizes_seen=(8,))
    learned = {7: unknown, 8: known(GOOD), 9: unknown}
    asking = (waiting(7), make_job(job_id=8, held=8, request=wide), waiting(9))
    assert sizes(seen(*asking, learned=learned)) == [1, 6, 1]
