"""The published policy: the exact optimum of BFTrainer's objective (arXiv 2106.12091)."""

from __future__ import annotations

from collections.abc import Sequence

from papers.question import Held, Question, Row
from slurm_hooks.allocation.solvers.knapsack import Menu, best_sizes, menu_of
from slurm_hooks.replay.costs import Rescale
from slurm_hooks.replay.work import Kind

MOST_ANSWERS = 1_000
_Key = tuple[Kind, int]


class Optimum:
    """The exact optimum of BFTrainer's objective, at each question.

    Sum over the jobs of t_fwd * r(n) - up * r(c) where n > c - down * r(c) where n < c, with c the
    present nodes (arXiv 2106.12091, as in the authors' released code). A start from 0 nodes is free
    in it. `is_normalised` divides r by the job's own rate on 1 node: the objective `speedup`.
    """

    sees_ends = False

    def __init__(self, rescale: Rescale, t_fwd_s: float, is_normalised: bool = False) -> None:
        self._rescale = rescale
        self._t_fwd_s = t_fwd_s
        self._is_normalised = is_normalised
        self._menus: dict[_Key, Menu] = {}
        self._answers: dict[tuple[int, tuple[_Key, ...]], list[int]] = {}

    def decide(self, question: Question) -> Sequence[Row]:
        """The best sizes."""
        capacity = question.capacity[0]
        key = (capacity, tuple(map(self._key, question.jobs)))
        if key not in self._answers:
            if len(self._answers) >= MOST_ANSWERS:
                self._answers.clear()
            self._answers[key] = best_sizes(list(map(self._menu, question.jobs)), capacity)
        return [(n,) for n in self._answers[key]]

    def _key(self, job: Held) -> _Key:
        """The values on which the worth of a job's sizes depends."""
        is_free = not self._rescale.up_s and not self._rescale.down_s
        return (job.kind, 0 if is_free else job.row[0])

    def _menu(self, job: Held) -> Menu:
        key = self._key(job)
        menu = self._menus.get(key)
        if menu is None:
            menu = self._menus[key] = menu_of(self._table(job))
        return menu

    def _table(self, job: Held) -> dict[int, float]:
        """The worth of every size that the job may have."""
        kind, now, up_s, down_s = job.kind, job.row[0], self._rescale.up_s, self._rescale.down_s
        unit = kind.min_nodes / kind.rates[kind.min_nodes] if self._is_normalised else 1.0
        does = kind.rates[min(now, kind.max_nodes)] * unit
        table = {}
        for n in (0, *range(kind.min_nodes, kind.max_nodes + 1)):
            cost = up_s if n > now else down_s if n < now else 0.0
            table[n] = self._t_fwd_s * (kind.rates[n] * unit) - cost * does
        return table
