"""Holes, leases, and the last check before anything is written."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Optional

import pytest

from build import (
    NOW,
    after,
    make_fragment,
    make_job,
    make_mark,
    make_node,
    make_nodes,
    make_request,
    make_slurm,
    make_snapshot,
    no_clock,
    plan_start,
    reserve,
    span,
)
from planning.readings import grown
from slurm_hooks.model import (
    Claim,
    ClaimKind,
    Curve,
    Detail,
    FragmentId,
    FragmentState,
    Intent,
    JobPlan,
    NodeState,
    Plan,
    Reason,
    Verb,
    Why,
)
from slurm_hooks.planning.check import Half, check
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.holes import claims_of, latest_end, lease_within
from slurm_hooks.planning.plan import make_plan
from slurm_hooks.report.why import note_text, reason_text
from slurm_hooks.settings.values import Mode, Settings, Tick

SETTINGS = Settings(mode=Mode("on"), tick=Tick(every_s=30))
LEASE = SETTINGS.lease
CURVES = {1: Curve(((0, 0.0), (1, 1.0), (6, 1.05))), 2: Curve(((0, 0.0), (6, 6.0)))}
ID = FragmentId(7, 0)
RUNNING = make_fragment(0, FragmentState.RUNNING, ["n1"])  # its lease ends in 400 s


def test_the_earliest_claim_ends_a_hole() -> None:
    seen = make_snapshot(
        nodes=make_nodes(4),
        reservations=[
            reserve(["n1", "n2"], 900),
            reserve(["n3"], -900, -1),
            reserve(["n4"], -5, 60),
        ],
        planned=[plan_start(["n2", "n9"], 300)],
    )
    claims = claims_of(seen)
    assert claims["n1"] == Claim(after(900), ClaimKind.RESERVATION, "maint")
    assert claims["n2"] == Claim(after(300), ClaimKind.PLANNED, "job 99")
    assert "n3" not in claims
    assert claims["n4"].start == after(-5)


def test_a_lease_ends_kill_wait_and_margin_early() -> None:
    claim = Claim(after(600), ClaimKind.RESERVATION, "maint")
    seen = make_snapshot(slurm=make_slurm(kill_wait=span(30)))
    ground = Ground(seen, replace(SETTINGS, lease=replace(LEASE, margin_s=60)))
    assert latest_end(ground, claim) == after(510)
    assert latest_end(ground, Claim()) is None


@pytest.mark.parametrize(
    ("latest_s", "longest_s", "wanted_s"),
    [(None, 600, 600), (None, 119, 60), (130, 600, 120), (59, 600, 0), (-300, 600, 0)],
)
def test_leases_are_whole_minutes(
    latest_s: Optional[float], longest_s: float, wanted_s: float
) -> None:
    latest = None if latest_s is None else after(latest_s)
    assert lease_within(NOW, latest, span(longest_s)) == span(wanted_s)


def renew(end: datetime) -> Intent:
    return Intent(ID, Why.HOLE_OPEN, end=end)


def checked(action: Intent, fresh_nodes: dict[str, NodeState], reserved_s: float = 0) -> Plan:
    """The guarded plan of an action, with n1 reserved in `reserved_s` seconds."""
    seen = make_snapshot(make_job(RUNNING), nodes=make_nodes(3))
    fresh = make_snapshot(
        nodes=[make_node(name, state) for name, state in fresh_nodes.items()],
        reservations=[reserve(["n1"], reserved_s)] if reserved_s else [],
        now=after(2),
    )
    return check(Plan((action,)), Half.FIRST, seen, fresh, SETTINGS)


def test_a_node_that_has_left_the_lane_meanwhile_takes_no_fragment() -> None:
    """The check asks the gates that also end stays, for nodes that have changed."""
    job = make_job(make_fragment(0, FragmentState.HELD, lane="malleable"))
    seen = make_snapshot(job, nodes=make_nodes(2))
    here, other = make_nodes(2)
    moved = replace(here, partitions=frozenset({"main"}))
    plan = make_plan(seen, SETTINGS, no_clock)
    assert grown(plan) == {"n1"}
    same = make_snapshot(job, nodes=(here, other), now=after(2))
    assert grown(check(plan, Half.FIRST, seen, same, SETTINGS)) == {"n1"}
    changed = make_snapshot(job, nodes=(moved, other), now=after(2))
    assert not grown(check(plan, Half.FIRST, seen, changed, SETTINGS))


GROW = Intent(
    ID,
    Why.HOLE_OPEN,
    Verb.GROW,
    mark=make_mark(),
    nodes=frozenset({"n1"}),
    limit=span(300),
)


@pytest.mark.parametrize(
    ("action", "states", "reserved_s", "fault"),
    [
        (GROW, {"n1": NodeState.FREE}, 0, ""),
        (GROW, {"n1": NodeState.FREE}, 1000, ""),
        (GROW, {"n1": NodeState.FREE}, 380, "wanted by maint sooner"),
        (GROW, {"n1": NodeState.BUSY}, 0, "no longer free"),
        (GROW, {"n1": NodeState.LEAVING}, 0, "no longer free"),
        (GROW, {"n2": NodeState.FREE}, 0, "no longer free"),
        (renew(after(700)), {"n1": NodeState.BUSY}, 0, ""),
        (
            renew(after(700)),
            {"n1": NodeState.BUSY},
            600,
            "wanted by maint sooner",
        ),
        (renew(after(700)), {"n2": NodeState.BUSY}, 0, "n1 is gone"),
        (
            renew(after(100)),
            {"n1": NodeState.BUSY},
            150,
            "",
        ),  # shorter is always safe
        (
            replace(renew(after(300)), fragment=FragmentId(8, 0)),
            {"n1": NodeState.BUSY},
            0,
            "fragment is gone",
        ),
        (Intent(ID, Why.HOLE_CLOSES, Verb.NOTICE, mark=make_mark()), {}, 0, ""),
    ],
)
def test_guard(action: Intent, states: dict[str, NodeState], reserved_s: float, fault: str) -> None:
    plan = checked(action, states, reserved_s)
    assert (plan.actions == ()) == bool(fault)
    assert fault in "\n".join(map(note_text, plan.notes))


def test_a_gang_that_lost_a_node_does_not_start_short() -> None:
    request = make_request(3, 6)
    job = make_job(*(make_fragment(i, request=request) for i in range(6)), request=request)
    seen = make_snapshot(job, nodes=make_nodes(4))
    plan = make_plan(seen, SETTINGS, no_clock)
    assert len([a for a in plan.actions if a.verb is Verb.GROW]) == 4
    for lost, left in ((1, 3), (2, 0)):
        busy = [make_node(f"n{i}", NodeState.BUSY) for i in range(1, lost + 1)]
        fresh = make_snapshot(job, nodes=[*busy, *make_nodes(4)[lost:]])
        guarded = check(plan, Half.FIRST, seen, fresh, SETTINGS)
        assert len([a for a in guarded.actions if a.verb is Verb.GROW]) == left
    assert any("cannot reach its minimum" in note_text(note) for note in guarded.notes)


def test_a_gang_that_is_there_may_grow_by_less() -> None:
    request = make_request(2, 6)
    here = [make_fragment(i, FragmentState.RUNNING, [f"n{i}"], request=request) for i in (0, 1)]
    job = make_job(*here, *(make_fragment(i, request=request) for i in (2, 3)), request=request)
    plan = Plan(
        tuple(replace(GROW, fragment=FragmentId(7, i), nodes=frozenset({f"n{i}"})) for i in (2, 3))
    )
    fresh = make_snapshot(job, nodes=[make_node("n2"), make_node("n3", NodeState.BUSY)])
    assert len(check(plan, Half.FIRST, fresh, fresh, SETTINGS).actions) == 1


def test_only_growth_and_renewals_need_a_guard() -> None:
    assert Half.FIRST.needs_check((GROW,))
    assert Half.FIRST.needs_check((renew(after(60)),))
    notice = Intent(ID, Why.HOLE_CLOSES, Verb.NOTICE, mark=make_mark())
    assert not Half.FIRST.needs_check((notice,))


def renewals(start_s: float, lease_s: float, hole_s: float = 0) -> list[Intent]:
    """The actions for a fragment that began `start_s` ago with a lease of `lease_s`."""
    fragment = make_fragment(
        0, FragmentState.RUNNING, ["n1"], start=after(-start_s), limit=span(lease_s)
    )
    reserved = [reserve(["n1"], hole_s)] if hole_s else []
    nodes = [make_node("n1", NodeState.BUSY)]
    seen = make_snapshot(make_job(fragment), nodes=nodes, reservations=reserved)
    return list(make_plan(seen, SETTINGS, no_clock).actions)


def test_a_lease_is_renewed_at_half_time() -> None:
    assert renewals(299, 600) == []
    assert renewals(300, 600) == [renew(after(600))]
    assert renewals(330, 600) == [renew(after(600))]


def test_a_renewal_stops_at_the_hole() -> None:
    assert renewals(300, 600, hole_s=600) == [renew(after(510))]
    assert renewals(300, 600, hole_s=390) == []


def test_a_lease_that_overruns_is_cut() -> None:
    assert renewals(100, 600, hole_s=390) == [Intent(ID, Why.HOLE_CLOSES, end=after(300))]


@pytest.mark.parametrize(("lease_s", "is_cut"), [(760, False), (761, True), (36_000, True)])
def test_a_lease_longer_than_it_may_be_is_cut(lease_s: float, is_cut: bool) -> None:
    """A fragment that Slurm itself restarts gets the sum of all extensions as its time limit."""
    wanted = [Intent(ID, Why.LEASE_LONG, end=after(600))] if is_cut else []
    assert renewals(100, lease_s) == wanted


def test_a_fragment_that_leaves_keeps_no_long_lease() -> None:
    fragment = make_fragment(
        0, FragmentState.RUNNING, ["n1"], limit=span(36_000), noticed=after(-1)
    )
    seen = make_snapshot(make_job(fragment), nodes=[make_node("n1", NodeState.BUSY)])
    cuts = [a for a in make_plan(seen, SETTINGS, no_clock).actions if a.end is not None]
    assert [a.end for a in cuts] == [after(600)]


def test_a_fragment_with_a_start_in_the_future_is_put_back() -> None:
    """slurmctld's clock was set back an hour."""
    (action,) = renewals(-3600, 600)
    assert action.verb is Verb.NOTICE
    assert action.cause is Why.LEASE_LONG


