"""Properties of every plan, for any cluster."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from operator import attrgetter

import pytest
from clusters import clusters, fragments, many, modes, write
from hypothesis import given, settings
from hypothesis import strategies as st

from build import make_fragment, make_job, make_nodes, make_request, make_snapshot, no_clock
from fake_slurm import FakeSlurm
from slurm_hooks.model import (
    FragmentState,
    MalleableJob,
    NodeState,
    Plan,
    Snapshot,
    Verb,
    Why,
    by_job,
    may_train,
)
from slurm_hooks.planning.check import Half, check
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.holes import Holes
from slurm_hooks.planning.plan import ending_jobs, make_plan
from slurm_hooks.report.json_data import plan_data
from slurm_hooks.settings.values import Mode, Settings
from slurm_hooks.slurm.gateway import observe

SETTINGS = Settings(mode=Mode("on"))


def look(slurm: FakeSlurm, mode: Mode = SETTINGS.mode) -> tuple[Snapshot, Plan]:
    seen = observe(slurm, ["malleable"])
    return seen, make_plan(seen, replace(SETTINGS, mode=mode), no_clock)


@many
@given(clusters(with_cores=True), st.data())
def test_a_guarded_plan_counts_the_nodes_that_are_free_by_then(
    slurm: FakeSlurm, data: st.DataObject
) -> None:
    seen, plan = look(slurm)
    given_out = sorted(n for a in plan.actions if a.verb is Verb.GROW for n in a.nodes)
    lost = data.draw(st.sets(st.sampled_from(given_out)) if given_out else st.just(set()))
    nodes = (replace(n, state=NodeState.BUSY) if n.name in lost else n for n in seen.nodes)
    left = check(plan, Half.FIRST, seen, replace(seen, nodes=tuple(nodes)), SETTINGS)
    assert sum(i.nodes for i in left.idle) == sum(i.nodes for i in plan.idle) - len(lost)
    starting = sum(i.nodes for i in left.idle if i.reason is Why.STARTING)
    assert starting == sum(len(a.nodes) for a in left.actions if a.verb is Verb.GROW)
    refused = sum(len(a.nodes) for a in plan.actions if a.verb is Verb.GROW) - starting
    shrunk = (b.nodes_planned - a.nodes_planned for b, a in zip(plan.jobs, left.jobs))
    assert sum(shrunk) == refused


@st.composite
def gangs(draw: st.DrawFn) -> Snapshot:
    """A gang with room to start or grow. Fragments of it may be missing, down to none."""
    low = draw(st.integers(1, 4))
    request = make_request(low, low + draw(st.integers(0, 2)))
    runs = draw(st.integers(0, request.max_nodes))
    some = (
        make_fragment(i, FragmentState.RUNNING, [f"n{i + 1}"], request=request)
        if i < runs
        else make_fragment(i, request=request)
        for i in range(request.max_nodes)
    )
    nodes = make_nodes(request.max_nodes + 1)
    busy = (replace(n, state=NodeState.BUSY) if at < runs else n for at, n in enumerate(nodes))
    return make_snapshot(make_job(*some, request=request), nodes=busy)


@settings(many, max_examples=300)
@given(gangs(), st.data())
def test_a_checked_plan_starts_no_gang_below_its_minimum_and_takes_no_node_that_is_taken(
    seen: Snapshot, data: st.DataObject
) -> None:
    """Between the readings nodes are taken, and fragments end, vanish or are held."""
    plan = make_plan(seen, SETTINGS, no_clock)
    before = by_job(plan.actions)
    given_out = sorted(n for a in plan.actions if a.verb is Verb.GROW for n in a.nodes)
    taken = data.draw(st.sets(st.sampled_from(given_out)) if given_out else st.just(set()))
    nodes = (replace(n, state=NodeState.BUSY) if n.name in taken else n for n in seen.nodes)
    newest = replace(seen, nodes=tuple(nodes))
    plan = check(plan, Half.FIRST, seen, newest, SETTINGS)
    fates = st.sampled_from([""] * 6 + ["ended", "held", "gone"])
    jobs = tuple(later(job, [data.draw(fates) for _ in job.fragments]) for job in seen.jobs)
    fresh = replace(newest, jobs=tuple(job for job in jobs if job.fragments))
    plan = check(plan, Half.SECOND, newest, fresh, SETTINGS)
    was, now = ({job.job_id: job for job in each.jobs} for each in (seen, fresh))
    for job_id, intents in by_job(plan.actions).items():
        grown = {n for a in intents if a.verb is Verb.GROW for n in a.nodes}
        assert not grown & taken
        if grown and may_train(was[job_id], before[job_id]):
            assert may_train(now[job_id], intents)


def later(job: MalleableJob, fates: list[str]) -> MalleableJob:
    """The job after each of its fragments has met its fate."""
    changed = {
        "ended": {"state": FragmentState.FAILED, "nodes": frozenset()},
        "held": {"reason": "JobHeldAdmin", "priority": 0},
    }
    fragments = (replace(f, **changed.get(fate, {})) for f, fate in zip(job.fragments, fates))
    left = tuple(f for f, fate in zip(fragments, fates) if fate != "gone")
    return replace(job, fragments=left)


@many
@given(clusters(with_cores=True))
def test_grown_nodes_are_free_and_given_once(slurm: FakeSlurm) -> None:
    seen, plan = look(slurm)
    states = {node.name: node.state for node in seen.nodes}
    on_the_way = (FragmentState.RUNNING, FragmentState.PENDING, FragmentState.ENDING)
    taken = {n for f in fragments(seen).values() if f.state in on_the_way for n in f.nodes}
    given_out = Counter(n for a in plan.actions if a.verb is Verb.GROW for n in a.nodes)
    assert all(count == 1 for count in given_out.values())
    for name in given_out:
        assert states[name] is NodeState.FREE
        assert name not in taken


@many
@given(clusters(with_cores=True))
def test_a_grow_is_whole_and_of_a_held_fragment(slurm: FakeSlurm) -> None:
    seen, plan = look(slurm)
    requests = {job.job_id: job.request for job in seen.jobs}
    for action in plan.actions:
        if action.verb is Verb.GROW:
            assert fragments(seen)[action.fragment].state is FragmentState.HELD
            assert len(action.nodes) == requests[action.fragment.job_id].unit
            assert action.limit >= timedelta(minutes=1)
            assert action.mark is not None
            assert action.mark.noticed is None
            assert action.mark.released == seen.now


@many
@given(clusters(with_cores=True))
def test_every_lease_given_ends_before_its_hole(slurm: FakeSlurm) -> None:
    """Fragments that lose little stay for planned starts: by their own report, or as pool
    workers.
    """
    seen, plan = look(slurm)
    holes = Holes(Ground(seen, SETTINGS))
    cheap = {job.job_id for job in seen.jobs if not job.way.works_as_one or job.loss_s is not None}
    for action in plan.actions:
        if action.verb is Verb.GROW:
            end, nodes = seen.now + action.limit, action.nodes
        elif action.end is not None:
            fragment = fragments(seen)[action.fragment]
            if fragment.end is not None and action.end < fragment.end:
                continue  # cut
            end, nodes = action.end, fragment.nodes
        else:
            continue
        is_cheap = action.fragment.job_id in cheap
        past = attrgetter("until" if action.verb is Verb.GROW else "wall")
        for name in nodes:
            latest = past(holes[name]) if is_cheap else holes[name].latest
            assert latest is None or end <= latest


@settings(many, max_examples=300)
@given(clusters(with_cores=True), st.just(SETTINGS.mode) | modes())
def test_planned_sizes_are_allowed(slurm: FakeSlurm, mode: Mode) -> None:
    """A job that grows, or shrinks for a better use, has from MIN to MAX nodes, or only its core.

    A job in which no fragment has ever joined a round is kept to 1 fragment.
    """
    seen, plan = look(slurm, mode)
    sizes = {job.job_id: job.nodes_planned for job in plan.jobs}
    grown = {a.fragment.job_id for a in plan.actions if a.verb is Verb.GROW}
    thinned = {
        a.fragment.job_id
        for a in plan.actions
        if a.cause is Why.BETTER_USE and (a.verb is Verb.NOTICE or a.is_held)
    }
    for job in seen.jobs:
        least = job.request.min_nodes if job.has_agent else job.request.unit
        least = least if job.way.needs_min else 0
        size = sizes[job.job_id]
        if job.job_id in grown:
            assert least <= size <= job.request.max_nodes
        elif job.job_id in thinned:
            kept = sum(f.size for f in job.core if f.state is FragmentState.RUNNING)
            assert size == kept or least <= size <= job.request.max_nodes


@settings(many, max_examples=300)
@given(clusters(with_cores=True), st.data())
def test_a_gang_is_left_with_an_allowed_size(slurm: FakeSlurm, data: st.DataObject) -> None:
    """Or it has too few nodes to train, until its other fragments are back."""
    seen = observe(slurm, ["malleable"])
    gangs = (job for job in seen.jobs if job.way.needs_min)
    allowed = {j.job_id: data.draw(st.frozensets(sizes_of(j), min_size=1)) for j in gangs}
    for job in seen.jobs:  # job_submit takes no other core
        if job.job_id in allowed and job.request.core >= job.request.min_nodes:
            allowed[job.job_id] |= {job.request.core}
    jobs = (with_sizes(job, allowed.get(job.job_id, frozenset())) for job in seen.jobs)
    plan = make_plan(replace(seen, jobs=tuple(jobs)), SETTINGS, no_clock)
    sizes = {job.job_id: job.nodes_planned for job in plan.jobs}
    over = ending_jobs(plan)
    for job in seen.jobs:
        if job.job_id in allowed.keys() - over and job.has_agent:
            some, size = allowed[job.job_id], sizes[job.job_id]
            assert size in some or size < min(some)


@many
@given(clusters(with_cores=True))
def test_a_request_that_names_every_size_changes_no_plan(slurm: FakeSlurm) -> None:
    seen = observe(slurm, ["malleable"])
    every = (with_sizes(job, every_size(job)) for job in seen.jobs)
    plan = make_plan(seen, SETTINGS, no_clock)
    named = make_plan(replace(seen, jobs=tuple(every)), SETTINGS, no_clock)
    assert named.solve.value == pytest.approx(plan.solve.value)
    assert named.solve.bound == pytest.approx(plan.solve.bound)


def every_size(job: MalleableJob) -> frozenset[int]:
    """All sizes of its request, if it is a gang."""
    low, high = job.request.min_nodes, job.request.max_nodes
    return frozenset(range(low, high + 1, job.request.unit) if job.way.needs_min else ())


def sizes_of(job: MalleableJob) -> st.SearchStrategy[int]:
    return st.sampled_from(sorted(every_size(job)))


def with_sizes(job: MalleableJob, allowed: frozenset[int]) -> MalleableJob:
    request = replace(job.request, allowed=allowed)
    changed = (replace(f, mark=replace(f.mark, request=request)) for f in job.fragments)
    return replace(job, request=request, fragments=tuple(changed))


@settings(many, max_examples=300)
@given(clusters(with_cores=True))
def test_a_pool_has_at_most_its_wish(slurm: FakeSlurm) -> None:
    seen, plan = look(slurm)
    sizes = {job.job_id: job.nodes_planned for job in plan.jobs}
    over = ending_jobs(plan)
    for job in seen.jobs:
        wish = job.wish(seen.now)
        if wish is None or job.job_id in over:
            continue
        core = sum(len(f.nodes) for f in job.core)  # is never taken
        assert sizes[job.job_id] <= max(wish.nodes, core)


@settings(many, max_examples=300)
@given(clusters(with_cores=True), st.just(SETTINGS.mode) | modes())
def test_a_core_that_waits_or_runs_is_only_noted(slurm: FakeSlurm, mode: Mode) -> None:
    """Until its job ends. A held core is queued, and an ended core is put back."""
    seen, plan = look(slurm, mode)
    over = ending_jobs(plan)
    cores = {f.id: f for job in seen.jobs if job.job_id not in over for f in job.core}
    mine = [a for a in plan.actions if a.fragment in cores]
    for action in mine:
        state = cores[action.fragment].state
        if state in (FragmentState.PENDING, FragmentState.RUNNING):
            assert action.parts == ("set mark",)
        elif state is FragmentState.HELD:
            assert action.verb in (Verb.STAY, Verb.QUEUE)
            assert not action.is_moved
        else:
            assert action.verb is Verb.PUT_BACK


@many
@given(clusters(with_cores=True))
def test_no_job_grows_outside_its_lane(slurm: FakeSlurm) -> None:
    seen, plan = look(slurm)
    for action in plan.actions:
        request = fragments(seen)[action.fragment].mark.request
        if action.verb is Verb.GROW and request.lane:
            assert fragments(seen)[action.fragment].lane == request.lane


@many
@given(clusters(with_cores=True))
def test_unknown_states_are_left_alone(slurm: FakeSlurm) -> None:
    seen, plan = look(slurm)
    odd = {f.id for f in fragments(seen).values() if f.state is FragmentState.UNKNOWN}
    running = {f.id for f in fragments(seen).values() if f.state is FragmentState.ENDING}
    touched = {
        a.fragment
        for a in plan.actions
        if a.verb is not Verb.STAY or a.is_held or a.end is not None
    }
    assert not touched & (odd | running)


@many
@given(clusters(with_cores=True))
def test_repeated_plans_settle_and_slurm_refuses_no_command(slurm: FakeSlurm) -> None:
    """At the same moment a third plan repeats only notices.

    The second plan may use nodes that the first put back to held. The third has no news.
    """
    for _ in range(4):
        seen, plan = look(slurm)
        assert write(slurm, seen, plan) == []
    _, plan = look(slurm)
    assert [a for a in plan.actions if a.verb is not Verb.NOTICE] == []


@many
@given(clusters(with_cores=True), modes())
def test_all_parts_of_a_plan_can_be_printed(slurm: FakeSlurm, mode: Mode) -> None:
    seen, plan = look(slurm, mode)
    data = plan_data(plan, seen.now)
    json.dumps(data)
    entries = [*data["notes"], *(reason for job in data["jobs"] for reason in job["reasons"])]
    assert [each for each in entries if each["text"] == each["why"]] == []  # no sentence fits it
