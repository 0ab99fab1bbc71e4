"""What was tried to lower the work lost to unplanned hole ends without knowing them.

Summit, event-driven, the defaults that ship beside: `oldest`, nodes idle longest are handed out
first and given back last; `cohort`, nodes that came together go to one job and leave it together;
`hazard`, each node costs its hazard (one over H seconds) times the pause after a loss. None of them
ships: docs/performance.md. The last line is one JSON object.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, Optional
from unittest import mock

from replay_runs import RESCALES, SETTINGS, Run, label, measure

from slurm_hooks.allocation.objectives import JobFacts, Worth
from slurm_hooks.model import Curve
from slurm_hooks.replay import scenario
from slurm_hooks.replay.policies.shipped import Allocator, Shipped
from slurm_hooks.replay.question import Question, Row
from slurm_hooks.replay.rules import Rescale
from slurm_hooks.replay.simulator.counts import Move
from slurm_hooks.replay.simulator.simulate import Simulation
from slurm_hooks.replay.simulator.supply import Classes

HAZARDS_S = (20_000, 8_000, 4_000, 2_000)


class Oldest(Simulation):
    """Old holes live longest: take those, and give back the young."""

    def _moves(self, asked: Question, rows: Sequence[Row], classes: Classes) -> list[Move]:
        gone = [self._leaving(j, h.row[0] - r[0]) for j, h, r in zip(self.jobs, asked.jobs, rows)]
        free = sorted([*self._supply.free, *(n for g in gone for n in g)], key=self._born)
        new = self._placed(free, [r[0] - h.row[0] for h, r in zip(asked.jobs, rows)])
        moves = (Move(j, g, n) for j, g, n in zip(self.jobs, gone, new))
        return [move for move in moves if move.gone or move.new]

    def _born(self, node: int) -> float:
        return self._supply._present[node].start_s

    def _leaving(self, job: Any, count: int) -> list[int]:
        return sorted(job.nodes, key=lambda n: -self._born(n))[: max(count, 0)]

    def _placed(self, free: list[int], wants: list[int]) -> list[list[int]]:
        pool = iter(free)
        return [[n for _, n in zip(range(max(want, 0)), pool)] for want in wants]


class Cohort(Oldest):
    """Two thirds of the nodes that leave together had come together."""

    def _leaving(self, job: Any, count: int) -> list[int]:
        together = Counter(self._born(n) for n in job.nodes)
        ranked = sorted(job.nodes, key=lambda n: (together[self._born(n)], -self._born(n)))
        return ranked[: max(count, 0)]

    def _placed(self, free: list[int], wants: list[int]) -> list[list[int]]:
        cohorts: dict[float, list[int]] = {}
        for node in free:
            cohorts.setdefault(self._born(node), []).append(node)
        new: list[list[int]] = [[] for _ in wants]
        for at in sorted(range(len(wants)), key=lambda i: -wants[i]):
            mine = Counter(self._born(n) for n in self.jobs[at].nodes)
            while cohorts and len(new[at]) < wants[at]:
                left = wants[at] - len(new[at])
                best = max(cohorts, key=lambda c: (c in mine, min(len(cohorts[c]), left), mine[c]))
                new[at] += cohorts[best][:left]
                cohorts[best] = cohorts[best][left:]
                if not cohorts[best]:
                    del cohorts[best]
        return new


class Charged:
    """Speed-up less what losses of nodes will cost at this hazard."""

    def __init__(self, hazard_s: float, pause_s: float) -> None:
        self._rate = pause_s / hazard_s
        self._known: dict[Curve, Worth] = {}

    def __call__(self, job: JobFacts) -> Worth:
        if job.curve not in self._known:
            sizes = range(job.max_nodes + 1)
            points = tuple((n, job.curve(n) * max(0.0, 1 - self._rate * n)) for n in sizes)
            self._known[job.curve] = Worth(1.0, Curve(points))
        return self._known[job.curve]


def tried(jobs: int, rescale: Rescale) -> dict[str, dict[str, Any]]:
    """Every idea under one price of a rescale."""
    run = Run("summit", "default", jobs, rescale)
    found = {"as shipped": measure(run)}
    for name, simulation in (("oldest", Oldest), ("cohort", Cohort)):
        with mock.patch.object(scenario, "Simulation", simulation):
            found[name] = measure(run)
    for hazard_s in HAZARDS_S:
        policy = Allocator(
            Shipped(rescale, SETTINGS.plan.horizon_s, objective=Charged(hazard_s, rescale.down_s))
        )
        with mock.patch.object(scenario, "policy_of", lambda *_, _policy=policy: _policy):
            found[f"hazard {hazard_s} s"] = measure(run)
    return found


def main(argv: Optional[Sequence[str]] = None) -> int:
    """All ideas, 10 and 35 jobs, three prices."""
    rows = []
    for jobs in (10, 35):
        for rescale in RESCALES:
            for name, line in tried(jobs, rescale).items():
                row = {"jobs": jobs, "rescale_s": label(rescale), "idea": name}
                row |= {k: line[k] for k in ("efficiency", "preemption_hits", "work_lost_node_s")}
                rows.append(row)
                print(*row.values(), file=sys.stderr)
    print(json.dumps({"benchmark": "replay-tried", "rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
