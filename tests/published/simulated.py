"""Replays of papers on machines that can be calculated by hand."""

from __future__ import annotations

from typing import Optional

from papers.published import Optimum
from papers.question import Policy
from papers.rules import Rules
from papers.simulate import Simulation

from replay.machines import two_nodes
from slurm_hooks.replay.outcome import Outcome
from slurm_hooks.replay.record import Record
from slurm_hooks.replay.work import Queue


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
