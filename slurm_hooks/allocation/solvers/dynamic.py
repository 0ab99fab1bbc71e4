"""The exact answer where all nodes are alike: a dynamic programme over counts.

With one class each job picks one size, and sizes add up to at most the nodes there are. It is the
oracle in tests and the solver for one class.
"""

from __future__ import annotations

from functools import cache

from slurm_hooks.allocation.problem import JobAsk, Problem
from slurm_hooks.allocation.solvers.knapsack import Menu, best_sizes
from slurm_hooks.allocation.value import (
    Counts,
    Period,
    corners,
    is_off_unit,
    may_gain,
    nodes_to_give,
    periods,
    row_value,
)

MOST_STEPS = 20_000_000
"""Updates after which the programme gives up: some ten seconds of Python."""


def solve_dynamic(problem: Problem, most_steps: int = MOST_STEPS) -> Counts:
    """The counts (job, class) of greatest value of a problem with one class, exactly.

    Of equals, what the relaxation found. Raises ValueError for any other number of classes and
    `TooLarge` where a search would take more than `most_steps` updates.
    """
    if len(problem.classes) != 1:
        raise ValueError(f"one class is needed, the problem has {len(problem.classes)}")
    most = min(problem.classes[0].capacity, nodes_to_give(problem))
    spans = periods(problem)
    menus = [_menu(job, most, spans) for job in problem.jobs]
    return tuple((size,) for size in best_sizes(menus, most, most_steps))


def _menu(job: JobAsk, most: int, spans: tuple[Period, ...]) -> Menu:
    @cache
    def worth(size: int) -> float:
        return row_value(job, spans, (size,))

    return Menu(worth, _corners(job, most), job.unit)


def _corners(job: JobAsk, most: int) -> list[int]:
    """0 and the sizes between which the job's value is linear: kinks of progress and of costs."""
    held = job.size
    if is_off_unit(job):
        return [0, held] if job.min_nodes <= held <= job.max_nodes else [0]
    return [0, *corners(job, most if may_gain(job, 0) else min(most, held))]