def test_no_lease_is_renewed_on_a_node_in_an_unknown_state() -> None:
    fragment = make_fragment(0, FragmentState.RUNNING, ["n1"], start=after(-590))
    nodes = [make_node("n1", NodeState.UNKNOWN)]
    seen = make_snapshot(make_job(fragment), nodes=nodes)
    assert make_plan(seen, SETTINGS, no_clock).actions == ()


@pytest.mark.parametrize("hole_s", [60, 100, 130])
def test_a_fragment_whose_lease_cannot_be_cut_is_asked_to_leave(hole_s: float) -> None:
    (asked,) = renewals(100, 600, hole_s)
    assert asked.verb is Verb.NOTICE
    assert asked.cause is Why.HOLE_CLOSES
    assert asked.end is not None  # it may ignore the notice, and no other tick come
    assert after(SETTINGS.lease.notice_s) < asked.end <= after(60)


def test_an_endless_lease_is_cut_too() -> None:
    fragment = make_fragment(0, FragmentState.RUNNING, ["n1"], end=None)
    seen = make_snapshot(
        make_job(fragment),
        nodes=[make_node("n1", NodeState.BUSY)],
        reservations=[reserve(["n1"], 390)],
    )
    assert make_plan(seen, SETTINGS, no_clock).actions != ()


