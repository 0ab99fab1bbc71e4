"""The machine of the replay and the fake Slurm, which prints Slurm's own text, agree.

Both have the same nodes, the same claims, and a malleable job. The test compares its nodes at each
tick.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from fake_parts import Rigid
from fake_slurm import FakeSlurm
from planning.whole_ticks import one_tick
from replay.worlds import SIX_FOUR_COSTS, Asked, world
from slurm_hooks.allocation.objectives import speedup
from slurm_hooks.model import Curve, Plan, Snapshot
from slurm_hooks.replay.record import Interval, Record
from slurm_hooks.replay.work import kind
from slurm_hooks.settings.values import Mode, Settings

TICK_S = 10  # as shipped
MARK = "malleable{min=1,max=3,unit=1,engine=torchrun,frags=3,lease=600,hole=120,not=-}"
NODES = 3
LONG_S = 3_000


class Noting(Asked):
    """The shipped planner. It notes the nodes on which the job trains at each tick."""

    seen: list[list[str]]

    def plan(self, snapshot: Snapshot, settings: Settings) -> Plan:
        self.seen.append(sorted(n for job in snapshot.jobs for n in job.nodes))
        return super().plan(snapshot, settings)


def by_replay(claims: list[tuple[int, int, int, int]]) -> list[list[str]]:
    """`claims` are node, the time at which it is known, start and end."""
    intervals = []
    for node in range(NODES):
        mine = sorted((start, end, seen) for n, seen, start, end in claims if n == node)
        begins = [0, *(end for _, end, _ in mine)]
        ends = [*((start, seen) for start, _, seen in mine), (LONG_S, LONG_S)]
        for begin, (end, seen) in zip(begins, ends):
            intervals.append(Interval(node, float(begin), float(end), float(seen)))
    noting = Noting(speedup)
    object.__setattr__(noting, "seen", [])
    curve = Curve(((0, 0.0), (3, 30.0)))
    costs = replace(SIX_FOUR_COSTS, checkpoint_s=600.0)
    machine = Record(tuple(intervals), NODES, 0.0, float(LONG_S))
    world(
        machine, 1, [kind("wide", curve, (1, 3), 1e9)], costs, Settings(mode=Mode("on")), noting
    ).run()
    return noting.seen


def by_fake(claims: list[tuple[int, int, int, int]]) -> list[list[str]]:
    slurm = FakeSlurm({f"n{node}": "" for node in range(NODES)})
    slurm.submit(1, 3, MARK)
    begin = slurm.now
    for number, (node, seen, start, end) in enumerate(claims):
        nodes = frozenset({f"n{node}"})
        slurm.rigid.append(Rigid(100 + number, nodes, begin + seen, begin + start, end - start))
    in_use = []
    for _ in range(LONG_S // TICK_S):
        runs = (e for e in slurm.of(1) if e.state == "RUNNING")
        in_use.append(sorted(name for element in runs for name in element.nodes))
        one_tick(slurm)
        slurm.advance(TICK_S)
    assert slurm.violations == []
    return in_use


@pytest.mark.parametrize(
    "claims",
    [
        [],
        [(1, 0, 700, 1300)],
        [(1, 400, 1207, 1500), (2, 395, 1000, 2000)],
        [(0, 0, 340, 655), (1, 0, 340, 655), (2, 0, 345, 655), (0, 1100, 2300, 2400)],
    ],
)
def test_the_same_nodes_are_in_use_at_each_tick(claims, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    in_use = by_replay(claims)
    assert in_use == by_fake(claims)
    changes = sum(before != after for before, after in zip(in_use, in_use[1:]))
    assert changes >= 1 + len(claims)
