"""Who gets which nodes: the question the simulator asks, and the lines to compare the answers with.

A policy sees classes of nodes that are alike and answers with counts. One that does not look at
hole ends sees one class. Policies must not know the future beyond what the question tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from slurm_hooks.allocation.solvers.knapsack import Menu, best_sizes, menu_of
from slurm_hooks.replay.rules import Rescale
from slurm_hooks.replay.work import Kind

Row = tuple[int, ...]
MOST_ANSWERS = 1_000


@dataclass(frozen=True)
class Held:
    """A job and the nodes it has, `(class)`; its age, and how often it was paused so far."""

    kind: Kind
    row: Row
    may_grow: bool = True
    age_s: float = 0.0
    restarts: int = 0


@dataclass(frozen=True)
class Question:
    """Jobs, and for each class the nodes there are (free or held) and the seconds they stay.

    Nodes of a class that is not `worth_taking` can be kept, but not be gained.
    """

    jobs: tuple[Held, ...]
    capacity: tuple[int, ...]
    open_s: tuple[float, ...]
    worth_taking: tuple[bool, ...]


class Policy(Protocol):
    """Answers questions; `sees_ends` asks the simulator for one class per hole end."""

    sees_ends: bool

    def decide(self, question: Question) -> Sequence[Row]:
        """The nodes of each job, `(class)`."""


class Nothing:
    """Nobody gets anything: the machine as it was."""

    sees_ends = False

    def decide(self, question: Question) -> Sequence[Row]:
        """Zero for everybody."""
        return [(0,) for _ in question.jobs]


class Equal:
    """BFTrainer's baseline: everybody the same, leftovers to the first."""

    sees_ends = False

    def decide(self, question: Question) -> Sequence[Row]:
        """floor(nodes / jobs) each, at most MAX; what is left fills the first jobs up to MAX."""
        jobs, most = question.jobs, question.capacity[0]
        share = most // len(jobs) if jobs else 0
        sizes = [_allowed(job.kind, share) for job in jobs]
        left = most - sum(sizes)
        for at, job in enumerate(jobs):
            size = _allowed(job.kind, sizes[at] + left)
            left -= size - sizes[at]
            sizes[at] = size
        return [(n,) for n in sizes]


def _allowed(kind: Kind, nodes: int) -> int:
    return min(nodes, kind.max_nodes) if nodes >= kind.min_nodes else 0


class Optimum:
    """The exact optimum of BFTrainer's objective, at each question.

    Sum over the jobs of t_fwd * r(n) - up * r(c) where n > c - down * r(c) where n < c, with c the
    nodes now (arXiv 2106.12091, as in the authors' released code). A start from nothing is free in
    it. `is_normalised` divides r by the job's own rate on one node: the objective `speedup`.
    """

    sees_ends = False

    def __init__(self, rescale: Rescale, t_fwd_s: float, is_normalised: bool = False) -> None:
        self._rescale = rescale
        self._t_fwd_s = t_fwd_s
        self._is_normalised = is_normalised
        self._menus: dict[tuple[int, int, bool], Menu] = {}
        self._answers: dict[tuple[int, ...], list[int]] = {}

    def decide(self, question: Question) -> Sequence[Row]:
        """The best sizes."""
        menus = [self._menu(job) for job in question.jobs]
        key = (question.capacity[0], *map(id, menus))
        if key not in self._answers:
            if len(self._answers) >= MOST_ANSWERS:
                self._answers.clear()
            self._answers[key] = best_sizes(menus, question.capacity[0])
        return [(n,) for n in self._answers[key]]

    def _menu(self, job: Held) -> Menu:
        is_free = not self._rescale.up_s and not self._rescale.down_s and job.may_grow
        key = (id(job.kind), 0 if is_free else job.row[0], job.may_grow)
        menu = self._menus.get(key)
        if menu is None:
            menu = self._menus[key] = menu_of(self._table(job))
        return menu

    def _table(self, job: Held) -> dict[int, float]:
        """The worth of every size that the job may have."""
        kind, now, up_s, down_s = job.kind, job.row[0], self._rescale.up_s, self._rescale.down_s
        unit = kind.min_nodes / kind.rates[kind.min_nodes] if self._is_normalised else 1.0
        does = kind.rates[min(now, kind.max_nodes)] * unit
        most = kind.max_nodes if job.may_grow else min(now, kind.max_nodes)
        table = {}
        for n in (0, *range(kind.min_nodes, most + 1)):
            cost = up_s if n > now else down_s if n < now else 0.0
            table[n] = self._t_fwd_s * (kind.rates[n] * unit) - cost * does
        return table
