"""Weighs the jobs by the aim of a site: how much each job's progress counts, and on which curve.

An objective turns the facts about a job into a weight and a curve. The solvers never see it. They
maximise the sum of weight times speed-up on the curve, whatever it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slurm_hooks.model import Curve


@dataclass(frozen=True)
class JobFacts:
    """The facts on which an objective may base its answer.

    `curve` is the throughput over nodes, in the unit of its measurement. `priority` is Slurm's,
    divided by the mean of the malleable jobs that have a priority (1.0 as long as Slurm has given
    no priority). `age_s` counts from submission, `nodes` are held now.
    """

    name: str
    curve: Curve
    unit: int
    min_nodes: int
    max_nodes: int
    user: str = ""
    partition: str = ""
    priority: float = 1.0
    age_s: float = 0.0
    nodes: int = 0

    @property
    def rate_per_node(self) -> float:
        """Throughput of a node where the job runs on its smallest unit."""
        return self.curve(self.unit) / self.unit


@dataclass(frozen=True)
class Worth:
    """The job's worth: `weight` times its speed-up on `curve` over the rate of its unit."""

    weight: float
    curve: Curve


Objective = Callable[[JobFacts], Worth]


def speedup(job: JobFacts) -> Worth:
    """Count how well nodes are used, whatever their output, so that slow models do not starve."""
    return Worth(1.0, job.curve)


def throughput(job: JobFacts) -> Worth:
    """The plain sum of the measured rates, such as images per second.

    It is fair only between jobs measured in the same unit. Jobs never measured count as slow.
    """
    return Worth(job.rate_per_node, job.curve)


def efficiency(job: JobFacts) -> Worth:
    """Speed-up times parallel efficiency: nodes beyond the knee of a curve stay with others.

    The size that maximises the product is the knee of the efficiency-execution time profile (Eager,
    Zahorjan and Lazowska, IEEE Transactions on Computers 38(3), 1989).
    """
    base = job.rate_per_node
    if base <= 0:
        return Worth(1.0, job.curve)
    points = ((n, (v / base) ** 2 / n if n else 0.0) for n, v in job.curve.points)
    return Worth(1.0, Curve(tuple(points)))


def priority(job: JobFacts) -> Worth:
    """Speed-up times Slurm's own priority, which covers age, fair share, QOS and partition."""
    return Worth(job.priority, job.curve)


OBJECTIVES: Mapping[str, Objective] = {
    "speedup": speedup,
    "throughput": throughput,
    "efficiency": efficiency,
    "priority": priority,
}


def weigh(objective: Objective, job: JobFacts) -> tuple[Worth, str]:
    """Ask the objective about the job. If it fails, return the fault and the worth of `speedup`.

    A site's own objective may raise or return anything, and that must not stop a tick.
    """
    try:
        worth = objective(job)
        if not isinstance(worth, Worth) or not isinstance(worth.curve, Curve):
            return speedup(job), f"job {job.name}: the objective returned {worth!r}, not a Worth"
        if not 0 <= worth.weight < math.inf or not worth.curve(job.unit) >= 0:
            return speedup(job), f"job {job.name}: the objective returned weight {worth.weight!r}"
    except (Exception, SystemExit) as error:  # the site's code may raise anything
        fault = f"job {job.name}: the objective failed: {type(error).__name__}: {error}"
        return speedup(job), fault
    return worth, ""
