"""Nodes whose GPUs become idle in turn, and jobs that have some of these GPUs."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.logs import SCALING, write
from replay.machines import images
from replay.worlds import SIX_FOUR_COSTS, world
from slurm_hooks.allocation.objectives import speedup
from slurm_hooks.cli import main
from slurm_hooks.errors import UsageError
from slurm_hooks.model import Curve, FragmentState, Intent, NodeState, Plan, Snapshot, Verb, Why
from slurm_hooks.replay.grain import Grain
from slurm_hooks.replay.logs.log_lines import BadLog, Log
from slurm_hooks.replay.logs.slots_csv import read_slots
from slurm_hooks.replay.record import Interval, Record
from slurm_hooks.replay.work import Kind, Queue, kind
from slurm_hooks.replay.world.planners import Shipped
from slurm_hooks.settings.values import Settings

HEAD = "node,slot,idle_from_s,idle_to_s\n"
SLOTS = HEAD + "a,0,0,300\na,1,100,200\nb,0,0,100\nb,1,0,100\n"
NO_COSTS = replace(SIX_FOUR_COSTS, latency_s=1.0)


def toy(most: int = 8, images: float = 1e9) -> Kind:
    """10 images/s a GPU."""
    return kind("toy", Curve(((0, 0.0), (most, 10.0 * most))), (1, most), images)


def record(*slots: tuple[int, float, float], of: int = 2, to_s: float = 600.0) -> Record:
    """Nodes of so many slots each, of which these are idle."""
    intervals = tuple(Interval(node, start, end) for node, start, end in slots)
    return Record(intervals, 1 + max(node for node, _, _ in slots), 0.0, to_s, slots=of)


@dataclass(frozen=True)
class Greedy(Shipped):
    """Gives all free GPUs of each node to an element of each job in turn, and records the shown
    nodes.

    An element that is named in `leaving` is asked to leave at that tick. An element `has_memory` if
    it gets all of its node.
    """

    seen: list[Snapshot] = field(default_factory=list)
    leaving: dict[int, int] = field(default_factory=dict)
    has_memory: bool = False

    @property
    def asks_always(self) -> bool:
        return True

    def plan(self, snapshot: Snapshot, settings: Settings) -> Plan:
        self.seen.append(snapshot)
        going = [
            Intent(f.id, Why.ENDED, Verb.NOTICE)
            for job in snapshot.jobs
            for f in job.active
            if self.leaving.get(len(self.seen)) == f.id.index
        ]
        rest = {
            job.job_id: [f for f in job.fragments if f.state is FragmentState.HELD]
            for job in snapshot.jobs
        }
        grows = []
        for at, node in enumerate(n for n in snapshot.nodes if n.free.gpus):
            job = snapshot.jobs[at % len(snapshot.jobs)]
            assert job.request.slot is not None
            slots = node.free.gpus // job.request.unit * job.request.unit
            if not slots or not rest[job.job_id]:
                continue
            asks = job.request.slot.on(node).times(slots)
            fragment = rest[job.job_id].pop(0)
            grows.append(
                Intent(
                    fragment.id,
                    Why.ENDED,
                    Verb.GROW,
                    mark=replace(fragment.mark, slots=slots),
                    nodes=frozenset([node.name]),
                    limit=timedelta(hours=5),
                    asks=replace(asks, memory_mib=node.total.memory_mib)
                    if self.has_memory
                    else asks,
                    is_resized=True,
                )
            )
        return Plan(actions=(*going, *grows))


def test_slots_of_nodes_are_read(tmp_path):
    read = read_slots(Log(write(tmp_path / "slots.csv.gz", SLOTS)))
    assert (read.nodes, read.slots, read.to_s) == (2, 2, 300.0)
    assert read.idle_node_s == 600
    assert Counter(i.node for i in read.intervals) == {0: 2, 1: 2}
    assert read.notes == ("each node has 2 slots, as the highest slot of the log says",)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a,1,5", "3 fields"),
        ("a,x,5,6", "slot 'x' is not a number"),
        ("a,-1,5,6", "slot -1 is not one of"),
        ("a,99999,5,6", "slot 99999 is not one of"),
        ("a,1,9,5", "is not an interval"),
        ("a,1,nan,5", "not a finite number"),
        ("a,1,150,280", "slot 1 of a is idle already"),
    ],
)
def test_a_bad_line_is_reported_with_its_number(tmp_path, line, said):
    path = write(tmp_path / "slots.csv", f"{SLOTS}{line}\n")
    with pytest.raises(BadLog, match=f"line 6: .*{said}"):
        read_slots(Log(path))
    assert read_slots(Log(path, skip_bad=True)).skipped == 1


def test_a_file_without_slots_is_refused(tmp_path):
    with pytest.raises(BadLog, match="no idle interval"):
        read_slots(Log(write(tmp_path / "slots.csv", HEAD)))


def test_the_planner_sees_the_free_part_of_each_node():
    """Node 0 has an idle GPU and node 1 two. Each is taken whole by an element 1 s after the tick,
    and at 60 s the second GPU of node 0 is there."""
    greedy = Greedy(speedup)
    machine = world(
        record((0, 0, 600), (0, 40, 600), (1, 0, 600), (1, 0, 600)),
        parts=[toy()],
        costs=NO_COSTS,
        planner=greedy,
        unit=1,
    )
    machine.run()
    first, second, third, *_ = greedy.seen
    assert [node.state for node in first.nodes] == [NodeState.SHARED, NodeState.FREE]
    assert [(n.total.gpus, n.free.gpus) for n in first.nodes] == [(2, 1), (2, 2)]
    assert [n.idle_since is None for n in first.nodes] == [True, False]
    assert [node.state for node in second.nodes] == [NodeState.BUSY, NodeState.BUSY]
    assert [node.state for node in third.nodes] == [NodeState.SHARED, NodeState.BUSY]
    (job,) = second.jobs
    assert [(f.size, f.asks.gpus) for f in job.active] == [(1, 1), (2, 2)]
    assert job.request.slot is not None
    assert (job.request.min_nodes, job.request.max_nodes, job.request.unit) == (1, 8, 1)


def test_work_and_time_are_counted_in_gpus():
    outcome = world(
        record((0, 0, 600), (1, 0, 600), (1, 0, 600)),
        parts=[toy()],
        costs=NO_COSTS,
        planner=Greedy(speedup),
        unit=1,
    ).run()
    assert outcome.ledger.used_node_s == 3 * 599
    assert images(outcome) == pytest.approx(3 * (599 - 6) * 10)
    assert outcome.interruptions == 0


def test_a_gpu_that_others_take_ends_the_whole_fragment_there_and_no_other():
    greedy = Greedy(speedup)
    machine = world(
        record((0, 0, 600), (0, 0, 310), (1, 0, 600)),
        parts=[toy()],
        costs=NO_COSTS,
        planner=greedy,
        unit=1,
    )
    outcome = machine.run()
    assert outcome.lost == [(310.0, 0)]
    assert outcome.ledger.used_node_s == 599 + 2 * 309 + (600 - 331)
    after = greedy.seen[11]
    assert [(n.state, n.free.gpus) for n in after.nodes] == [
        (NodeState.SHARED, 1),
        (NodeState.BUSY, 0),
    ]


def test_idle_gpus_are_given_to_others_before_fragments_are_preempted():
    machine = world(
        record((0, 0, 600), (0, 0, 325), (0, 300.5, 600), of=3),
        parts=[toy()],
        costs=NO_COSTS,
        planner=Greedy(speedup),
        unit=2,
    )
    assert machine.run().lost == []


def test_a_fragment_with_all_memory_of_its_node_leaves_room_for_no_other():
    greedy = Greedy(speedup, has_memory=True)
    machine = world(
        record((0, 0, 600), (0, 0, 325), (0, 100.5, 600), of=3),
        parts=[toy()],
        costs=NO_COSTS,
        planner=greedy,
        unit=2,
    )
    assert machine.run().lost == [(325.0, 0)]
    (node,) = greedy.seen[10].nodes
    assert (node.free.gpus, node.free.memory_mib) == (1, 0)


@pytest.mark.parametrize(
    ("come", "go", "lost"),
    [
        ((1, 1, 4), 4, {2}),
        ((1, 1, 4), 5, {2, 0}),
        ((4, 1, 1), 1, {0}),
        ((2, 2, 2), 3, {0, 1}),
        ((2, 2, 2), 1, {0}),
    ],
)
def test_slurm_preempts_the_oldest_first_and_the_last_needed_before_them(come, go, lost):
    """As seen on Slurm 22.05, 24.11 and 26.05: of 1, 1 and 4 GPUs only the 4 go if 4 are needed."""
    slots = [
        (0, 30.0 * at, 300.0 if sum(come[:at]) + n < go else 600.0)
        for at, count in enumerate(come)
        for n in range(count)
    ]
    machine = world(
        record(*slots, of=sum(come)),
        parts=[toy()],
        costs=NO_COSTS,
        planner=Greedy(speedup),
        unit=1,
    )
    machine.run()
    (member,) = machine.members.values()
    assert {f.id.index for f in member.job.fragments if f.restarts} == lost


def test_a_fragment_that_leaves_gives_back_its_gpus():
    greedy = Greedy(speedup, leaving={3: 0})
    outcome = world(
        record((0, 0, 600), (0, 0, 600)), parts=[toy()], costs=NO_COSTS, planner=greedy, unit=2
    ).run()
    assert outcome.ledger.used_node_s == 2 * 60 + 2 * (600 - 91)
    assert greedy.seen[3].nodes[0].idle_since == greedy.seen[0].now + timedelta(seconds=61)


def test_jobs_of_whole_nodes_have_all_gpus_or_no_gpu():
    """Node 0 is idle from 100 to 400 s, and a GPU of it for longer.

    The shipped planner counts nodes, and the job has four GPUs.
    """
    machine = world(
        record((0, 100, 400), *[(0, 0, 600)] * 3, (1, 0, 600), of=4),
        parts=[toy()],
        costs=NO_COSTS,
    )
    outcome = machine.run()
    assert outcome.ledger.used_node_s == 4 * (400 - 121)
    assert images(outcome) == pytest.approx(4 * 10 * (400 - 121 - 6))
    assert outcome.lost == [(400.0, 0)]
    assert [m.job.request.max_nodes for m in machine.members.values()] == [2]


def test_sizes_are_sums_of_fragments():
    five = kind("five", Curve(((0, 0.0), (13, 13.0))), (5, 13))
    (coarse,) = Grain(8, 4).queue(Queue((five,))).parts
    assert (coarse.min_nodes, coarse.max_nodes) == (8, 12)
    assert Grain(8, 1).queue(Queue((five,))).parts == (five,)
    (whole,) = Grain(4, 0).queue(Queue((five,))).parts
    assert Grain(4, 0).curve(whole).points == ((0, 0.0), (1, 4.0), (2, 8.0), (3, 12.0))
    with pytest.raises(UsageError, match="no multiple of 8 GPUs is within 1 to 7"):
        Grain(8, 8).queue(Queue((toy(7),)))
    with pytest.raises(UsageError, match="nodes have 8 GPUs each"):
        Grain(8, 9)


gpu_slots = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 500), st.integers(1, 300)), min_size=1, max_size=9
).map(lambda spans: [(node, start, start + length) for node, start, length in spans])


@settings(deadline=None, max_examples=60)
@given(gpu_slots, st.integers(1, 3), st.integers(1, 3))
def test_no_gpu_is_given_that_is_not_idle(slots, unit, jobs):
    """At every tick a node shows its idle GPUs without ours, and each GPU once."""
    greedy = Greedy(speedup)
    world(
        record(*slots, of=9), jobs, parts=[toy(9)], costs=NO_COSTS, planner=greedy, unit=unit
    ).run()
    for tick, snapshot in enumerate(greedy.seen):
        ours: Counter[str] = Counter()
        for job in snapshot.jobs:
            for fragment in job.active:
                assert fragment.size % unit == 0
                ours[next(iter(fragment.nodes))] += fragment.size
        for node in snapshot.nodes:
            there = [s for s in slots if f"n{s[0]}" == node.name and s[1] <= 30 * tick < s[2]]
            assert node.free.gpus == len(there) - ours[node.name] >= 0


def _words(tmp_path: Path) -> list[str]:
    scaling = write(tmp_path / "scaling.json", SCALING)
    slots = write(tmp_path / "slots.csv", SLOTS)
    return ["replay", "--slots", str(slots), "--scaling", str(scaling), "--tick", "5"]


def test_the_command_counts_gpus(tmp_path, capsys):
    assert main([*_words(tmp_path), "--policy", "none"]) == 0
    printed = capsys.readouterr()
    assert "GPU-hours a week were idle" in printed.out
    assert "Use of" not in printed.out
    assert "each node has 2 slots" in printed.err
    assert main([*_words(tmp_path), "--compare", "none"]) == 0
    assert "Use of 2.0 GPUs that were idle on average" in capsys.readouterr().out
    assert main([*_words(tmp_path), "--unit", "node", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["unit"], answer["counted"], answer["idle_node_s"]) == ("node", "GPU", 600)
    assert answer["used_node_s"] > 0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--unit", "0gpu"], "must be gpu, 2gpu, ... or node"),
        (["--unit", "3gpu"], "--unit 3gpu: the nodes have 2 GPUs each"),
        (["--columns", "0-1"], "--columns goes with --idle, not with --slots"),
        (["--policy", "learned"], "a replay cannot learn"),
    ],
)
def test_options_that_do_not_suit_slots_are_refused(tmp_path, capsys, more, said):
    assert main([*_words(tmp_path), *more]) == 64
    assert said in " ".join(capsys.readouterr().err.split())


def test_the_unit_is_allowed_with_slots(tmp_path, capsys):
    idle = write(tmp_path / "idle.csv", "node,column,idle_from_s,idle_to_s\na,0,0,100\n")
    assert main(["replay", "--idle", str(idle), "--unit", "gpu"]) == 64
    assert "--unit goes with --slots" in " ".join(capsys.readouterr().err.split())


HOLES = Path(os.environ.get("MALLEABLE_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.mark.parametrize(
    ("name", "part"), [("best_70x8", 0.526), ("full_64x8", 0.994), ("spread_70x8", 0.972)]
)
def test_a_simulated_week_has_the_holes_that_its_origin_says(name, part):
    path = HOLES / "gpu-holes" / f"{name}.csv.gz"
    if not path.exists():
        pytest.skip(f"no {path}: set MALLEABLE_DATA to the directory of the recorded logs")
    week = read_slots(Log(path))
    with gzip.open(path, "rt") as stream:
        rows = [line.split(",") for line in stream][1:]
    whole_s = sum(8 * (float(end) - float(start)) for _, slot, start, end in rows if slot == "7")
    assert week.slots == 8
    assert 1 - whole_s / week.idle_node_s == pytest.approx(part, abs=0.0006)
