"""The same jobs on dedicated nodes, without pauses, for comparison with a replay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from slurm_hooks.allocation.solvers.knapsack import Menu, best_sizes, menu_of
from slurm_hooks.replay.record import Record
from slurm_hooks.replay.running import Ledger, Pause, Running
from slurm_hooks.replay.work import Kind, Queue


@dataclass(frozen=True)
class Reference:
    """Images/s by model of the same queue on dedicated nodes, scaled to the equivalent nodes."""

    images_per_s: dict[str, float]

    @property
    def total(self) -> float:
        """Images/s of all models."""
        return math.fsum(self.images_per_s.values())


def reference(record: Record, queue: Queue, jobs: int) -> Reference:
    """Run the queue on the average number of idle nodes, `jobs` of its jobs at a time.

    It runs on whole nodes, and the result is scaled to the exact average. Sizes maximize the sum of
    speed-ups for all policies, so that lines can be compared.
    """
    nodes = max(round(record.equivalent_nodes), 1)
    factor = record.equivalent_nodes / nodes
    done = _images(nodes, record, queue, jobs)
    return Reference({name: n * factor / record.window_s for name, n in done.items()})


def _images(nodes: int, record: Record, queue: Queue, most: int) -> dict[str, float]:
    """Images by model, in the length of the record."""
    ledger, coming, now = Ledger(), iter(queue), record.from_s
    jobs: list[Running] = []
    number = 0
    while now < record.to_s:
        while len(jobs) < most and (kind := next(coming, None)) is not None:
            number += 1
            jobs.append(Running(number, kind, now, 0.0))
        _share(jobs, nodes, now, ledger)
        now = min([record.to_s, *(job.finish_s for job in jobs)])
        for job in [job for job in jobs if job.finish_s <= now < record.to_s]:
            job.complete(now, ledger)
            jobs.remove(job)
    for job in jobs:
        job.advance(record.to_s, ledger)
    return ledger.images


def _share(jobs: Sequence[Running], nodes: int, now: float, ledger: Ledger) -> None:
    """Give each job its best size, from now on."""
    for job, size in zip(jobs, best_sizes([_menu(job.kind) for job in jobs], nodes)):
        if size != job.size:
            job.advance(now, ledger)
            job.nodes = dict.fromkeys(range(size), now)
            job.pause(Pause.GROW, 0.0)


@cache
def _menu(kind: Kind) -> Menu:
    """The value of each size of such a job."""
    unit = kind.min_nodes / kind.rates[kind.min_nodes]
    sizes = (0, *range(kind.min_nodes, kind.max_nodes + 1))
    return menu_of({n: kind.rates[n] * unit for n in sizes})
