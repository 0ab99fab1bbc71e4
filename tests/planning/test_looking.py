"""Jobs that have told how fast they are, or nothing: what the plan makes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from build import after, make_fragment, make_job, make_nodes, make_request, make_snapshot
from planning.readings import grown, plan_for
from slurm_hooks.learning.learned import learn
from slurm_hooks.learning.prior import prior_of
from slurm_hooks.learning.throughput import Shape
from slurm_hooks.model import (
    Curve,
    FragmentState,
    JobPlan,
    Learned,
    MalleableJob,
    NodeState,
    Plan,
    Rate,
    Snapshot,
    Why,
)
from slurm_hooks.planning.looking import looked_at

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


def test_jobs_that_nobody_knows_share_equally() -> None:
    assert sizes(seen(waiting(7), waiting(8))) == [4, 4]
    assert sizes(seen(waiting(7), waiting(8), waiting(9, held=2))) == [3, 3, 2]


def test_what_was_learned_decides() -> None:
    found = seen(waiting(7), waiting(8), learned={7: known(GOOD), 8: known(POOR)})
    assert sizes(found) == [7, 1]


def test_a_job_that_is_known_does_not_take_the_share_of_one_that_is_not() -> None:
    found = seen(waiting(7), waiting(8), learned={7: known(GOOD)})
    assert sizes(found) == [4, 4]


def test_a_job_begins_on_one_unit_if_it_is_to_be_learned() -> None:
    plan = plan_for(seen(waiting(7), waiting(8), learned={7: Learned(), 8: known(GOOD)}))
    assert [job.nodes_planned for job in plan.jobs] == [1, 7]
    assert plan.jobs[0].nodes_probed == 1
    assert plan.jobs[0].reasons[0].why is Why.LOOKED_AT
    assert "1 node" in plan.jobs[0].reasons[0].text
    assert plan.jobs[1].nodes_probed == 0


def test_a_job_whose_engine_tells_no_rates_is_not_looked_at() -> None:
    request = replace(make_request(1, 8), engine="torchft")
    silent = make_job(job_id=7, held=8, request=request)
    plan = plan_for(seen(silent, waiting(8), learned={7: Learned()}))
    assert [job.nodes_planned for job in plan.jobs] == [4, 4]


def running_on_one(
    since_s: float,
    learned: Learned,
    *others_waiting: MalleableJob,
    shrunk_s: Optional[float] = None,
) -> Snapshot:
    request = make_request(1, 8)
    first = make_fragment(0, RUNNING, ["n1"], request=request, start=after(-since_s))
    left = None if shrunk_s is None else after(-shrunk_s)
    others = [make_fragment(i, request=request, noticed=left) for i in range(1, 8)]
    job = make_job(first, *others, request=request)
    nodes = tuple(replace(n, state=BUSY) if n.name == "n1" else n for n in make_nodes(8))
    return make_snapshot(job, *others_waiting, nodes=nodes, learned={7: learned})


def test_it_stays_there_until_it_has_told_its_speed() -> None:
    plan = plan_for(running_on_one(100, Learned(), waiting(8)))
    assert [job.nodes_planned for job in plan.jobs] == [1, 7]


def test_a_script_that_shows_nothing_is_not_waited_for() -> None:
    plan = plan_for(running_on_one(400, Learned(), waiting(8)))
    assert [job.nodes_planned for job in plan.jobs] == [4, 4]


def test_a_gang_that_waited_for_its_minimum_has_not_been_silent() -> None:
    def spared_after(last_s: float) -> Optional[Why]:
        request = make_request(2, 8)
        starts = (after(-400), after(-last_s))
        running = (
            make_fragment(i, RUNNING, [f"n{i + 1}"], request=request, start=start)
            for i, start in enumerate(starts)
        )
        job = make_job(
            *running, *(make_fragment(i, request=request) for i in range(2, 8)), request=request
        )
        nodes = (replace(n, state=BUSY) if n.name < "n3" else n for n in make_nodes(8))
        found = make_snapshot(job, waiting(8), nodes=tuple(nodes), learned={7: Learned()})
        return plan_for(found).jobs[0].spared

    assert spared_after(350) is Why.SILENT
    assert spared_after(10) is None


def test_a_size_that_it_was_made_smaller_for_is_waited_for_as_well() -> None:
    for shrunk_s, nodes in ((100.0, 1), (400.0, 0)):
        told = Learned(sizes_seen=(4,), node_s=1e6)
        seen = running_on_one(7200, told, waiting(8), shrunk_s=shrunk_s)
        assert plan_for(seen).jobs[0].nodes_probed == nodes


def test_a_job_that_has_shown_nothing_on_many_nodes_is_not_made_smaller() -> None:
    def sizes_after(since_s: float) -> list[int]:
        request = make_request(1, 8)
        running = (
            make_fragment(i, RUNNING, [f"n{i + 1}"], request=request, start=after(-since_s))
            for i in range(4)
        )
        held = (make_fragment(i, request=request) for i in range(4, 8))
        job = make_job(*running, *held, request=request)
        nodes = (replace(n, state=BUSY) if n.name < "n5" else n for n in make_nodes(8))
        learned = {7: Learned(), 8: known(GOOD)}
        return sizes(make_snapshot(job, waiting(8), nodes=tuple(nodes), learned=learned))

    assert sizes_after(100)[0] == 1
    assert sizes_after(400)[0] == 4


def test_nobody_is_looked_at_while_there_is_enough_for_all() -> None:
    assert len(grown(plan_for(running_on_one(100, Learned())))) == 7
    (plan,) = plan_for(running_on_one(100, Learned())).jobs
    assert plan.spared is Why.PLENTY
    enough = seen(waiting(7, 4), waiting(8, 4), learned={7: Learned(), 8: known(GOOD)})
    assert sizes(enough) == [4, 4]


def test_a_curve_that_is_given_is_believed_and_nobody_looks() -> None:
    found = seen(waiting(7), waiting(8), curves={7: POOR, 8: GOOD}, learned={7: Learned()})
    assert sizes(found) == [1, 7]
    assert {job.spared for job in plan_for(found).jobs} == {Why.GIVEN}


def test_jobs_whose_names_tell_nothing_are_not_looked_at() -> None:
    plan = plan_for(seen(waiting(7), waiting(8), learned={7: Learned()}))
    assert [job.spared for job in plan.jobs] == [None, Why.SILENT_FAMILY]


def test_a_look_that_gets_no_nodes_costs_nothing() -> None:
    found = make_snapshot(learned={7: Learned(sizes_seen=(1, 2, 4)), 8: Learned()})
    plan = Plan(jobs=(JobPlan(7, 4, 4, nodes_probed=16), JobPlan(8, 0, 1, nodes_probed=1)))
    assert looked_at(plan, found) == {8}
    more = Plan(jobs=(JobPlan(7, 4, 8, nodes_probed=16), JobPlan(8, 1, 4)))
    assert looked_at(more, found) == {7}


class Machine:
    """Jobs that have at the next tick what the plan gives them, and then tell how fast they are."""

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
        learned = {
            number: replace(learn(rates, prior_of(), 1, 8), node_s=1e5)
            for number, rates in self.rates.items()
        }
        return make_snapshot(*jobs, nodes=tuple(nodes), learned=learned)

    def job(self, number: int, on: list[int]) -> MalleableJob:
        request = make_request(1, 8)
        running = (
            make_fragment(i, RUNNING, [f"n{n}"], number, request=request, start=after(-60))
            for i, n in enumerate(on)
        )
        held = (make_fragment(i, job_id=number, request=request) for i in range(len(on), 8))
        return make_job(*running, *held, job_id=number, request=request)


def test_jobs_come_to_the_sizes_that_suit_them_and_stay_there() -> None:
    machine = Machine({7: Shape(0.0, 0.1, 1.0), 8: Shape(1.2, 0.5, 1.0)}, nodes=8)
    seen = [machine.tick() for _ in range(12)]
    assert seen[0] == {7: 1, 8: 1}
    assert seen[1] == {7: 4, 8: 4}
    assert seen[-1] == {7: 7, 8: 1}
    assert all(sizes == seen[-1] for sizes in seen[-6:])


def test_a_job_that_gets_no_node_at_all_is_not_looked_at() -> None:
    plan = plan_for(seen(waiting(7), waiting(8), nodes=1, learned={7: Learned(), 8: Learned()}))
    assert [(job.nodes_planned, job.nodes_probed) for job in plan.jobs] == [(1, 1), (0, 0)]
    assert all(reason.why is not Why.LOOKED_AT for reason in plan.jobs[1].reasons)


def test_who_scales_well_and_came_first_leaves_an_unknown_job_its_share() -> None:
    """A change costs pauses; a share that is kept for their sake would never be left."""
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
    alone = running_on_one(400, Learned())
    nodes = tuple(replace(n, state=BUSY) for n in make_nodes(8))
    learned = {7: Learned(), 8: known(near)}
    plan = plan_for(replace(alone, jobs=(*alone.jobs, first), nodes=nodes, learned=learned))
    assert [job.nodes_planned for job in plan.jobs] == [1, 4]  # and 4 when these have left


def test_unknown_jobs_do_not_claim_what_a_wide_one_cannot_do_without() -> None:
    wide = make_request(6, 8)
    spent = Learned(probed_node_s=1e9)  # no look is left to it
    learned = {7: spent, 8: known(GOOD), 9: spent}
    asking = (waiting(7), make_job(job_id=8, held=8, request=wide), waiting(9))
    assert sizes(seen(*asking, learned=learned)) == [1, 6, 1]
