"""Off, observe and the ceiling: the fragments that each lets start or sends away."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from clusters import clusters, fragments, many, modes, write
from hypothesis import given, settings
from hypothesis import strategies as st

from build import (
    after,
    make_fragment,
    make_job,
    make_node,
    make_nodes,
    make_request,
    make_snapshot,
    plan_start,
)
from fake_slurm import FakeSlurm
from planning.readings import grown, noticed, plan_for, renewed, told_to_go
from slurm_hooks.model import (
    LIVE_STATES,
    Fragment,
    FragmentState,
    Level,
    MalleableJob,
    NodeState,
    Off,
    Plan,
    Snapshot,
    Verb,
    Why,
)
from slurm_hooks.model.moments import plural, shown
from slurm_hooks.planning.check import Half, check
from slurm_hooks.report.why import note_text, reason_text
from slurm_hooks.settings.values import Mode, Settings
from slurm_hooks.slurm.gateway import observe

RUNNING, PENDING, HELD = FragmentState.RUNNING, FragmentState.PENDING, FragmentState.HELD
ON = Settings(mode=Mode("on"))
OFF = Off(after(-10), "fire")
HOT = Off(after(-7200), "the room is hot")


def with_mode(**fields: Any) -> Settings:
    return replace(ON, mode=replace(ON.mode, **fields))


def busy(*names: str) -> tuple[Any, ...]:
    return tuple(make_node(name, NodeState.BUSY) for name in names)


def two_running() -> MalleableJob:
    return make_job(
        make_fragment(0, RUNNING, ["n1"]), make_fragment(1, RUNNING, ["n2"]), held=3, user="ann"
    )


# -- off


def test_off_ends_all_fragments_and_starts_none() -> None:
    nodes = (*busy("n1", "n2"), make_node("n3"))
    plan = plan_for(make_snapshot(two_running(), nodes=nodes, off=OFF))
    assert noticed(plan) == {0: Why.OFF, 1: Why.OFF}
    assert grown(plan) == set()
    assert plan.level is Level.OFF
    (job,) = plan.jobs
    assert f"switched off since {shown(after(-10))} (fire)" in reason_text(job.reasons[0])
    assert "jobs can be submitted" in reason_text(job.reasons[0])
    assert not any("free and usable" in reason_text(reason) for reason in job.reasons)


@pytest.mark.parametrize(
    ("fragment", "does"),
    [
        (make_fragment(0, PENDING, ["n1"], released=after(-5)), Verb.STAY),
        (
            make_fragment(0, RUNNING, ["n1"], noticed=after(-60)),
            Verb.PUT_BACK,
        ),  # it ignores its notice
        (make_fragment(0, RUNNING, ["n1"], is_finished=True), Verb.CANCEL),
    ],
)
def test_off_ends_every_present_and_arriving_fragment(fragment: Fragment, does: Verb) -> None:
    plan = plan_for(make_snapshot(make_job(fragment), nodes=busy("n1"), off=OFF))
    (action,) = plan.actions
    assert action.verb is does
    assert action.is_held or does is not Verb.STAY
    assert does is Verb.PUT_BACK or action.cause is Why.OFF


def test_the_switch_wins_over_observe() -> None:
    seen = make_snapshot(two_running(), nodes=busy("n1", "n2"), off=OFF)
    assert plan_for(seen, with_mode(level="observe")).level is Level.OFF


# -- observe


def test_observing_plans_as_if_it_were_on() -> None:
    seen = make_snapshot(make_job(held=2), nodes=make_nodes(2))
    watched = plan_for(seen, with_mode(level="observe"))
    assert watched.actions == plan_for(seen).actions
    assert watched.level is Level.OBSERVE
    assert "only print their actions" in note_text(watched.notes[0])


def test_observing_warns_of_running_fragments() -> None:
    seen = make_snapshot(two_running(), nodes=busy("n1", "n2"))
    (_, warning) = plan_for(seen, with_mode(level="observe")).notes
    assert note_text(warning).startswith("2 fragments in use")
    assert "malleable off" in note_text(warning)


# -- a slurmctld that has just begun


@pytest.mark.parametrize(
    "mode",
    [ON, with_mode(max_nodes=5)],
    ids=["on", "under a ceiling"],
)
def test_no_fragment_starts_while_nodes_are_registering(mode: Settings) -> None:
    fragments = (make_fragment(0, RUNNING, ["n0"]), *(make_fragment(i) for i in range(1, 4)))
    nodes = (*busy("n0"), *make_nodes(8)[1:])
    job, fewer = make_job(*fragments), frozenset({"n5", "n6", "n7"})
    plan = plan_for(make_snapshot(job, nodes=nodes, registering=fewer), mode)
    assert grown(plan) == noticed(plan).keys() == set()
    assert plan.jobs[0].nodes_planned == 1
    line = (
        "slurmctld has just started, and no job starts yet; n5, n6, n7 have not reported the jobs "
        "that run there"
    )
    assert line in map(note_text, plan.notes)
    assert line in map(reason_text, plan.jobs[0].reasons)
    assert not any("usable" in reason_text(r) for r in plan.jobs[0].reasons)
    assert [row.reason for row in plan.idle] == [Why.REGISTERING]
    assert grown(plan_for(make_snapshot(job, nodes=nodes), mode))


def test_observing_reports_that_nodes_are_registering() -> None:
    seen = make_snapshot(two_running(), nodes=busy("n1", "n2"), registering=frozenset({"n2"}))
    *_, line = plan_for(seen, with_mode(level="observe")).notes
    assert note_text(line) == (
        "slurmctld has just started, and no job starts yet; n2 has not reported the jobs that run "
        "there"
    )


def test_no_fragment_leaves_for_a_job_that_cannot_start_while_nodes_are_registering() -> None:
    request = make_request(2, 2)
    fragments = (
        make_fragment(i, RUNNING, [f"n{i}"], start=after(-40000), end=after(500), request=request)
        for i in range(2)
    )
    waits = replace(make_job(held=2, job_id=8, request=request), submitted=after(-8000))
    nodes = busy("n0", "n1", "n9")
    seen = make_snapshot(make_job(*fragments, request=request), waits, nodes=nodes)
    assert noticed(plan_for(seen, ON)) == {0: Why.BETTER_USE, 1: Why.BETTER_USE}
    silent = replace(seen, registering=frozenset({"n9"}))
    assert not noticed(plan_for(silent, ON))
    assert noticed(plan_for(silent, with_mode(max_nodes=1)))  # a ceiling still holds


def test_nodes_that_others_have_for_themselves_may_be_silent() -> None:
    other = make_node("gpu1", partitions=frozenset({"main"}))
    seen = make_snapshot(make_job(held=2), nodes=(*make_nodes(2), other))
    assert grown(plan_for(replace(seen, registering=frozenset({"gpu1"})), ON))


def test_fragments_planned_before_a_start_of_slurmctld_do_not_start() -> None:
    seen = make_snapshot(make_job(held=2), nodes=make_nodes(2))
    plan, fresh = plan_for(seen, ON), replace(seen, registering=frozenset({"n1"}))
    assert grown(plan)
    assert not grown(check(plan, Half.FIRST, seen, fresh, ON))


# -- no growth now


def test_with_no_growth_no_fragment_starts_and_running_fragments_stay() -> None:
    nodes = (*busy("n1", "n2"), make_node("n3"))
    waits = make_job(held=2, job_id=8)
    seen = make_snapshot(two_running(), waits, nodes=nodes)
    assert grown(plan_for(seen)) == {"n3"}
    plan = plan_for(replace(seen, no_growth=HOT))
    assert grown(plan) == noticed(plan).keys() == set()
    assert plan.level is Level.ON
    line = (
        "no job starts or grows while the site's file no-growth exists; since "
        f"{shown(after(-7200))}, for 2 hours (the room is hot)"
    )
    assert line in map(note_text, plan.notes)
    for job in plan.jobs:
        assert line in map(reason_text, job.reasons)
        assert not any("usable" in reason_text(reason) for reason in job.reasons)
    assert [row.reason for row in plan.idle] == [Why.NO_GROWTH]


def test_with_no_growth_leases_are_renewed_and_holes_close() -> None:
    soon = plan_start(["n2"], 90)
    fragments = (
        make_fragment(i, RUNNING, [f"n{i + 1}"], start=after(-500), end=after(100))
        for i in range(2)
    )
    nodes = busy("n1", "n2")
    plan = plan_for(
        make_snapshot(make_job(*fragments), nodes=nodes, planned=(soon,), no_growth=HOT)
    )
    assert noticed(plan) == {1: Why.HOLE_CLOSES}
    assert 0 in renewed(plan)


def test_no_job_makes_room_for_another_beyond_a_lowered_ceiling_with_no_growth() -> None:
    """The ceiling takes back only the nodes above it."""
    fragments = (
        make_fragment(i, RUNNING, [f"n{i}"], start=after(-40000), end=after(500)) for i in range(4)
    )
    waits = replace(make_job(held=2, job_id=8, request=make_request(2, 2)), submitted=after(-8000))
    seen = make_snapshot(make_job(*fragments), waits, nodes=busy("n0", "n1", "n2", "n3"))
    three = with_mode(max_nodes=3)
    assert len(noticed(plan_for(seen, three))) > 1
    assert len(noticed(plan_for(replace(seen, no_growth=HOT), three))) == 1


# -- the ceiling


@pytest.mark.parametrize(
    ("fields", "size"),
    [({"max_nodes": 3}, 3), ({"max_share": 0.5}, 4), ({"max_share": 0.5, "max_nodes": 2}, 2)],
)
def test_a_ceiling_bounds_growth(fields: dict[str, Any], size: int) -> None:
    seen = make_snapshot(make_job(held=6), nodes=make_nodes(8))
    plan = plan_for(seen, with_mode(**fields))
    assert len(grown(plan)) == size
    assert any(f"may have {plural(size, 'node')}" in reason_text(r) for r in plan.jobs[0].reasons)


def test_a_lowered_ceiling_takes_back() -> None:
    running = (make_fragment(i, RUNNING, [f"n{i}"]) for i in range(4))
    seen = make_snapshot(make_job(*running), nodes=busy("n0", "n1", "n2", "n3"))
    plan = plan_for(seen, with_mode(max_nodes=3))
    assert list(noticed(plan).values()) == [Why.CEILING]
    assert plan.jobs[0].nodes_planned == 3


def test_a_leaving_fragment_takes_up_room_until_it_has_left() -> None:
    leaving = make_fragment(0, RUNNING, ["n1"], noticed=after(-5), job_id=8)
    jobs = (make_job(leaving, job_id=8), make_job(held=3))
    nodes = (*busy("n1"), *make_nodes(4)[1:])
    assert len(grown(plan_for(make_snapshot(*jobs, nodes=nodes), with_mode(max_nodes=2)))) == 1


def test_the_room_that_is_left_is_counted_in_nodes() -> None:
    two = make_request(2, 4, unit=2)
    leaving = make_fragment(0, RUNNING, ["n1", "n2"], noticed=after(-5), job_id=8, request=two)
    jobs = (make_job(leaving, job_id=8), make_job(held=2, request=two))
    nodes = (*busy("n1", "n2"), *make_nodes(6)[2:])
    assert len(grown(plan_for(make_snapshot(*jobs, nodes=nodes), with_mode(max_nodes=4)))) == 2


def test_a_script_of_a_finished_job_counts_and_ends_with_its_lease() -> None:
    times: dict[str, Any] = {"start": after(-900), "end": after(60)}
    done = make_fragment(0, RUNNING, ["n0"], job_id=1, is_finished=True, **times)
    trains = (make_fragment(i, RUNNING, [f"n{i}"], job_id=2, **times) for i in (1, 2))
    jobs = (make_job(done, job_id=1), make_job(*trains, job_id=2))
    seen = make_snapshot(*jobs, nodes=busy("n0", "n1", "n2"))
    for chosen, longer in ((ON, {1, 2}), (with_mode(max_nodes=2), {2})):
        plan = plan_for(seen, chosen)
        assert {a.fragment.job_id for a in plan.actions if a.end is not None} == longer
    (reasons,) = ([reason_text(r) for r in job.reasons] for job in plan.jobs if job.job_id == 1)
    assert any("all malleable jobs may have 2 nodes" in line for line in reasons)


def test_the_ceiling_picks_the_jobs_that_run() -> None:
    four = make_request(4, 4)
    jobs = (make_job(held=4, job_id=8, request=four), make_job(held=4, job_id=9, request=four))
    plan = plan_for(make_snapshot(*jobs, nodes=make_nodes(8)), with_mode(max_nodes=6))
    assert sorted(job.nodes_planned for job in plan.jobs) == [0, 4]


def test_a_job_larger_than_the_ceiling_names_the_ceiling() -> None:
    job = make_job(held=4, request=make_request(4, 4))
    plan = plan_for(make_snapshot(job, nodes=make_nodes(8)), with_mode(max_nodes=3))
    assert grown(plan) == set()
    assert any(
        "this job needs 4, so it cannot start" in reason_text(reason)
        for reason in plan.jobs[0].reasons
    )


def test_a_partition_that_is_down_takes_no_node_back() -> None:
    """Its nodes are not counted then, but its running fragments go on."""
    running = (make_fragment(i, RUNNING, [f"n{i}"]) for i in range(4))
    nodes = [make_node(f"n{i}", NodeState.BUSY, partitions=frozenset({"main"})) for i in range(8)]
    plan = plan_for(make_snapshot(make_job(*running), nodes=nodes), with_mode(max_share=0.5))
    assert noticed(plan) == {}


def test_a_partition_that_is_down_does_not_change_the_absolute_ceiling() -> None:
    running = (make_fragment(i, RUNNING, [f"n{i}"]) for i in range(4))
    seen = make_snapshot(make_job(*running), nodes=busy("n0", "n1", "n2", "n3"))
    site = replace(ON.site, partitions=("malleable", "down"))
    chosen = replace(with_mode(max_share=0.5, max_nodes=3), site=site)
    assert list(noticed(plan_for(seen, chosen)).values()) == [Why.CEILING]


# -- whatever the cluster looks like


@settings(many, max_examples=200)
@given(clusters())
def test_with_no_growth_no_job_grows_or_loses_more_nodes(slurm: FakeSlurm) -> None:
    seen = observe(slurm, ["malleable"])
    free, calm = plan_for(seen), plan_for(replace(seen, no_growth=HOT))
    assert grown(calm) == set()
    assert not leavers_by_job(calm) - leavers_by_job(free)


def leavers_by_job(plan: Plan) -> Counter[int]:
    """The number of each job's fragments that leave, or are held on their way to a node."""
    return Counter(
        a.fragment.job_id for a in plan.actions if a.fragment in told_to_go(plan) or a.is_held
    )


