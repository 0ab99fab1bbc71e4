"""Limits of the lane's QOS on a user, an account or all: what jobs get, give back, and leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from clusters import clusters, many, modes, write
from hypothesis import given, settings
from hypothesis import strategies as st

from build import after, make_fragment, make_job, make_node, make_nodes, make_request, make_snapshot
from fake_slurm import FakeSlurm
from planning.readings import noticed, plan_for
from slurm_hooks.model import (
    LIVE_STATES,
    FragmentState,
    Limit,
    MalleableJob,
    NodeState,
    Plan,
    Slot,
    Snapshot,
    Terms,
    Verb,
    Why,
)
from slurm_hooks.planning.ground import Ground
from slurm_hooks.report.why import reason_text
from slurm_hooks.settings.values import Mode, Settings
from slurm_hooks.slurm.gateway import observe
from slurm_hooks.tick.observe import needs_charges

RUNNING = FragmentState.RUNNING
ON = Settings(mode=Mode("on"))


def under(seen: Snapshot, **most: int) -> Snapshot:
    """The snapshot where the lane's QOS has limits such as MaxTRESPU=4, on nodes."""
    limits = tuple(Limit("spare", name, "node", count) for name, count in most.items() if count)
    return replace(seen, terms=(Terms("malleable", limits=limits),))


def of(whose: str, job: MalleableJob) -> MalleableJob:
    """The job of this user, charged to the account of the same name."""
    return replace(job, user=whose, account=whose)


def busy(count: int) -> tuple[Any, ...]:
    return tuple(make_node(f"n{i}", NodeState.BUSY) for i in range(count))


def sizes(plan: Plan) -> dict[int, int]:
    return {job.job_id: job.nodes_planned for job in plan.jobs}


def reasons_of(plan: Plan, job_id: int) -> list[str]:
    (job,) = (job for job in plan.jobs if job.job_id == job_id)
    return [reason_text(reason) for reason in job.reasons]


@pytest.mark.parametrize(
    ("name", "whose"), [("MaxTRESPU", "ann"), ("MaxTRESPA", "account ann"), ("GrpTRES", "")]
)
def test_the_jobs_of_a_user_share_a_limit_and_others_get_the_rest(name: str, whose: str) -> None:
    jobs = [of("ann", make_job(held=6, job_id=1)), of("ann", make_job(held=6, job_id=2))]
    jobs += [of("bob", make_job(held=6, job_id=3))] if whose else []
    plan = plan_for(under(make_snapshot(*jobs, nodes=make_nodes(8)), **{name: 4}), ON)
    assert sizes(plan) == ({1: 2, 2: 2, 3: 4} if whose else {1: 2, 2: 2})
    jobs_of = f"the malleable jobs of {whose}" if whose else "all malleable jobs"
    line = f"{jobs_of} share {name}=node=4 of QOS spare"
    assert line in reasons_of(plan, 1)
    assert line in reasons_of(plan, 2)


def test_nodes_that_only_a_full_user_could_have_are_idle_for_the_limit() -> None:
    seen = make_snapshot(of("ann", make_job(held=6)), nodes=make_nodes(8))
    plan = plan_for(under(seen, MaxTRESPU=3), ON)
    assert {row.reason: row.nodes for row in plan.idle} == {Why.STARTING: 3, Why.CEILING: 5}


def test_a_job_above_its_user_s_limit_waits_and_names_the_limit() -> None:
    jobs = (
        of("ann", make_job(held=4, job_id=1, request=make_request(4, 4))),
        of("bob", make_job(held=4, job_id=2, request=make_request(3, 4))),
    )
    plan = plan_for(under(make_snapshot(*jobs, nodes=make_nodes(4)), MaxTRESPU=3), ON)
    assert sizes(plan) == {1: 0, 2: 3}
    assert any("this job needs 4 nodes, so it cannot start" in line for line in reasons_of(plan, 1))


