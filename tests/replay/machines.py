"""Small machines and jobs whose replays can be worked out by hand."""

from __future__ import annotations

import math
from typing import Optional

from slurm_hooks.model import Curve
from slurm_hooks.replay.policies.published import Optimum
from slurm_hooks.replay.question import Policy
from slurm_hooks.replay.record import Interval, Record
from slurm_hooks.replay.rules import Rescale, Rules
from slurm_hooks.replay.simulator.simulate import Outcome, Simulation
from slurm_hooks.replay.work import Kind, Queue, kind

SIX_FOUR = Rescale(6.0, 4.0)


def two_nodes(images: float = 1e9) -> Kind:
    """10 images/s on one node, 18 on two."""
    return kind("toy", Curve(((0, 0.0), (1, 10.0), (2, 18.0))), (1, 2), images)


def record(
    *holes: tuple[int, float, float], to_s: float = 100.0, known_s: float = math.inf
) -> Record:
    """A record from (node, from, to)."""
    intervals = tuple(Interval(node, start, end, known_s) for node, start, end in holes)
    return Record(intervals, 1 + max(node for node, _, _ in holes), 0.0, to_s)


def replay(
    machine: Record,
    rules: Rules,
    policy: Optional[Policy] = None,
    images: float = 1e9,
    jobs: int = 1,
) -> Outcome:
    """Run the endless toy queue."""
    policy = policy or Optimum(rules.rescale, 120.0)
    return Simulation(machine, Queue((two_nodes(images),)), jobs, policy, rules).run()


def images(outcome: Outcome) -> float:
    """All work done."""
    return math.fsum(outcome.ledger.images.values())
