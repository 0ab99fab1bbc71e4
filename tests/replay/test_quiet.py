"""A tick is left out only where it would have no effect. Nodes and work are conserved."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from replay.machines import images
from replay.worlds import Asked, settings_for, world
from slurm_hooks.allocation.objectives import speedup
from slurm_hooks.model import Curve
from slurm_hooks.replay import scenario
from slurm_hooks.replay.costs import Costs, Rescale
from slurm_hooks.replay.grain import Grain
from slurm_hooks.replay.record import Interval, Record
from slurm_hooks.replay.work import kind
from slurm_hooks.replay.world.planners import Shipped
from slurm_hooks.replay.world.world import World
from slurm_hooks.settings.values import Settings

LONG_S = 3_000.0
CURVE = Curve(((0, 0.0), (1, 10.0), (2, 18.0), (4, 30.0)))
KINDS = (
    kind("toy", CURVE, (1, 4), 1e9),
    kind("short", CURVE, (1, 2), 5_000.0),
    kind("gang", CURVE, (3, 4), 40_000.0),
    replace(kind("cheap", CURVE, (2, 3), 20_000.0), checkpoint_s=5.0),
)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Up to five nodes with up to three holes each."""
    intervals = []
    moment = st.one_of(st.integers(0, 100).map(lambda n: 30.0 * n), st.floats(0, LONG_S))
    for node in range(draw(st.integers(1, 5))):
        cuts = sorted(draw(st.lists(moment, min_size=2, max_size=6, unique=True)))
        for start, end in zip(cuts[::2], cuts[1::2]):
            between = st.floats(start, end, exclude_max=True)
            known = draw(st.one_of(st.sampled_from([math.inf, -1.0]), between))
            intervals.append(Interval(node, start, end, known))
    return Record(tuple(intervals), 5, 0.0, LONG_S)


@st.composite
def chosen(draw: st.DrawFn) -> tuple[Settings, Costs]:
    """Settings, and the costs of changes."""
    rescale = draw(st.sampled_from([Rescale(18.0, 12.0), Rescale(0.0, 0.0)]))
    some = settings_for(rescale)
    plan = replace(
        some.plan,
        patience_s=draw(st.sampled_from([0.0, 400.0, 3_600.0])),
        horizon_s=draw(st.sampled_from([45.0, 120.0, 600.0])),
        snooze_s=draw(st.sampled_from([0.0, 60.0, 200.0])),
        headroom_nodes=draw(st.sampled_from([0, 0, 1])),
    )
    lease = replace(some.lease, length_s=draw(st.sampled_from([200, 600])))
    costs = Costs(rescale, 2.0, draw(st.sampled_from([0.0, 40.0, 600.0])), draw(st.booleans()))
    return replace(some, plan=plan, lease=lease), costs


def figures(world: World) -> tuple[object, ...]:
    """All figures of a run except planning times."""
    outcome = world.run()
    known = (
        vars(outcome.ledger),
        outcome.interruptions,
        outcome.lost,
        outcome.rescales,
        outcome.job_s,
    )
    sizes = [(member.number, sorted(member.job.nodes)) for member in world.members.values()]
    return (*known, outcome.samples, sizes)


@settings(max_examples=40, deadline=None)
@given(records(), chosen(), st.lists(st.sampled_from(KINDS), min_size=1), st.integers(1, 3))
def test_no_tick_with_an_effect_is_left_out(record, choices, parts, jobs):
    some, costs = choices
    quick = world(record, jobs, parts, costs, some, Shipped(speedup))
    slow = world(record, jobs, parts, costs, some, Asked(speedup))
    assert figures(quick) == figures(slow)
    assert len(quick.outcome.solve_s) <= len(slow.outcome.solve_s) == quick.outcome.ticks


@st.composite
def shared_records(draw: st.DrawFn) -> Record:
    """Two nodes of three slots with up to three holes each."""
    intervals = []
    moment = st.one_of(st.integers(0, 100).map(lambda n: 30.0 * n), st.floats(0, LONG_S))
    for node in (0, 0, 0, 1, 1, 1):
        cuts = sorted(draw(st.lists(moment, max_size=6, unique=True)))
        intervals += [Interval(node, *cut) for cut in zip(cuts[::2], cuts[1::2])]
    return Record(tuple(intervals), 2, 0.0, LONG_S, slots=3)