def test_a_handover_takes_two_steps() -> None:
    """Nodes of a job that shrinks are given to another job once they are free."""
    mine = [make_fragment(i, FragmentState.RUNNING, [f"n{i + 1}"], job_id=1) for i in range(4)]
    flat = make_job(*mine, job_id=1)
    eager = make_job(held=2, job_id=2)
    seen = make_snapshot(flat, eager, nodes=make_nodes(4, NodeState.BUSY), curves=CURVES)
    actions = make_plan(seen, SETTINGS, no_clock).actions
    assert actions
    assert all(a.verb is Verb.NOTICE and a.fragment.job_id == 1 for a in actions)


def idle_of(plan: Plan) -> dict[Why, int]:
    return {each.reason: each.nodes for each in plan.idle}


def test_a_plan_without_some_of_its_growth_reports_the_remaining_sizes() -> None:
    """Of six nodes four start. Then a node is taken, and another is wanted so soon that no
    lease fits.
    """
    request = make_request(1, 4)
    job = make_job(held=4, request=request)
    seen = make_snapshot(job, nodes=make_nodes(5))
    plan = make_plan(seen, SETTINGS, no_clock)
    (before,) = plan.jobs
    assert before.nodes_planned == 4
    assert [reason.why for reason in before.reasons] == [Why.MAXIMUM]
    assert idle_of(plan) == {Why.STARTING: 4, Why.NO_JOB: 1}
    given = sorted(name for a in plan.actions if a.verb is Verb.GROW for name in a.nodes)
    taken = [replace(n, state=NodeState.BUSY) if n.name == given[0] else n for n in seen.nodes]
    fresh = make_snapshot(job, nodes=taken, reservations=[reserve([given[1]], 150)])
    guarded = check(plan, Half.FIRST, seen, fresh, SETTINGS)
    (shrunk,) = guarded.jobs
    assert shrunk.nodes_planned == 2
    assert [reason_text(reason) for reason in shrunk.reasons] == [
        f"not started on {given[0]}: {given[0]} is no longer free",
        f"not started on {given[1]}: {given[1]} is wanted by maint sooner",
    ]
    expected = {Why.STARTING: 2, Why.HOLE_SHORT: 1, Why.NO_JOB: 1}
    assert idle_of(guarded) == expected


