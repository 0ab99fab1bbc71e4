"""The shipped allocator, asked at each change instead of by a tick.

`allocate` answers. Where all nodes are equal, the worth of each size is tabled once and searched as
in the knapsack, because a replay meets the same tables again and again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from papers.question import Held, Question, Row
from slurm_hooks.allocation.allocate import allocate
from slurm_hooks.allocation.minimums import Standing, with_claims
from slurm_hooks.allocation.objectives import JobFacts, Objective, speedup, weigh
from slurm_hooks.allocation.problem import JobAsk, Limits, NodeClass, Problem
from slurm_hooks.allocation.solvers.knapsack import Menu, best_sizes, menu_of
from slurm_hooks.allocation.value import periods, row_value
from slurm_hooks.replay.costs import Rescale
from slurm_hooks.replay.work import Kind

MOST_MENUS = 20_000


@dataclass(frozen=True)
class Shipped:
    """The settings' costs, look-ahead and solver. With `sees_ends` known ends matter.

    `is_tabled` allows the tabled search where it is exact. Otherwise the allocator is always asked.
    The objective must depend only on the curve, as ours do here.
    """

    rescale: Rescale
    horizon_s: float
    sees_ends: bool = False
    objective: Objective = speedup
    solver: str = "auto"
    is_tabled: bool = True
    limits: Limits = field(default_factory=Limits)


class Allocator:
    """The policy `default`, and with all hole ends known the policy `oracle`."""

    def __init__(self, shipped: Shipped) -> None:
        self._shipped = shipped
        self.sees_ends = shipped.sees_ends
        self._menus: dict[tuple[Kind, int, float], Menu] = {}

    def decide(self, question: Question) -> Sequence[Row]:
        """The nodes of each job, `(class)`."""
        if self._shipped.is_tabled and len(question.capacity) == 1:
            menus = [
                self._menu(job, ask.claim) for job, ask in zip(question.jobs, self._asks(question))
            ]
            return [(n,) for n in best_sizes(menus, question.capacity[0])]
        shipped = self._shipped
        problem = self.problem(question)
        return allocate(problem, shipped.limits, shipped.solver, time.monotonic).counts

    def problem(self, question: Question) -> Problem:
        """The question in the words of the allocator."""
        classes = tuple(map(NodeClass, question.capacity, question.open_s))
        return Problem(self._asks(question), classes, horizon_s=self._shipped.horizon_s)

    def _asks(self, question: Question) -> tuple[JobAsk, ...]:
        """The request of each job, with its claim to its minimum. In this simulation no job
        waits.
        """
        asks = [self._ask(f"{at:06}", job) for at, job in enumerate(question.jobs)]
        standings = [
            Standing(at, is_short=sum(job.row) < job.kind.min_nodes)
            for at, job in enumerate(question.jobs)
        ]
        return with_claims(asks, standings, turn=0)

    def _ask(self, name: str, job: Held) -> JobAsk:
        kind, rescale = job.kind, self._shipped.rescale
        sizes = (kind.min_nodes, kind.max_nodes)
        facts = JobFacts(name, kind.curve, 1, *sizes, age_s=job.age_s, nodes=sum(job.row))
        worth, _ = weigh(self._shipped.objective, facts)
        return JobAsk(
            name=name,
            min_nodes=kind.min_nodes,
            max_nodes=kind.max_nodes,
            curve=worth.curve,
            held=job.row,
            usable=(True,) * len(job.row),
            grow_s=rescale.up_s,
            shrink_s=rescale.down_s,
            weight=worth.weight,
        )

    def _menu(self, job: Held, claim: float) -> Menu:
        key = (job.kind, job.row[0], claim)
        menu = self._menus.get(key)
        if menu is None:
            if len(self._menus) >= MOST_MENUS:
                self._menus.clear()
            menu = self._menus[key] = self._tabled(job, claim)
        return menu

    def _tabled(self, job: Held, claim: float) -> Menu:
        """The worth of every size, as the allocator defines it."""
        ask = replace(self._ask("job", job), claim=claim)
        spans = periods(Problem((ask,), (NodeClass(0),), self._shipped.horizon_s))
        sizes = (0, *range(max(1, job.kind.min_nodes), job.kind.max_nodes + 1))
        return menu_of({n: row_value(ask, spans, (n,)) for n in sizes})
