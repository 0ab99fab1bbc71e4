"""The allocator that ships, asked by the simulator instead of by a tick.

The question becomes the `Problem` that the planner would build for the same jobs and nodes, and
`allocate` answers. Where all nodes are alike, what each size is worth is tabled once and searched
as in the dynamic programme: a replay meets the same tables again and again. Curves are those of the
scaling table, as they are for a job that has been profiled.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from slurm_hooks.allocation.allocate import allocate
from slurm_hooks.allocation.minimums import with_claims
from slurm_hooks.allocation.objectives import JobFacts, Objective, speedup, weigh
from slurm_hooks.allocation.problem import JobAsk, Limits, NodeClass, Problem
from slurm_hooks.allocation.solvers.knapsack import Menu, best_sizes, menu_of
from slurm_hooks.allocation.value import periods, row_value
from slurm_hooks.replay.question import Held, Question, Row
from slurm_hooks.replay.rules import Rescale
from slurm_hooks.replay.work import Kind

Closing = tuple[tuple[int, float], ...]  # held nodes and seconds until they go
MOST_MENUS = 20_000


@dataclass(frozen=True)
class Shipped:
    """What the settings say: costs, look-ahead, solver; `sees_ends`: hole ends matter if known.

    `is_tabled` allows the tabled search where it is exact; otherwise the allocator is always asked.
    That needs an objective that looks at nothing but the curve, as ours do here.
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
        self._menus: dict[tuple[Kind, int, Closing, bool, float, float], Menu] = {}

    def decide(self, question: Question) -> Sequence[Row]:
        """The nodes of each job, `(class)`.

        Nodes that are about to close and are not worth taking can only be kept, which never costs
        anything; then only the counts in the first class are open, and those are tabled.
        """
        gained = (question.usable(job)[1:] for job in question.jobs)
        if self._shipped.is_tabled and not any(map(any, gained)):
            asks = self._asks(question)
            menus = [
                self._menu(job, ask.claim, question.open_s) for job, ask in zip(question.jobs, asks)
            ]
            sizes = best_sizes(menus, question.capacity[0])
            return [_row(job, n) for job, n in zip(question.jobs, sizes)]
        shipped = self._shipped
        problem = self.problem(question)
        return allocate(problem, shipped.limits, shipped.solver, time.monotonic).counts

    def problem(self, question: Question) -> Problem:
        """The question in the words of the allocator."""
        asks = self._asks(question)
        classes = tuple(map(NodeClass, question.capacity, question.open_s))
        return Problem(asks, classes, horizon_s=self._shipped.horizon_s)

    def _asks(self, question: Question) -> tuple[JobAsk, ...]:
        """What each job asks, with its claim to its minimum. A job that has no nodes and may not
        grow asks for none."""
        jobs = question.jobs
        asks = [self._ask(f"{at:06}", job, question.usable(job)) for at, job in enumerate(jobs)]
        asking = [at for at, job in enumerate(jobs) if job.may_grow or any(job.row)]
        claimed = with_claims(
            [asks[at] for at in asking],
            [jobs[at].standing for at in asking],
            question.turn,
        )
        for at, ask in zip(asking, claimed):
            asks[at] = ask
        return tuple(asks)

    def _ask(self, name: str, job: Held, usable: tuple[bool, ...]) -> JobAsk:
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
            usable=usable,
            grow_s=rescale.up_s + job.redone_s,
            shrink_s=rescale.down_s + job.redone_s,
            weight=worth.weight,
            may_grow=job.may_grow,
        )

    def _menu(self, job: Held, claim: float, open_s: tuple[float, ...]) -> Menu:
        closing = tuple((n, s) for n, s in zip(job.row[1:], open_s[1:]) if n)
        key = (job.kind, job.row[0], closing, job.may_grow, job.redone_s, claim)
        menu = self._menus.get(key)
        if menu is None:
            if len(self._menus) >= MOST_MENUS:
                self._menus.clear()
            menu = self._menus[key] = self._tabled(job, claim, closing)
        return menu

    def _tabled(self, job: Held, claim: float, closing: Closing) -> Menu:
        """The worth of every size in the first class, by the allocator's own definition."""
        kept = tuple(n for n, _ in closing)
        held = Held(job.kind, (job.row[0], *kept), job.may_grow, redone_s=job.redone_s)
        classes = (NodeClass(0), *(NodeClass(n, s) for n, s in closing))
        ask = replace(self._ask("job", held, (True, *(False for _ in kept))), claim=claim)
        spans = periods(Problem((ask,), classes, self._shipped.horizon_s))
        most = job.kind.max_nodes - sum(kept)
        most = most if job.may_grow else min(most, job.row[0])
        sizes = range(max(1, job.kind.min_nodes - sum(kept)), most + 1)
        return menu_of({n: row_value(ask, spans, _row(held, n)) for n in (0, *sizes)})


def _row(job: Held, first: int) -> Row:
    """So many nodes of the first class, and what the job has of the others if it can run then."""
    is_enough = first + sum(job.row[1:]) >= job.kind.min_nodes
    return (first, *job.row[1:]) if is_enough else (first,) + (0,) * (len(job.row) - 1)