def test_a_gang_that_does_not_start_leaves_its_other_nodes_idle() -> None:
    job = make_job(held=3, request=make_request(3, 3))
    seen = make_snapshot(job, nodes=make_nodes(3))
    plan = make_plan(seen, SETTINGS, no_clock)
    fresh = make_snapshot(job, nodes=[make_node("n1", NodeState.BUSY), *make_nodes(3)[1:]])
    guarded = check(plan, Half.FIRST, seen, fresh, SETTINGS)
    assert [job.nodes_planned for job in guarded.jobs] == [0]
    assert idle_of(guarded) == {Why.NOT_GIVEN: 2}


def test_a_job_that_loses_its_least_is_not_said_to_begin_there() -> None:
    job = make_job(held=5)
    seen = make_snapshot(job, nodes=[make_node("n2")])
    grow = replace(GROW, fragment=FragmentId(7, 1), nodes=frozenset({"n2"}))
    reasons = (Reason(Why.PROBED, Detail(nodes_planned=1)),)
    plan = Plan((grow,), (JobPlan(7, 0, 1, reasons),))
    fresh = replace(seen, nodes=(make_node("n2", NodeState.BUSY),))
    (shrunk,) = check(plan, Half.FIRST, seen, fresh, SETTINGS).jobs
    assert shrunk.nodes_planned == 0
    assert Why.PROBED not in [reason.why for reason in shrunk.reasons]