def test_fragments_above_a_lowered_limit_leave_but_none_below_its_minimum() -> None:
    request = make_request(2, 4)
    parts = [make_fragment(i, RUNNING, [f"n{i}"], job_id=1, request=request) for i in range(4)]
    job = of("ann", make_job(*parts, job_id=1, request=request))
    for most, left in ((3, 3), (2, 2), (1, 2)):
        plan = plan_for(under(make_snapshot(job, nodes=busy(4)), MaxTRESPU=most), ON)
        assert list(noticed(plan).values()) == [Why.CEILING] * (4 - left)
        assert sizes(plan) == {1: left}


def test_a_second_job_of_a_user_waits_until_there_is_room() -> None:
    """Slurm would keep its fragment pending while the first job's fragment is on its way out."""
    two = [make_fragment(i, RUNNING, [f"n{i}"], job_id=1) for i in range(2)]
    later = of("ann", make_job(held=2, job_id=2))
    seen = make_snapshot(of("ann", make_job(*two, job_id=1)), later, nodes=(*busy(2), *FREE))
    plan = plan_for(under(seen, MaxTRESPU=2), ON)
    assert list(noticed(plan).values()) == [Why.CEILING]
    assert not [a for a in plan.actions if a.verb is Verb.GROW]
    leaving = make_fragment(1, RUNNING, ["n1"], noticed=after(-5), job_id=1)
    seen = make_snapshot(
        of("ann", make_job(two[0], leaving, job_id=1)), later, nodes=(*busy(2), *FREE)
    )
    plan = plan_for(under(seen, MaxTRESPU=2), ON)
    assert not [a for a in plan.actions if a.verb is Verb.GROW]
    seen = make_snapshot(of("ann", make_job(two[0], job_id=1)), later, nodes=(*busy(1), *FREE))
    plan = plan_for(under(seen, MaxTRESPU=2), ON)
    assert Counter(a.fragment.job_id for a in plan.actions if a.verb is Verb.GROW) == {2: 1}


FREE = make_nodes(6)[2:]


def test_the_lower_of_user_and_account_counts() -> None:
    jobs = [replace(make_job(held=6, job_id=i), user=f"u{i}", account="ml") for i in (1, 2, 3)]
    jobs.append(replace(make_job(held=6, job_id=4), user="u1", account="phys"))
    seen = under(make_snapshot(*jobs, nodes=make_nodes(16)), MaxTRESPU=3, MaxTRESPA=5)
    by_job = sizes(plan_for(seen, ON))
    assert by_job[1] + by_job[4] <= 3
    assert by_job[1] + by_job[2] + by_job[3] <= 5
    assert min(by_job.values()) >= 1


def test_a_word_that_is_no_account_does_not_evade_the_limit() -> None:
    jobs = [replace(make_job(held=4, job_id=i), user=f"u{i}") for i in (1, 2)]
    seen = under(make_snapshot(*jobs, nodes=make_nodes(8)), MaxTRESPA=3)
    assert sum(sizes(plan_for(seen, ON)).values()) == 3


@pytest.mark.parametrize(("most", "left"), [(9, 8), (8, 8), (7, 4), (3, 0)])
def test_a_job_with_a_list_of_sizes_gets_a_size_that_fits(most: int, left: int) -> None:
    request = replace(make_request(4, 8), allowed=frozenset({4, 8}))
    job = of("ann", make_job(held=8, request=request))
    plan = plan_for(under(make_snapshot(job, nodes=make_nodes(9)), MaxTRESPU=most), ON)
    assert sizes(plan) == {job.job_id: left}


def test_a_limit_on_gpus_counts_slots() -> None:
    asked = replace(make_request(1, 16), slot=Slot("gpu"))
    nodes = tuple(replace(n, gres=(("gpu", 4),), cpus=8) for n in make_nodes(6))
    jobs = (
        of("ann", make_job(held=16, job_id=1, request=asked)),
        of("bob", make_job(held=16, job_id=2, request=asked)),
    )
    limit = Limit("spare", "MaxTRESPU", "gres/gpu", 8)
    seen = replace(make_snapshot(*jobs, nodes=nodes), terms=(Terms("malleable", limits=(limit,)),))
    chosen = replace(ON, site=replace(ON.site, part_nodes="malleable"))
    assert sizes(plan_for(seen, chosen)) == {1: 8, 2: 8}


