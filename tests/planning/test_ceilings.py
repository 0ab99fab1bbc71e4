"""The ceilings of a user and of an account: the nodes that jobs get, give back, and leave
to others.
"""

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
from slurm_hooks.allocation.allocate import allocate
from slurm_hooks.allocation.curves import prior
from slurm_hooks.allocation.problem import JobAsk, NodeClass, Problem
from slurm_hooks.model import (
    LIVE_STATES,
    FragmentState,
    MalleableJob,
    NodeState,
    Plan,
    Slot,
    Snapshot,
    Verb,
    Why,
)
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.modes import Ceiling
from slurm_hooks.planning.quotas import Quota
from slurm_hooks.planning.under_quotas import capped
from slurm_hooks.report.why import reason_text
from slurm_hooks.settings.values import Mode, Settings
from slurm_hooks.slurm.gateway import observe
from slurm_hooks.tick.observe import needs_charges

RUNNING = FragmentState.RUNNING
ON = Settings(mode=Mode("on"))
KEYS = ["max_nodes_per_user", "max_nodes_per_account"]


def with_mode(**fields: Any) -> Settings:
    return replace(ON, mode=replace(ON.mode, **fields))


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


@pytest.mark.parametrize("key", KEYS)
def test_the_jobs_of_a_user_share_a_ceiling_and_others_get_the_rest(key: str) -> None:
    jobs = (
        of("ann", make_job(held=6, job_id=1)),
        of("ann", make_job(held=6, job_id=2)),
        of("bob", make_job(held=6, job_id=3)),
    )
    seen = make_snapshot(*jobs, nodes=make_nodes(8))
    plan = plan_for(seen, with_mode(**{key: 4}))
    assert sizes(plan) == {1: 2, 2: 2, 3: 4}
    whose = {"max_nodes_per_user": "ann", "max_nodes_per_account": "account ann"}[key]
    line = f"the malleable jobs of {whose} may have 4 nodes (mode.{key}); they get 4"
    assert line in reasons_of(plan, 1)
    assert line in reasons_of(plan, 2)
    assert [(row.reason, row.nodes) for row in plan.idle] == [(Why.STARTING, 8)]


def test_nodes_that_only_a_full_user_could_have_are_idle_for_the_ceiling() -> None:
    seen = make_snapshot(of("ann", make_job(held=6)), nodes=make_nodes(8))
    plan = plan_for(seen, with_mode(max_nodes_per_user=3))
    assert {row.reason: row.nodes for row in plan.idle} == {Why.STARTING: 3, Why.CEILING: 5}


def test_a_job_above_its_user_s_ceiling_waits_and_names_the_ceiling() -> None:
    jobs = (
        of("ann", make_job(held=4, job_id=1, request=make_request(4, 4))),
        of("bob", make_job(held=4, job_id=2, request=make_request(3, 4))),
    )
    plan = plan_for(make_snapshot(*jobs, nodes=make_nodes(4)), with_mode(max_nodes_per_user=3))
    assert sizes(plan) == {1: 0, 2: 3}
    assert any("this job needs 4, so it cannot start" in line for line in reasons_of(plan, 1))


def test_fragments_above_a_lowered_ceiling_leave_and_others_get_their_nodes() -> None:
    running = (make_fragment(i, RUNNING, [f"n{i}"], job_id=1) for i in range(4))
    one = make_request(1, 1)
    jobs = (
        of("ann", make_job(*running, job_id=1)),
        of("bob", make_job(held=1, job_id=2, request=one)),
    )
    plan = plan_for(make_snapshot(*jobs, nodes=busy(4)), with_mode(max_nodes_per_user=3))
    assert list(noticed(plan).values()) == [Why.CEILING]
    assert sizes(plan) == {1: 3, 2: 0}


def test_a_fragment_that_leaves_takes_up_its_user_s_room_until_it_has_left() -> None:
    leaving = make_fragment(0, RUNNING, ["n0"], noticed=after(-5), job_id=1)
    jobs = (
        of("ann", make_job(leaving, job_id=1)),
        of("ann", make_job(held=3, job_id=2)),
        of("bob", make_job(held=2, job_id=3)),
    )
    seen = make_snapshot(*jobs, nodes=(*busy(1), *make_nodes(6)[1:]))
    plan = plan_for(seen, with_mode(max_nodes_per_user=2))
    starts = Counter(a.fragment.job_id for a in plan.actions if a.verb is Verb.GROW)
    assert starts == {2: 1, 3: 2}