OFFS = st.sampled_from([None, None, OFF])


def look(slurm: FakeSlurm, mode: Mode, off: Any) -> tuple[Snapshot, Plan]:
    seen = replace(observe(slurm, ["malleable"]), off=off)
    return seen, plan_for(seen, replace(ON, mode=mode))


def ceiling_of(seen: Snapshot, mode: Mode) -> int:
    share = int(mode.max_share * len(seen.nodes) + 1e-9)
    return min(mode.max_nodes or share, share) if mode.max_share < 1 else mode.max_nodes or 10**6


def occupied(seen: Snapshot) -> set[str]:
    return {n for f in fragments(seen).values() if f.state in LIVE_STATES for n in f.nodes}


@settings(many, max_examples=80)
@given(clusters(), modes(), OFFS)
def test_no_job_grows_above_the_ceiling(slurm: FakeSlurm, mode: Mode, off: Any) -> None:
    seen, plan = look(slurm, mode, off)
    new = grown(plan)
    assert not new or len(occupied(seen) | new) <= ceiling_of(seen, mode)


@settings(many, max_examples=80)
@given(clusters(), modes(), OFFS)
def test_no_fragment_starts_while_jobs_are_off(slurm: FakeSlurm, mode: Mode, off: Any) -> None:
    _, plan = look(slurm, mode, off)
    new = grown(plan)
    assert off is None or not new


