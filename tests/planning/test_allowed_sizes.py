"""The sizes in a request: the only sizes, the preferred size, and the time that it keeps a size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from build import after, make_fragment, make_job, make_nodes, make_request, make_snapshot, span
from planning.readings import grown, noticed, plan_for
from slurm_hooks.model import (
    Curve,
    FragmentState,
    MalleableJob,
    Node,
    NodeState,
    Plan,
    Request,
    Said,
    Why,
)
from slurm_hooks.planning.check import Half, check
from slurm_hooks.report.why import reason_text
from slurm_hooks.settings.values import Mode, Settings

RUNNING, BUSY = FragmentState.RUNNING, NodeState.BUSY
POWERS = frozenset({2, 4, 8})


def asked(**fields: Any) -> Request:
    return replace(make_request(2, 8), **fields)


def running(request: Request, count: int, **fields: Any) -> MalleableJob:
    """A job of 8 that has trained on so many nodes for 200 s."""
    fields = {"request": request, "said": Said.TRAINED, **fields}
    here = [make_fragment(i, RUNNING, [f"n{i + 1}"], **fields) for i in range(count)]
    return make_job(*here, held=8 - count, request=request)


def nodes(busy: int, free: int) -> tuple[Node, ...]:
    every = make_nodes(busy + free)
    return tuple(replace(n, state=BUSY) for n in every[:busy]) + every[busy:]


def planned(job: MalleableJob, free: int) -> Plan:
    return plan_for(make_snapshot(job, nodes=nodes(job.size, free)))


def size(plan: Plan) -> int:
    return plan.jobs[0].nodes_planned


@pytest.mark.parametrize(("free", "expected"), [(1, 0), (2, 2), (3, 2), (5, 4), (7, 4), (8, 8)])
def test_a_job_starts_at_an_allowed_size(free: int, expected: int) -> None:
    request = asked(allowed=POWERS)
    plan = planned(make_job(held=8, request=request), free)
    assert size(plan) == len(grown(plan)) == expected


@pytest.mark.parametrize(
    ("count", "free", "expected"), [(7, 0, 4), (7, 1, 8), (3, 0, 2), (3, 1, 4)]
)
def test_a_job_that_lost_a_node_gets_another_or_gives_back_the_rest(
    count: int, free: int, expected: int
) -> None:
    """The rule holds also while it waits after the change."""
    job = running(asked(allowed=POWERS), count)
    lost = replace(job.fragments[-1], mark=replace(job.fragments[-1].mark, noticed=after(-5)))
    plan = planned(replace(job, fragments=(*job.fragments[:-1], lost)), free)
    assert size(plan) == expected
    assert set(noticed(plan).values()) <= {Why.SIZE}


def test_nodes_that_lead_to_no_allowed_size_are_left_free() -> None:
    """Other jobs use those nodes, and the job says which sizes it may have."""
    plan = planned(running(asked(allowed=POWERS), 4), 3)
    assert (size(plan), plan.actions and grown(plan)) in [(4, set()), (4, ())]
    lines = map(reason_text, plan.jobs[0].reasons)
    assert "may have 2, 4 and 8 nodes only (sizes=)" in lines


def test_the_largest_allowed_size_is_the_maximum() -> None:
    job = running(replace(asked(allowed=POWERS), max_nodes=9), 8)
    assert "its maximum is 8 nodes" in map(reason_text, planned(job, 3).jobs[0].reasons)


def test_a_job_waits_for_late_nodes_at_an_allowed_size() -> None:
    """Two of the four nodes that it is to get still belong to another job."""
    job = running(asked(allowed=POWERS), 4)
    leaving = {"request": make_request(1, 2), "noticed": after(-1), "job_id": 8}
    gone = [make_fragment(i, RUNNING, [f"n{i + 5}"], **leaving) for i in range(2)]
    other = make_job(*gone, request=make_request(1, 2), job_id=8)
    plan = plan_for(make_snapshot(job, other, nodes=nodes(6, 2)))
    assert size(plan) == 4
    assert not grown(plan)


def test_growth_that_would_end_between_two_sizes_is_dropped() -> None:
    """Another job takes a node of it between the two readings."""
    seen = make_snapshot(make_job(held=8, request=asked(allowed=POWERS)), nodes=make_nodes(4))
    plan = plan_for(seen)
    assert len(grown(plan)) == 4
    fresh = (replace(seen.nodes[0], state=BUSY), *seen.nodes[1:])
    assert not grown(
        check(plan, Half.FIRST, seen, replace(seen, nodes=fresh), Settings(mode=Mode("on")))
    )
    every = replace(seen, jobs=(make_job(held=8, request=asked()),))
    assert (
        len(
            grown(
                check(
                    plan, Half.FIRST, every, replace(every, nodes=fresh), Settings(mode=Mode("on"))
                )
            )
        )
        == 3
    )


def test_preferred_decides_between_plans_that_are_worth_the_same() -> None:
    """Two jobs that scale perfectly share 8 nodes."""
    curve = dict.fromkeys((7, 9), Curve(((0, 0.0), (8, 8.0))))
    for liked in (2, 3, 4, 5, 6):
        jobs = [
            make_job(held=8, request=asked(preferred=liked), job_id=7),
            make_job(held=8, request=asked(), job_id=9),
        ]
        seen = replace(make_snapshot(*jobs, nodes=make_nodes(8)), curves=curve)
        sizes = {job.job_id: job.nodes_planned for job in plan_for(seen).jobs}
        assert sizes == {7: liked, 9: 8 - liked}


@pytest.mark.parametrize(
    ("count", "free", "started_s", "expected"),
    [
        (2, 2, -200, 2),  # 400 s at 2 nodes are worth more than 120 s at 2 more
        (2, 6, -200, 8),
        (2, 2, -530, 4),
        (2, 2, -700, 4),
    ],
)
def test_a_job_grows_soon_after_a_change_only_if_that_pays(
    count: int, free: int, started_s: float, expected: int
) -> None:
    request = asked(min_run=span(600))
    job = running(request, count, start=after(started_s))
    plan = planned(job, free)
    assert size(plan) == expected
    text = "changed less than 600 s ago (min_run=); for 400 s more it grows only if that pays"
    is_told = text in [reason_text(r) for r in plan.jobs[0].reasons]
    assert is_told == (expected == 2)


def test_a_job_may_shrink_at_any_time() -> None:
    """Another job that waits for its minimum takes two of its nodes."""
    job = running(asked(min_run=span(600)), 4)
    other = make_job(held=2, request=make_request(2, 2), job_id=9)
    plan = plan_for(make_snapshot(job, other, nodes=nodes(4, 0)))
    assert size(plan) == 2