def test_scripts_of_finished_jobs_count_for_the_ceiling_and_end_with_their_lease() -> None:
    still = make_fragment(0, RUNNING, ["n0"], job_id=1, start=after(-900), end=after(60))
    done = replace(still, mark=replace(still.mark, is_finished=True))
    trains = (
        make_fragment(i, RUNNING, [f"n{i}"], job_id=2, start=after(-900), end=after(60))
        for i in (1, 2)
    )
    jobs = (of("ann", make_job(done, job_id=1)), of("ann", make_job(*trains, job_id=2)))
    seen = make_snapshot(*jobs, nodes=busy(3))
    longer = {a.fragment.job_id for a in plan_for(seen).actions if a.end is not None}
    assert longer == {1, 2}
    plan = plan_for(seen, with_mode(max_nodes_per_user=2))
    assert 1 not in {a.fragment.job_id for a in plan.actions if a.end is not None}
    assert any("jobs of ann may have 2 nodes" in line for line in reasons_of(plan, 1))


def test_the_lower_of_user_and_account_counts() -> None:
    jobs = [replace(make_job(held=6, job_id=i), user=f"u{i}", account="ml") for i in (1, 2, 3)]
    jobs.append(replace(make_job(held=6, job_id=4), user="u1", account="phys"))
    seen = make_snapshot(*jobs, nodes=make_nodes(16))
    plan = plan_for(seen, with_mode(max_nodes_per_user=3, max_nodes_per_account=5))
    by_job = sizes(plan)
    assert by_job[1] + by_job[4] == 3
    assert by_job[1] + by_job[2] + by_job[3] == 5


def test_a_word_that_is_no_account_does_not_evade_the_ceiling() -> None:
    jobs = [replace(make_job(held=4, job_id=i), user=f"u{i}") for i in (1, 2)]
    seen = make_snapshot(*jobs, nodes=make_nodes(8))
    assert sum(sizes(plan_for(seen, with_mode(max_nodes_per_account=3))).values()) == 3


@pytest.mark.parametrize(("most", "left"), [(9, 8), (8, 8), (7, 4), (3, 0)])
def test_a_job_with_a_list_of_sizes_asks_for_a_size_that_fits(most: int, left: int) -> None:
    sizes = frozenset({4, 8})
    ask = JobAsk("1", 2, 8, prior(max_nodes=8), held=(8,), usable=(True,), sizes=sizes)
    quota = Quota(Ceiling(most, user="ann"), frozenset({1}), most, room=0)
    (limited,) = capped(Problem((ask,), (NodeClass(8),)), [quota]).jobs
    assert (
        max((n for n in range(9) if limited.may_have(n) and limited.held == (8,)), default=0)
        == left
    )
    assert limited.held == ((8,) if left else (0,))
    assert allocate(Problem((limited,), (NodeClass(8),))).counts == ((left,),)


def test_slots_count_as_the_nodes_that_they_are_of() -> None:
    """A node of 4 GPUs: a ceiling of 2 nodes lets a user have 8 of them."""
    asked = replace(make_request(1, 16), slot=Slot("gpu"))
    nodes = tuple(replace(n, gres=(("gpu", 4),), cpus=8) for n in make_nodes(6))
    jobs = (
        of("ann", make_job(held=16, job_id=1, request=asked)),
        of("bob", make_job(held=16, job_id=2, request=asked)),
    )
    site = replace(ON.site, part_nodes="malleable")
    chosen = replace(with_mode(max_nodes_per_user=2), site=site)
    assert sizes(plan_for(make_snapshot(*jobs, nodes=nodes), chosen)) == {1: 8, 2: 8}


def test_accounts_are_asked_for_where_they_have_a_ceiling() -> None:
    seen = make_snapshot(make_job(held=2), nodes=make_nodes(2))
    assert not needs_charges(Ground(seen, with_mode(max_nodes_per_user=3)))
    assert needs_charges(Ground(seen, with_mode(max_nodes_per_account=3)))


# -- whatever the cluster looks like


CEILINGS = st.fixed_dictionaries(
    {"max_nodes_per_user": st.sampled_from([0, 1, 2, 3, 5]), KEYS[1]: st.sampled_from([0, 2, 4])}
)
USERS = st.lists(st.sampled_from(["ann", "bob"]), min_size=3, max_size=3)
Whose = Callable[[MalleableJob], str]


