"""The terms of a lane: the longest wait of an ordinary job for a node there, and its effect."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Optional

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
    plan_start,
    reserve,
    span,
)
from planning.readings import grown, noticed, plan_for
from slurm_hooks.model import (
    Fragment,
    FragmentState,
    MalleableJob,
    NodeState,
    Resources,
    Slot,
    Snapshot,
    Terms,
    Verb,
    Why,
)
from slurm_hooks.model.lane import Lane
from slurm_hooks.planning.plan import make_plan
from slurm_hooks.report.text import explain_lines
from slurm_hooks.settings.values import Mode, Settings, Site, Tick

KILL_WAIT_S = 30
LEASE_S = 600


@pytest.mark.parametrize(
    ("grace_s", "exempt_s", "wait_s"),
    [
        (0, 0, 30),  # KillWait is all
        (20, 0, 20 + 30 + 30),  # Slurm looks each 30 s whether a grace is over
        (0, 60, 60 + 30),
        (300, 60, 300 + 60 + 30 + 30),
        (7_200, 0, 600 + 30 + 30),  # the lease is over first
        (0, 7_200, 600 + 30 + 30),
        (300, 400, 600 + 30 + 30),
        (300, 600, 600 + 30 + 30),  # the exempt time and the lease are over at once
    ],
)
def test_a_job_waits_for_exempt_time_grace_and_kill_wait(
    grace_s: int, exempt_s: int, wait_s: int
) -> None:
    terms = Terms("lane", timedelta(seconds=grace_s), timedelta(seconds=exempt_s))
    longest = terms.longest_wait(timedelta(seconds=KILL_WAIT_S), timedelta(seconds=LEASE_S))
    assert longest == timedelta(seconds=wait_s)


SETTINGS = Settings(mode=Mode("on"), tick=Tick(every_s=30))
RUNNING = FragmentState.RUNNING
LEAD_S = 20 + 30  # the shipped notice, and a tick
EARLY_S = 60 + 30  # the margin, and KillWait


def lane(grace_s: float = 0, exempt_s: float = 0, most_s: Optional[float] = None) -> dict[str, Any]:
    most = None if most_s is None else span(most_s)
    return {"terms": (Terms("malleable", span(grace_s), span(exempt_s), most),)}


def runner(index: int = 0, start_s: float = -200, **fields: Any) -> Fragment:
    times = {"start": after(start_s), "limit": span(600 - start_s)}
    return make_fragment(index, RUNNING, [f"n{index + 1}"], lane="malleable", **times, **fields)


def busy(job: MalleableJob, **fields: Any) -> Snapshot:
    return make_snapshot(job, nodes=make_nodes(len(job.nodes), NodeState.BUSY), **fields)


@pytest.mark.parametrize(
    ("grace_s", "notice_s", "hole_s", "lease_s"),
    [
        (0, 20, 120, 600),
        (10, 20, 120, 600),  # shorter than the notice: no change
        (300, 300, 400, 1_160),
        (600, 600, 700, 1_760),
        (7_200, 600, 700, 1_760),  # hours would make each planned start empty its nodes
    ],
)
def test_times_that_must_exceed_a_notice_grow_with_it(
    grace_s: float, notice_s: float, hole_s: float, lease_s: float
) -> None:
    site_lane = Lane(Terms("malleable", span(grace_s)), SETTINGS.lease)
    request = make_request()
    assert site_lane.notice == span(notice_s)
    assert site_lane.shortest_hole_of(request) == span(hole_s)
    assert site_lane.lease_of(request) == site_lane.longest_lease == span(lease_s)
    assert site_lane.shortest_hole_of(request) - site_lane.notice == span(120 - 20)
    assert site_lane.lease_of(request) / 2 > site_lane.notice + span(
        30 + 30
    )  # an agent looks 30 s early


@pytest.mark.parametrize(
    ("grace_s", "exempt_s", "wait_s"),
    [(0, 0, 30), (0, 600, 630), (300, 600, 960), (600, 0, 660), (7_200, 0, 1_820)],
)
def test_the_page_for_administrators_says_how_long_a_job_waits(
    grace_s: float, exempt_s: float, wait_s: float
) -> None:
    terms = Terms("malleable", span(grace_s), span(exempt_s))
    longest = Lane(terms, SETTINGS.lease).longest_lease
    assert terms.longest_wait(span(KILL_WAIT_S), longest) == span(wait_s)


@pytest.mark.parametrize("grace_s", [0, 300])
def test_a_fragment_leaves_by_its_grace_before_a_hole_closes(grace_s: float) -> None:
    lead_s = max(20, grace_s) + 30
    for extra_s, leavers in ((-1, [0]), (1, [])):
        wall = reserve(["n1"], EARLY_S + lead_s + extra_s)
        seen = busy(make_job(runner()), reservations=[wall], **lane(grace_s))
        assert list(noticed(plan_for(seen, SETTINGS))) == leavers


@pytest.mark.parametrize(
    ("most_s", "cause"),
    [(None, None), (600 + LEAD_S + 1, None), (600 + LEAD_S, Why.LANE_LIMIT), (500, Why.LANE_LIMIT)],
)
def test_no_fragment_outlives_the_limit_of_its_partition(
    most_s: Optional[float], cause: Optional[Why]
) -> None:
    """Renewals would have no end, because Slurm lets an administrator exceed MaxTime."""
    plan = plan_for(busy(make_job(runner(start_s=-600)), **lane(most_s=most_s)), SETTINGS)
    assert noticed(plan).get(0) is cause


def test_a_lease_is_renewed_up_to_the_limit_of_its_partition() -> None:
    old = replace(runner(start_s=-500), end=after(100))
    ends = [
        [a.end for a in plan_for(busy(make_job(old), **lane(most_s=most_s))).actions if a.end]
        for most_s in (None, 800)
    ]
    assert ends == [[after(600)], [after(300)]]


def test_a_lease_is_no_longer_than_the_limit_of_its_partition() -> None:
    site_lane = Lane(Terms("malleable", span(300), most=span(700)), SETTINGS.lease)
    assert site_lane.lease_of(make_request()) == span(700)


def test_a_fragment_has_its_grace_after_a_notice() -> None:
    job = make_job(runner(noticed=after(-100)))
    puts_back = {
        grace_s: [a.verb for a in plan_for(busy(job, **lane(grace_s))).actions]
        for grace_s in (0, 99, 101)
    }
    assert Verb.PUT_BACK in puts_back[0]
    assert Verb.PUT_BACK in puts_back[99]
    assert Verb.PUT_BACK not in puts_back[101]


@pytest.mark.parametrize(
    ("grace_s", "left_s", "cause"),
    [
        (300, 299, Why.GRACE),
        (300, 310, None),
        (10, 9, Why.GRACE),
        (0, 9, None),
        (7_200, 1_700, None),  # it has so long, and works on
        (7_200, 599, Why.GRACE),
    ],
)
def test_a_fragment_is_notified_of_its_preemption_in_its_grace(
    grace_s: float, left_s: float, cause: Optional[Why]
) -> None:
    """Slurm has cut its lease, and would refuse to change it."""
    fragment = replace(runner(), end=after(left_s), limit=span(1_960))
    plan = plan_for(busy(make_job(fragment), **lane(grace_s)))
    assert noticed(plan).get(0) is cause
    if cause:
        assert not [a for a in plan.actions if a.end is not None]


@pytest.mark.parametrize("left_s", [10, 299])
def test_new_terms_make_no_fragment_leave(left_s: float) -> None:
    """Its lease had the right length under the old terms."""
    fragment = replace(runner(), end=after(left_s), limit=span(200 + left_s))
    plan = plan_for(busy(make_job(fragment), **lane(300)))
    assert not noticed(plan)
    (renewal,) = (a for a in plan.actions if a.end is not None)
    assert renewal.end == after(1_160)


@pytest.mark.parametrize(
    ("grace_s", "exempt_s", "leavers"),
    [(0, 0, []), (1, 0, [0]), (0, 301, [0]), (0, 299, [])],
)
def test_only_a_fragment_without_grace_stays_to_a_planned_start(
    grace_s: float, exempt_s: float, leavers: list[int]
) -> None:
    """It began 200 s ago, and the start is 100 s away."""
    job = make_job(runner(loss_s=1.0))
    seen = busy(job, planned=[plan_start(["n1"], 100)], **lane(grace_s, exempt_s))
    assert list(noticed(plan_for(seen))) == leavers


@pytest.mark.parametrize(("hole_s", "starts"), [(899, False), (901, True)])
def test_no_fragment_starts_where_it_would_be_exempt_at_a_planned_start(
    hole_s: float, starts: bool
) -> None:
    planned = [plan_start(["n1"], hole_s)]
    job = make_job(held=1)
    free = make_nodes(1)
    seen = make_snapshot(job, nodes=free, planned=planned, **lane(exempt_s=900))
    plan = plan_for(seen)
    assert bool(grown(plan)) is starts
    text = "\n".join(explain_lines(job, plan, seen.now))
    assert ("Slurm preempts no fragment in its first 0:15:00" in text) is not starts
    assert grown(plan_for(replace(seen, terms=())))


def test_a_lease_ends_before_a_reservation_exempt_or_not() -> None:
    wall = reserve(["n1"], 600)
    seen = make_snapshot(
        make_job(held=1), nodes=make_nodes(1), reservations=[wall], **lane(exempt_s=7_200)
    )
    (grow,) = (a for a in plan_for(seen).actions if a.verb is Verb.GROW)
    assert seen.now + grow.limit <= after(600 - EARLY_S)


@pytest.mark.parametrize("grace_s", [0, 60, 300, 600, 7_200])
@pytest.mark.parametrize("is_reserved", [True, False])
def test_a_fragment_is_not_told_to_leave_as_it_starts(grace_s: float, is_reserved: bool) -> None:
    """In the shortest hole in which anything starts, it works for as long as without a grace."""
    job = make_job(held=1)
    for hole_s in range(100, 1_200, 10):
        claim: dict[str, Any] = (
            {"reservations": [reserve(["n1"], hole_s)]}
            if is_reserved
            else {"planned": [plan_start(["n1"], hole_s)]}
        )
        seen = make_snapshot(job, nodes=make_nodes(1), **claim, **lane(grace_s))
        if not grown(plan_for(seen)):
            continue
        works_s = hole_s - EARLY_S - max(20, min(grace_s, 600)) - 30
        assert works_s >= 70
        began = make_job(runner(start_s=-30))
        later = busy(began, **claim, **lane(grace_s), now=after(30))
        assert not list(noticed(plan_for(later)))
        return
    raise AssertionError("no hole of 20 min was long enough")


@pytest.mark.parametrize(
    ("lanes_of_nodes", "leaves"),
    [
        (("malleable", "other"), []),
        (("other", "malleable"), [Why.PARTITION]),
        (("other", "other"), []),  # the lane is down, and Slurm lets its jobs run on
    ],
)
@pytest.mark.parametrize("slots", [0, 1])
def test_a_fragment_leaves_a_node_that_is_no_longer_in_its_lane(
    lanes_of_nodes: tuple[str, ...], leaves: list[Why], slots: int
) -> None:
    asked = replace(make_request(), slot=Slot("gpu") if slots else None)
    gpu, both = (Resources(cpus=n, gres=(("gpu", n),)) for n in (1, 2))  # beside another job
    job = make_job(runner(request=asked, slots=slots, asks=gpu), request=asked)
    full = {"state": NodeState.BUSY, "cpus": 2, "gres": both.gres, "used": both}
    nodes = (
        make_node(f"n{i}", partitions=frozenset({lane}), **full)
        for i, lane in enumerate(lanes_of_nodes, 1)
    )
    site = Site(partitions=("other", "malleable"), part_nodes="malleable" if slots else "")
    settings = replace(SETTINGS, site=site)
    plan = make_plan(make_snapshot(job, nodes=tuple(nodes)), settings, no_clock)
    assert [i.cause for i in plan.actions if i.verb is Verb.NOTICE] == leaves
