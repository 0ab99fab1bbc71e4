"""The allocator that ships, asked by the simulator instead of by a tick.

The question becomes the same `Problem` that the planner builds from a live Slurm, and
`core.allocate` answers. Where all nodes are alike the values of `core.value` are tabled by size
once and searched exactly, with the same result as the core's dynamic programme and many times
faster: a replay meets the same tables again and again. Curves are those of the scaling table, as
they are for a job that has been profiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slurm_hooks.core.allocate import allocate
from slurm_hooks.core.problem import JobAsk, Limits, NodeClass, Problem
from slurm_hooks.core.value import periods, row_value
from slurm_hooks.replay.knapsack import NEVER, Menu, best_sizes
from slurm_hooks.replay.policy import Held, Question, Row
from slurm_hooks.replay.rules import Rescale

Closing = tuple[tuple[int, float], ...]  # held nodes and seconds until they go
MOST_MENUS = 20_000


@dataclass(frozen=True)
class Shipped:
    """What the settings say: costs, look-ahead, solver; `sees_ends`: hole ends matter if known.

    `is_tabled` allows the fast search where it is exact; else the allocator is asked every time.
    The objective `throughput` makes raw images per second count instead of speed-ups.
    """

    rescale: Rescale
    horizon_s: float
    sees_ends: bool = False
    objective: str = "speedup"
    solver: str = "auto"
    is_tabled: bool = True
    limits: Limits = field(default_factory=Limits)


class Allocator:
    """The policy `default`, and with all hole ends known the policy `oracle`."""

    def __init__(self, shipped: Shipped) -> None:
        self._shipped = shipped
        self.sees_ends = shipped.sees_ends
        self._menus: dict[tuple[int, int, Closing, bool], Menu] = {}

    def decide(self, question: Question) -> Sequence[Row]:
        """The nodes of each job, `(class)`.

        Nodes that are about to close and are not worth taking can only be kept, which never costs
        anything; then only the counts in the first class are open, and those are tabled.
        """
        if self._shipped.is_tabled and not any(question.worth_taking[1:]):
            menus = [self._menu(job, question.open_s) for job in question.jobs]
            sizes = best_sizes(menus, question.capacity[0])
            return [_row(job, n) for job, n in zip(question.jobs, sizes)]
        return allocate(self.problem(question), self._shipped.limits, self._shipped.solver).counts

    def problem(self, question: Question) -> Problem:
        """The question in the words of the allocator."""
        return Problem(
            jobs=tuple(
                self._ask(f"{at:06}", job, question.worth_taking)
                for at, job in enumerate(question.jobs)
            ),
            classes=tuple(map(NodeClass, question.capacity, question.open_s)),
            horizon_s=self._shipped.horizon_s,
        )

    def _ask(self, name: str, job: Held, worth_taking: tuple[bool, ...]) -> JobAsk:
        kind, rescale = job.kind, self._shipped.rescale
        weight = kind.rates[kind.min_nodes] if self._shipped.objective == "throughput" else 1.0
        return JobAsk(
            name=name,
            min_nodes=kind.min_nodes,
            max_nodes=kind.max_nodes,
            curve=kind.curve,
            held=job.row,
            usable=worth_taking,
            grow_s=rescale.up_s,
            shrink_s=rescale.down_s,
            start_s=rescale.up_s,
            weight=weight,
            may_grow=job.may_grow,
        )

    def _menu(self, job: Held, open_s: tuple[float, ...]) -> Menu:
        closing = tuple((n, s) for n, s in zip(job.row[1:], open_s[1:]) if n)
        key = (id(job.kind), job.row[0], closing, job.may_grow)
        menu = self._menus.get(key)
        if menu is None:
            if len(self._menus) >= MOST_MENUS:
                self._menus.clear()
            menu = self._menus[key] = self._tabled(job, closing)
        return menu

    def _tabled(self, job: Held, closing: Closing) -> Menu:
        """The worth of every size in the first class, by the allocator's own definition."""
        kept = tuple(n for n, _ in closing)
        held = Held(job.kind, (job.row[0], *kept), job.may_grow)
        classes = (NodeClass(0), *(NodeClass(n, s) for n, s in closing))
        ask = self._ask("job", held, (True, *(False for _ in kept)))
        spans = periods(Problem((ask,), classes, self._shipped.horizon_s))
        kind, values = job.kind, []
        for n in range(max(kind.max_nodes - sum(kept), 0) + 1):
            row = _row(held, n)
            allowed = sum(row) <= kind.max_nodes and (job.may_grow or n <= job.row[0])
            allowed = allowed and (n == 0 or sum(row) >= kind.min_nodes)
            values.append(row_value(ask, spans, row) if allowed or n == 0 else NEVER)
        return Menu(values)


def _row(job: Held, first: int) -> Row:
    """So many nodes of the first class, and what the job has of the others if it can run then."""
    is_enough = first + sum(job.row[1:]) >= job.kind.min_nodes
    return (first, *job.row[1:]) if is_enough else (first,) + (0,) * (len(job.row) - 1)