def look(slurm: FakeSlurm, mode: Mode, users: list[str]) -> tuple[Snapshot, Plan]:
    """A snapshot: jobs 1 and 2 are charged to the same account, job 3 to another."""
    seen = observe(slurm, ["malleable"])
    jobs = (
        replace(job, user=users[job.job_id - 1], account="ml" if job.job_id < 3 else "phys")
        for job in seen.jobs
    )
    seen = replace(seen, jobs=tuple(jobs))
    return seen, plan_for(seen, replace(ON, mode=mode))


def occupied(seen: Snapshot, plan: Plan, whose: Whose, name: str) -> set[str]:
    """The nodes that these jobs' fragments are on, or on their way to, once the plan is written."""
    mine = {job.job_id for job in seen.jobs if whose(job) == name}
    now = (f for job in seen.jobs if job.job_id in mine for f in job.fragments)
    new = (a for a in plan.actions if a.verb is Verb.GROW and a.fragment.job_id in mine)
    there = {n for f in now if f.state in LIVE_STATES for n in f.nodes}
    return there | {n for a in new for n in a.nodes}


@settings(many, max_examples=200)
@given(clusters(), modes(), CEILINGS, USERS)
def test_no_job_grows_above_a_ceiling(
    slurm: FakeSlurm, mode: Mode, ceilings: dict[str, int], users: list[str]
) -> None:
    mode = replace(mode, **ceilings)
    seen, plan = look(slurm, mode, users)
    for name, whose, most in (
        *((n, lambda job: job.user, mode.max_nodes_per_user) for n in ("ann", "bob")),
        *((n, lambda job: job.account, mode.max_nodes_per_account) for n in ("ml", "phys")),
    ):
        mine = {job.job_id for job in seen.jobs if whose(job) == name}
        if most and any(a.verb is Verb.GROW and a.fragment.job_id in mine for a in plan.actions):
            assert len(occupied(seen, plan, whose, name)) <= most


@settings(many, max_examples=100)
@given(clusters(), modes(), CEILINGS, USERS)
def test_planning_again_settles_under_ceilings(
    slurm: FakeSlurm, mode: Mode, ceilings: dict[str, int], users: list[str]
) -> None:
    mode = replace(mode, **ceilings)
    for _ in range(4):
        seen, plan = look(slurm, mode, users)
        assert write(slurm, seen, plan) == []
    _, plan = look(slurm, mode, users)
    assert [a for a in plan.actions if a.verb is not Verb.NOTICE] == []


@settings(many, max_examples=100)
@given(clusters(), modes(), USERS)
def test_a_ceiling_that_no_user_reaches_changes_no_plan(
    slurm: FakeSlurm, mode: Mode, users: list[str]
) -> None:
    high = replace(mode, max_nodes_per_user=100, max_nodes_per_account=100)
    assert look(slurm, high, users)[1] == look(slurm, mode, users)[1]


@settings(many, max_examples=200)
@given(clusters(), st.integers(1, 4))
def test_the_other_user_loses_no_node(slurm: FakeSlurm, most: int) -> None:
    """Jobs 1 and 2 belong to a user with a ceiling. Job 3 belongs to a user below the ceiling."""
    users = ["ann", "ann", "bob"]
    _, free = look(slurm, Mode("on"), users)
    if sizes(free).get(3, 0) <= most:
        _, plan = look(slurm, Mode(max_nodes_per_user=most), users)
        assert min(sizes(free).get(3, 0), most) <= sizes(plan).get(3, 0)


@settings(many, max_examples=200)
@given(clusters(), CEILINGS, USERS)
def test_a_fragment_leaves_for_a_ceiling_only_where_its_user_or_account_is_above_it(
    slurm: FakeSlurm, ceilings: dict[str, int], users: list[str]
) -> None:
    seen, plan = look(slurm, Mode("on", **ceilings), users)
    for action in plan.actions:
        if action.cause is Why.CEILING:
            (job,) = (j for j in seen.jobs if j.job_id == action.fragment.job_id)
            mine = [j for j in seen.jobs if j.user == job.user]
            ours = [j for j in seen.jobs if j.account == job.account]
            pairs = (
                (mine, ceilings["max_nodes_per_user"]),
                (ours, ceilings["max_nodes_per_account"]),
            )
            assert any(most and sum(map(on_nodes, jobs)) > most for jobs, most in pairs)


def on_nodes(job: MalleableJob) -> int:
    return sum(f.size for f in job.fragments if f.state in LIVE_STATES)
