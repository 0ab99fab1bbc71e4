"""Serves minimums first: no job gets more than its minimum while another could start with the rest.

Progress alone would leave a wide job waiting. Nodes that it uses badly are worth more to a job that
scales well. Where the nodes do not suffice for all minimums, jobs take turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Optional

from slurm_hooks.allocation.problem import JobAsk

MOST_TURNS = 4  # a claim far above all progress would hide it from the solvers' gap


@dataclass(frozen=True)
class Standing:
    """A job's position towards its minimum.

    A job that `is_short` has less than its minimum. It has waited for its patience `turns` times,
    at most MOST_TURNS times. A job that `has_begun` is in the first patience of its run, or about
    to begin it. A pool can be without a minimum, and so is a job whose core has it. Overdue jobs
    alternate in the order of `number`.
    """

    number: int
    is_short: bool
    turns: int = 0
    has_begun: bool = False
    has_minimum: bool = True


def turns_of(waited_s: float, patience_s: float) -> int:
    """Count how often the job has waited for its patience, up to MOST_TURNS."""
    return min(MOST_TURNS, int(waited_s // patience_s)) if patience_s else 0


def turn_at(now_s: float, patience_s: float) -> int:
    """A number that counts up MOST_TURNS times in each patience."""
    return int(now_s // (patience_s / MOST_TURNS)) if patience_s else 0


def with_claims(
    asks: Sequence[JobAsk], standings: Sequence[Standing], turn: int
) -> tuple[JobAsk, ...]:
    """Return the asks, each with its claim.

    Each node of a minimum is worth more than any node beyond, since no speed-up is above linear.
    For each patience that a job has waited for its minimum, a node of it is worth the job's weight
    more. A job that has begun stays. Otherwise each waiting job would displace the job before it.

    A narrow minimum is worth less than the nodes of a wide job, however long it waits. So jobs that
    have waited for all their turns claim as many nodes as the widest job, in turn.
    """
    most = max((ask.weight for ask in asks), default=0.0)
    boosts = [ask.weight * s.turns if s.is_short else 0.0 for ask, s in zip(asks, standings)]
    overdue = _overdue(asks, standings, turn)
    claimed = [a.min_nodes for a, boost in zip(asks, boosts) if boost or overdue is not None]
    widest = max(claimed, default=0)
    stay = (most + max(boosts, default=0.0)) * (1 if overdue is None else 2) if widest else 0.0
    claiming = []
    for standing, ask, boost in zip(standings, asks, boosts):
        node, nodes = most if standing.has_minimum else 0.0, ask.min_nodes
        if standing.is_short:
            node += boost
            nodes = widest if standing is overdue else nodes
        elif node and standing.has_begun:
            node += stay
            nodes = max(nodes, widest)  # a wide job would bid more than a narrow job has
        claim = node * nodes - _above_linear(ask)
        claiming.append(replace(ask, claim=max(0.0, claim) if ask.weight > 0 else 0.0))
    return tuple(claiming)


def _above_linear(ask: JobAsk) -> float:
    """The worth of its minimum beyond the worth to a job that scales perfectly.

    An unknown job counts more, to get its share of others' nodes beyond their minimums. That must
    not displace the minimums.
    """
    return ask.weight * max(0.0, ask.speedup(ask.min_nodes) - ask.min_nodes)


def _overdue(
    asks: Sequence[JobAsk], standings: Sequence[Standing], turn: int
) -> Optional[Standing]:
    """The job whose turn it is now, of those that have waited for all their turns.

    Jobs alternate, since any of them may wait for nodes that do not exist.
    """
    late = [
        standing
        for standing, ask in zip(standings, asks)
        if standing.is_short and standing.has_minimum and ask.weight > 0
        if standing.turns == MOST_TURNS
    ]
    late.sort(key=lambda standing: standing.number)
    return late[turn % len(late)] if late else None
