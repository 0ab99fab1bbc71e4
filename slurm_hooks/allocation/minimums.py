"""Minimums first: no job has nodes beyond its minimum while another job could start with them.

Progress alone would leave a wide job waiting: nodes that it uses badly are worth more to a job that
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
    """How a job stands with its minimum.

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
    """How many times the job has waited for its patience, up to MOST_TURNS."""
    return min(MOST_TURNS, int(waited_s // patience_s)) if patience_s else 0


def turn_at(now_s: float, patience_s: float) -> int:
    """A number that counts up MOST_TURNS times in each patience."""
    return int(now_s // (patience_s / MOST_TURNS)) if patience_s else 0


def with_claims(
    asks: Sequence[JobAsk], standings: Sequence[Standing], turn: int
) -> tuple[JobAsk, ...]:
    """The asks, each with its claim.

    Each node of a minimum is worth more than any node beyond one, since no speed-up is above
    linear. The job's own weight is added for each patience that it has waited for its minimum.

    A job that has begun stays: of several jobs that wait each would displace the one before it.
    Jobs that have waited for all their turns claim as many nodes as the widest job, one after the
    other: a narrow minimum is worth less than the nodes of a wide job, however long it waits.
    """
    most = max((ask.weight for ask in asks), default=0.0)
    boosts = [ask.weight * s.turns if s.is_short else 0.0 for ask, s in zip(asks, standings)]
    overdue = _overdue(asks, standings, turn)
    claimed = [a.min_nodes for a, boost in zip(asks, boosts) if boost or overdue is not None]
    widest = max(claimed, default=0)
    stay = (most + max(boosts, default=0.0)) * (1 if overdue is None else 2) if widest else 0.0
    found = []
    for standing, ask, boost in zip(standings, asks, boosts):
        node, nodes = most if standing.has_minimum else 0.0, ask.min_nodes
        if standing.is_short:
            node += boost
            nodes = widest if standing is overdue else nodes
        elif node and standing.has_begun:
            node += stay
            nodes = max(nodes, widest)  # a wide job would bid more than a narrow job has
        claim = node * nodes - _above_linear(ask)
        found.append(replace(ask, claim=max(0.0, claim) if ask.weight > 0 else 0.0))
    return tuple(found)


def _above_linear(ask: JobAsk) -> float:
    """The worth of its minimum beyond that of a job that scales perfectly.

    A job of which nothing is known counts more to get its share of others' nodes beyond their
    minimums. That must not displace them.
    """
    return ask.weight * max(0.0, ask.speedup(ask.min_nodes) - ask.min_nodes)


def _overdue(
    asks: Sequence[JobAsk], standings: Sequence[Standing], turn: int
) -> Optional[Standing]:
    """Of the jobs that have waited for all their turns, the one whose turn it is now.

    Jobs alternate, since one of them may wait for nodes that do not exist.
    """
    late = [
        standing
        for standing, ask in zip(standings, asks)
        if standing.is_short and standing.has_minimum and ask.weight > 0
        if standing.turns == MOST_TURNS
    ]
    late.sort(key=lambda standing: standing.number)
    return late[turn % len(late)] if late else None