@settings(many, max_examples=80)
@given(clusters(), modes())
def test_off_ends_every_fragment(slurm: FakeSlurm, mode: Mode) -> None:
    """A fragment that began to leave by itself needs no reminder. An operator's suspension
    lasts.
    """
    seen, plan = look(slurm, mode, OFF)
    active = {f.id for f in fragments(seen).values() if f.is_active}
    assert active <= told_to_go(plan)
    held = {a.fragment for a in plan.actions if a.is_held} | told_to_go(plan)
    assert {f.id for f in fragments(seen).values() if f.state is PENDING} <= held


@settings(many, max_examples=50)
@given(clusters(), modes(), OFFS)
def test_planning_again_settles_under_any_mode(slurm: FakeSlurm, mode: Mode, off: Any) -> None:
    for _ in range(4):
        seen, plan = look(slurm, mode, off)
        assert write(slurm, seen, plan) == []
    _, plan = look(slurm, mode, off)
    assert [a for a in plan.actions if a.verb is not Verb.NOTICE] == []


@settings(many, max_examples=30)
@given(clusters(), modes())
def test_off_empties_the_cluster(slurm: FakeSlurm, mode: Mode) -> None:
    """Within the notice and two ticks, all leave except suspended and unreadable fragments."""
    for _ in range(8):
        seen, plan = look(slurm, mode, Off(after(-1)))
        write(slurm, seen, plan)
        slurm.advance(10)
    seen, _ = look(slurm, mode, None)
    stuck = (FragmentState.SUSPENDED, FragmentState.UNKNOWN, FragmentState.ENDING)
    left = {f.id for f in fragments(seen).values() if f.state in LIVE_STATES}
    assert left <= {f.id for f in fragments(seen).values() if f.state in stuck}


@settings(many, max_examples=20)
@given(clusters(), st.integers(1, 4))
def test_a_lowered_ceiling_is_reached(slurm: FakeSlurm, most: int) -> None:
    """It does not matter which jobs ran before. Only fragments that cannot be moved may be
    above it.
    """
    for _ in range(5):
        seen, plan = look(slurm, Mode("on"), None)
        write(slurm, seen, plan)
        slurm.advance(10)
    for _ in range(45):
        seen, plan = look(slurm, Mode(max_nodes=most), None)
        write(slurm, seen, plan)
        slurm.advance(10)
    seen, _ = look(slurm, Mode("on"), None)
    stuck = (FragmentState.SUSPENDED, FragmentState.UNKNOWN)
    there = [f for f in fragments(seen).values() if f.state in LIVE_STATES and f.state not in stuck]
    assert sum(len(f.nodes) for f in there) <= most
