"""Plan after plan for a small machine whose nodes are partly used."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Optional

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_hooks.model import (
    Curve,
    Fragment,
    FragmentState,
    Limit,
    MalleableJob,
    Node,
    NodeState,
    Plan,
    Resources,
    Said,
    Slot,
    Snapshot,
    Terms,
    Verb,
)
from slurm_hooks.model.resources import NO_RESOURCES
from slurm_hooks.planning.check import Half, check
from slurm_hooks.planning.plan import make_plan
from slurm_hooks.settings.values import Planning, Settings, Site
from tests.build import NOW, make_fragment, make_request, make_snapshot, no_clock, span

SETTINGS = Settings(
    site=Site(partitions=("malleable", "parts"), part_nodes="parts"),
    plan=Planning(headroom_gpus=0, snooze_s=0),
)
SLOTS = (Slot("gpu"), Slot("gpu", cpus=2, memory_mib=500), Slot(cpus=3, memory_mib=100), None)
TICK = span(SETTINGS.tick.every_s)


@dataclass(frozen=True)
class World:
    """The nodes with the use of other jobs on each, and the jobs."""

    gpus: tuple[int, ...]
    others: tuple[Resources, ...]
    jobs: tuple[MalleableJob, ...]

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(map(self._node, range(len(self.gpus))))

    def _node(self, at: int) -> Node:
        name, total = f"n{at}", self.gpus[at]
        ours = (f for job in self.jobs for f in job.active if name in f.nodes)
        used, is_all = self.others[at], False
        for fragment in ours:
            is_all = is_all or fragment.mark.request.slot is None
            used += fragment.asks
        state = NodeState.FREE if used == NO_RESOURCES else NodeState.SHARED
        state = NodeState.BUSY if is_all or used.cpus >= 4 * total else state
        lanes = frozenset({"malleable", "parts", "main"})
        gres = (("gpu", total),)
        return Node(name, state, lanes, frozenset(), 4 * total, 1000 * total, gres, used=used)

    @property
    def seen(self) -> Snapshot:
        return make_snapshot(*self.jobs, nodes=self.nodes)

    def after(self, plan: Plan) -> World:
        """The world after Slurm has written the plan."""
        intents = {i.fragment: i for i in plan.actions}
        jobs = []
        for job in self.jobs:
            fragments = []
            for fragment in job.fragments:
                intent = intents.get(fragment.id)
                if intent is not None and intent.verb is Verb.GROW:
                    fragments.append(started(fragment, intent))
                elif intent is not None and (intent.verb is not Verb.STAY or intent.is_held):
                    fragments.append(replace(fragment, state=FragmentState.HELD, nodes=frozenset()))
                else:
                    fragments.append(fragment)
            jobs.append(replace(job, fragments=tuple(fragments)))
        return replace(self, jobs=tuple(jobs))


def started(fragment: Fragment, intent: object) -> Fragment:
    mark, nodes = intent.mark, intent.nodes  # type: ignore[attr-defined]
    return replace(
        fragment,
        state=FragmentState.RUNNING,
        nodes=nodes,
        mark=replace(mark, noticed=None),
        asks=intent.asks if mark.slots else fragment.asks,  # type: ignore[attr-defined]
        start=NOW,
        end=NOW + span(600),
        limit=span(600),
        said=Said.TRAINED,
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    gpus = draw(st.lists(st.sampled_from((2, 4, 4)), min_size=1, max_size=6))
    others = []
    for count in gpus:
        taken = draw(st.integers(0, count))
        cores = draw(st.integers(taken, 4 * count)) if taken else 0
        others.append(Resources(cores, 900 * taken, (("gpu", taken),)) if taken else NO_RESOURCES)
    jobs = [draw(some_job(job_id)) for job_id in range(1, draw(st.integers(1, 4)) + 1)]
    return World(tuple(gpus), tuple(others), tuple(jobs))


@st.composite
def some_job(draw: st.DrawFn, job_id: int) -> MalleableJob:
    slot, unit = draw(st.sampled_from(SLOTS)), draw(st.sampled_from((1, 1, 2)))
    low, high = unit * draw(st.integers(1, 3)), unit * draw(st.integers(3, 6))
    engine = draw(st.sampled_from(("torchrun", "pool")))
    asked = replace(make_request(low, high, unit), slot=slot, engine=engine)
    held = (make_fragment(i, job_id=job_id, request=asked) for i in range(high // unit))
    lane = "malleable" if slot is None else "parts"
    return MalleableJob(job_id, "ada", lane, asked, tuple(held))


PROPERTY = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def check_nodes(world: World) -> None:
    """Check that no node is overcommitted."""
    for node in world.nodes:
        assert node.used.fits(node.total), node
        whole = [j for j in world.jobs for f in j.active if node.name in f.nodes and not f.asks]
        if any(j.request.slot is None and node.name in j.nodes for j in world.jobs):
            users = [f for j in world.jobs for f in j.active if node.name in f.nodes]
            assert len(users) == 1, (node, whole)
    for job in world.jobs:
        on = Counter(name for f in job.active for name in f.nodes)
        if job.way.works_as_one:
            assert not on or max(on.values()) == 1
        assert job.size <= job.request.max_nodes
        assert job.size % job.request.unit == 0
        assert not (job.size and job.request.allowed) or job.request.allows(job.size)
        for fragment in job.active:
            assert fragment.size % job.request.unit == 0


@PROPERTY
@given(worlds())
def test_no_plan_gives_more_of_a_node_than_there_is(world: World) -> None:
    for _ in range(3):
        plan = make_plan(world.seen, SETTINGS, no_clock)
        assert check(plan, Half.FIRST, world.seen, world.seen, SETTINGS) == plan
        world = world.after(plan)
        check_nodes(world)


@PROPERTY
@given(worlds(), st.data())
def test_parts_of_a_gang_make_an_allowed_size(world: World, data: st.DataObject) -> None:
    world = replace(world, jobs=tuple(with_sizes(job, data) for job in world.jobs))
    for _ in range(3):
        world = world.after(make_plan(world.seen, SETTINGS, no_clock))
        check_nodes(world)


def with_sizes(job: MalleableJob, data: st.DataObject) -> MalleableJob:
    """A gang that may have some sizes only."""
    asked = job.request
    if not job.way.works_as_one:
        return job
    every = st.sampled_from(range(asked.min_nodes, asked.max_nodes + 1, asked.unit))
    asked = replace(asked, allowed=data.draw(st.frozensets(every, min_size=1)))
    fragments = (replace(f, mark=replace(f.mark, request=asked)) for f in job.fragments)
    return replace(job, request=asked, fragments=tuple(fragments))


@PROPERTY
@given(
    worlds(),
    st.sampled_from((0, 0, 1, 2)),
    st.sampled_from((None, 0.0, 0.02, 0.1, 0.3)),
    st.sampled_from((0, 0, 1, 2)),
)
def test_plans_come_to_rest_while_nothing_changes(
    world: World, most: int, serial: Optional[float], headroom: int
) -> None:
    """Under a limit of a user or none, with or without known curves and nodes left to others."""
    chosen = with_headroom(headroom)
    limits = (Limit("spare", "MaxTRESPU", "gres/gpu", 4 * most),) if most else ()
    terms = tuple(Terms(name, limits=limits) for name in SETTINGS.site.partitions)
    curves = {} if serial is None else {job.job_id: amdahl(serial) for job in world.jobs}

    def plan() -> Plan:
        return make_plan(replace(world.seen, curves=curves, terms=terms), chosen, no_clock)

    for _ in range(8):
        world = world.after(plan())
    assert not [i for i in plan().actions if i.verb is not Verb.STAY]


def with_headroom(nodes: int) -> Settings:
    return replace(SETTINGS, plan=replace(SETTINGS.plan, headroom_nodes=nodes))


@PROPERTY
@given(worlds(), st.integers(1, 3))
def test_idle_nodes_of_the_headroom_stay_idle(world: World, headroom: int) -> None:
    before = sum(node.state is NodeState.FREE for node in world.nodes)
    for _ in range(3):
        world = world.after(make_plan(world.seen, with_headroom(headroom), no_clock))
    idle = sum(node.state is NodeState.FREE for node in world.nodes)
    assert idle >= min(before, headroom)


def amdahl(serial: float) -> Curve:
    return Curve(((0, 0.0), *((n, n / (1 + serial * (n - 1))) for n in range(1, 7))))


@PROPERTY
@given(worlds())
def test_no_part_beside_others_starts_while_a_node_stays_idle(world: World) -> None:
    plan = make_plan(world.seen, SETTINGS, no_clock)
    after = world.after(plan)
    idle = [node for node in after.nodes if node.state is NodeState.FREE]
    parts = {
        n for i in plan.actions if i.verb is Verb.GROW and i.mark and i.mark.slots for n in i.nodes
    }
    shared = {f"n{at}" for at, used in enumerate(world.others) if used != NO_RESOURCES}
    assert not (idle and parts & shared)


@PROPERTY
@given(worlds())
def test_a_part_on_a_node_without_other_jobs_leaves_no_room_for_another_job(world: World) -> None:
    plan = make_plan(world.seen, SETTINGS, no_clock)
    begun = {n for i in plan.actions if i.verb is Verb.GROW for n in i.nodes}
    alone = {f"n{at}" for at, used in enumerate(world.others) if used == NO_RESOURCES}
    for node in world.after(plan).nodes:
        if node.name in begun & alone and node.state is NodeState.SHARED:
            assert not (node.free.cpus and node.free.memory_mib), node