def test_accounts_are_asked_for_where_they_have_a_limit() -> None:
    seen = make_snapshot(make_job(held=2), nodes=make_nodes(2))
    assert not needs_charges(Ground(under(seen, MaxTRESPU=3), ON))
    assert needs_charges(Ground(under(seen, MaxTRESPA=3), ON))


# -- whatever the cluster looks like


LIMITS = st.fixed_dictionaries(
    {"MaxTRESPU": st.sampled_from([0, 1, 2, 3, 5]), "MaxTRESPA": st.sampled_from([0, 2, 4])}
)
USERS = st.lists(st.sampled_from(["ann", "bob"]), min_size=3, max_size=3)
Whose = Callable[[MalleableJob], str]


def look(
    slurm: FakeSlurm, mode: Mode, limits: dict[str, int], users: list[str]
) -> tuple[Snapshot, Plan]:
    """A snapshot: jobs 1 and 2 are charged to the same account, job 3 to another."""
    seen = observe(slurm, ["malleable"])
    jobs = (
        replace(job, user=users[job.job_id - 1], account="ml" if job.job_id < 3 else "phys")
        for job in seen.jobs
    )
    seen = under(replace(seen, jobs=tuple(jobs)), **limits)
    return seen, plan_for(seen, replace(ON, mode=mode))


def occupied(seen: Snapshot, plan: Plan, whose: Whose, name: str) -> set[str]:
    """The nodes that these jobs' fragments are on, or on their way to, once the plan is written."""
    mine = {job.job_id for job in seen.jobs if whose(job) == name}
    now = (f for job in seen.jobs if job.job_id in mine for f in job.fragments)
    new = (a for a in plan.actions if a.verb is Verb.GROW and a.fragment.job_id in mine)
    there = {n for f in now if f.state in LIVE_STATES for n in f.nodes}
    return there | {n for a in new for n in a.nodes}


@settings(many, max_examples=200)
@given(clusters(), modes(), LIMITS, USERS)
def test_no_job_grows_above_a_limit(
    slurm: FakeSlurm, mode: Mode, limits: dict[str, int], users: list[str]
) -> None:
    seen, plan = look(slurm, mode, limits, users)
    for name, whose, most in (
        *((n, lambda job: job.user, limits["MaxTRESPU"]) for n in ("ann", "bob")),
        *((n, lambda job: job.account, limits["MaxTRESPA"]) for n in ("ml", "phys")),
    ):
        mine = {job.job_id for job in seen.jobs if whose(job) == name}
        if most and any(a.verb is Verb.GROW and a.fragment.job_id in mine for a in plan.actions):
            assert len(occupied(seen, plan, whose, name)) <= most


@settings(many, max_examples=100)
@given(clusters(), modes(), LIMITS, USERS)
def test_planning_again_settles_under_limits(
    slurm: FakeSlurm, mode: Mode, limits: dict[str, int], users: list[str]
) -> None:
    for _ in range(4):
        seen, plan = look(slurm, mode, limits, users)
        assert write(slurm, seen, plan) == []
    _, plan = look(slurm, mode, limits, users)
    assert [a for a in plan.actions if a.verb is not Verb.NOTICE] == []


@settings(many, max_examples=100)
@given(clusters(), modes(), USERS)
def test_a_limit_that_no_user_reaches_changes_no_plan(
    slurm: FakeSlurm, mode: Mode, users: list[str]
) -> None:
    high = {"MaxTRESPU": 100, "MaxTRESPA": 100}
    assert look(slurm, mode, high, users)[1] == look(slurm, mode, {}, users)[1]


@settings(many, max_examples=200)
@given(clusters(), st.integers(1, 4))
def test_the_other_user_loses_no_node(slurm: FakeSlurm, most: int) -> None:
    """Jobs 1 and 2 belong to a user with a limit. Job 3 belongs to a user below the limit."""
    users = ["ann", "ann", "bob"]
    _, free = look(slurm, Mode("on"), {}, users)
    if sizes(free).get(3, 0) <= most:
        _, plan = look(slurm, Mode("on"), {"MaxTRESPU": most}, users)
        assert min(sizes(free).get(3, 0), most) <= sizes(plan).get(3, 0)
