"""The work of a tick that is about many fragments, jobs or faults grows with their number only."""

from __future__ import annotations

from dataclasses import replace

import pytest

from build import (
    after,
    make_fragment,
    make_job,
    make_node,
    make_nodes,
    make_request,
    make_snapshot,
    no_clock,
)
from counted_work import lines_of
from slurm_hooks.model import (
    AvoidedNode,
    Fragment,
    FragmentId,
    FragmentState,
    Intent,
    JobPlan,
    MalleableJob,
    NodeState,
    Plan,
    Reason,
    Said,
    Snapshot,
    Verb,
    Why,
)
from slurm_hooks.planning.dropping import Fault, without
from slurm_hooks.planning.plan import make_plan
from slurm_hooks.settings.values import Settings


def work_of_plan(seen: Snapshot) -> int:
    return lines_of(lambda: make_plan(seen, Settings(), no_clock))


@pytest.mark.parametrize("engine", ["torchrun", "pool"])
def test_the_work_after_a_power_cut_grows_with_the_dead_fragments(engine: str) -> None:
    """Each dead fragment walked over all the others: 2,000 took most of a minute."""

    def dead(count: int) -> Snapshot:
        request = replace(make_request(1, count), engine=engine)
        fragments = (
            make_fragment(i, FragmentState.FAILED, [f"n{i + 1}"], request=request, exit_code="1:0")
            for i in range(count)
        )
        return make_snapshot(make_job(*fragments), nodes=make_nodes(count))

    few, many = dead(100), dead(400)
    assert len(make_plan(many, Settings(), no_clock).actions) == 400
    assert work_of_plan(many) < 5 * work_of_plan(few)


@pytest.mark.parametrize("bad", ["down{}", "n{}"])
def test_a_death_on_record_costs_the_jobs_that_it_does_not_concern_nothing(bad: str) -> None:
    """Each node on which a job had died was a class of nodes for all jobs."""
    jobs, nodes = 40, 400

    def training(at: int, deaths: tuple[AvoidedNode, ...]) -> MalleableJob:
        request = replace(make_request(1, 8), fragments=8)

        def fragment(i: int) -> Fragment:
            return make_fragment(
                i,
                FragmentState.RUNNING,
                [f"n{4 * at + i}"],
                100 + at,
                request=request,
                start=after(-4000),
                limit=after(0) - after(-4600),
                said=Said.TRAINED,
                deaths=deaths if i == 0 else (),
            )

        return make_job(*map(fragment, range(4)), held=4, job_id=100 + at, user=f"u{at}")

    def world(has_deaths: bool) -> Snapshot:
        states = (NodeState.BUSY if n < nodes - 2 * jobs else NodeState.FREE for n in range(nodes))
        each = (make_node(f"n{n}", state) for n, state in enumerate(states))
        names = (bad.format(nodes - 1 - at) for at in range(jobs))
        died = ((AvoidedNode(name, after(-100)),) for name in names)
        every = (training(at, avoided if has_deaths else ()) for at, avoided in enumerate(died))
        return make_snapshot(*every, nodes=tuple(each))

    assert work_of_plan(world(True)) < 1.2 * work_of_plan(world(False))


def test_the_work_to_drop_intents_grows_with_them() -> None:
    def work(jobs: int) -> int:
        grows = [
            Intent(FragmentId(job, i), Why.HOLE_OPEN, Verb.GROW, nodes=frozenset({f"n{job}-{i}"}))
            for job in range(jobs)
            for i in range(8)
        ]
        names = frozenset(name for grow in grows for name in grow.nodes)
        each = tuple(JobPlan(job, 0, 8) for job in range(jobs))
        plan = Plan(tuple(grows), each, starting=names)
        faults = {i.fragment: Fault(Reason(Why.TAKEN)) for i in grows}
        return lines_of(lambda: without(plan, faults))

    assert work(200) < 5 * work(50)