SMALL = (kind("short", CURVE, (1, 4), 5_000.0), kind("small", CURVE, (1, 2), 1e9))
BOTH = Record(
    (Interval(0, 0.0, LONG_S), Interval(0, 0.0, LONG_S), *[Interval(1, 600.0, LONG_S)] * 3),
    *(2, 0.0, LONG_S),
    slots=3,
)
USUAL = (settings_for(Rescale(18.0, 12.0)), Costs(Rescale(18.0, 12.0), 2.0, 600.0))


@settings(max_examples=60, deadline=None)
@given(
    *(shared_records(), chosen(), st.lists(st.sampled_from(SMALL), min_size=1)),
    *(st.integers(1, 3), st.integers(0, 2), st.integers(0, 2)),
)
@example(BOTH, USUAL, [SMALL[1]], 1, 1, 0)  # the part leaves when node 1 is idle for a tick
def test_nor_where_jobs_have_parts_of_nodes(record, choices, parts, jobs, unit, headroom):
    some, costs = choices
    some = scenario.with_parts(
        replace(some, plan=replace(some.plan, headroom_gpus=headroom)), Grain(3, unit)
    )
    parts = [part for part in parts if part.max_nodes >= (unit or 3)] or [SMALL[0]]
    quick = world(record, jobs, parts, costs, some, Shipped(speedup), unit=unit)
    slow = world(record, jobs, parts, costs, some, Asked(speedup), unit=unit)
    assert figures(quick) == figures(slow)


class Watched(Shipped):
    """The shipped planner. It records the nodes of each job at each tick."""

    world: World
    record: Record

    def plan(self, snapshot, some):
        at_s = (snapshot.now - snapshot.jobs[0].submitted).total_seconds()
        at_s += self.world.members[snapshot.jobs[0].job_id].entered_s
        held = [name for job in snapshot.jobs for f in job.active for name in f.nodes]
        assert len(set(held)) == len(held)
        idle = {f"n{i.node}" for i in self.record.intervals if i.start_s <= at_s < i.end_s + 1e-3}
        assert set(held) <= idle
        return super().plan(snapshot, some)


@settings(max_examples=15, deadline=None)
@given(records(), chosen(), st.integers(1, 3))
def test_nodes_and_work_are_conserved(record, choices, jobs):
    some, costs = choices
    watched = Watched(speedup)
    part = kind("short", CURVE, (1, 2), 5_000.0)
    played = world(record, jobs, [part], costs, some, watched)
    object.__setattr__(watched, "world", played)
    object.__setattr__(watched, "record", record)
    outcome = played.run()
    done = sum(map(len, outcome.job_s.values()))
    under_way = sum(5_000.0 - member.left for member in played.members.values())
    assert images(outcome) == pytest.approx(done * 5_000.0 + under_way)
    assert outcome.ledger.used_node_s <= record.idle_node_s + 1e-6


@settings(max_examples=40)
@given(
    idle=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    jobs=st.integers(1, 4),
    unit=st.sampled_from([0, 1, 2]),
)
@example(idle=[2], jobs=2, unit=1)
def test_nothing_changes_hands_on_a_machine_that_stays_idle(idle, jobs, unit):
    """With the shipped planner, within the hour in which no job has waited too long."""
    slots = [Interval(node, 0.0, LONG_S) for node, count in enumerate(idle) for _ in range(count)]
    some = scenario.with_parts(settings_for(Rescale(18.0, 12.0)), Grain(4, unit))
    wide = kind("wide", Curve(((0, 0.0), (16, 160.0))), (unit or 4, 16), 1e9)
    record = Record(tuple(slots), len(idle), 0.0, LONG_S, slots=4)
    there = world(record, jobs, [wide], settings=some, unit=unit)
    there.run()
    changes = {moment for member in there.members.values() for moment in member.noted}
    assert not [moment for moment in changes if moment > 200]


def test_nothing_changes_hands_once_parts_of_the_same_size_have_a_node_alone():
    """Such parts need no resize. They were in the way there, left, and came back at once."""
    slots = (Interval(0, 0.0, 600.0), Interval(2, 0.0, 600.0), *[Interval(1, 600.0, LONG_S)] * 2)
    some = settings_for(Rescale(18.0, 12.0))
    some = replace(some, plan=replace(some.plan, headroom_gpus=0))
    one = kind("one", Curve(((0, 0.0), (1, 10.0))), (1, 1), 1e9)
    record = Record(slots, 3, 0.0, LONG_S, slots=2)
    there = world(record, 2, [one], settings=scenario.with_parts(some, Grain(2, 1)), unit=1)
    assert there.run().rescales == 4
