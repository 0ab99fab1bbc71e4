"""What a site wants most: how much each job's progress counts, and on which curve.

An objective turns what is known about one job into a weight and a curve. The solvers never see it:
they maximise the sum of weight times speed-up on the curve, whatever it is.

Also here: the age-amortised price of a rescale, the alternative to the fixed look-ahead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from slurm_hooks.allocation.problem import JobAsk, Problem
from slurm_hooks.allocation.value import Period, is_idle, periods, progress, progress_now
from slurm_hooks.model import Curve

LEAST_FACTOR = 0.05
"""The restart factor is never less: a job that restarts all the time can still be moved."""


@dataclass(frozen=True)
class JobFacts:
    """What an objective may base its answer on.

    `curve` is the throughput over nodes, in whatever unit it was measured. `priority` is Slurm's,
    divided by the mean of the malleable jobs that have one (1.0 where Slurm has given none yet).
    `age_s` counts from submission, `nodes` are held now.
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
        """Throughput of one node where the job runs on its smallest unit."""
        return self.curve(self.unit) / self.unit


@dataclass(frozen=True)
class Worth:
    """How much the job counts: `weight` times its speed-up on `curve` over one unit's rate."""

    weight: float
    curve: Curve


Objective = Callable[[JobFacts], Worth]


def speedup(job: JobFacts) -> Worth:
    """What counts is how well nodes are used, whatever their output: slow models do not starve."""
    return Worth(1.0, job.curve)


def throughput(job: JobFacts) -> Worth:
    """The plain sum of the measured rates, such as images per second.

    Only fair between jobs measured in the same unit; jobs never measured count as slow.
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
    """What the objective says about the job, and what is wrong with it: then `speedup` decides.

    A site's own objective may raise or return anything; that must not stop a tick.
    """
    try:
        worth = objective(job)
        if not isinstance(worth, Worth) or not isinstance(worth.curve, Curve):
            return speedup(job), f"job {job.name}: the objective returned {worth!r}, not a Worth"
        if not 0 <= worth.weight < math.inf or not worth.curve(job.unit) >= 0:
            return speedup(job), f"job {job.name}: the objective returned weight {worth.weight!r}"
    except Exception as error:  # somebody else's code
        fault = f"job {job.name}: the objective failed: {type(error).__name__}: {error}"
        return speedup(job), fault
    return worth, ""


@dataclass(frozen=True)
class Record:
    """How old a job is, and how often it has been rescaled."""

    age_s: float
    restarts: int


def restart_factor(record: Record, restart_s: float) -> float:
    """(age - restarts * S) / (age + S), from 0.05 to 1: the share of a job's life that it trained.

    Sia (Jayaram Subramanya et al., SOSP 2023) multiplies by it what a job would gain from any
    allocation but its own: jobs that paid for many restarts, or have just begun, stay put.
    """
    if record.age_s + restart_s <= 0:
        return 1.0
    factor = (record.age_s - record.restarts * restart_s) / (record.age_s + restart_s)
    return min(1.0, max(LEAST_FACTOR, factor))


def amortised(problem: Problem, records: Sequence[Record]) -> Problem:
    """The problem with rescales priced by age, `records` (job), instead of by the look-ahead.

    With r the restart factor of the job's `grow_s`, progress V over the look-ahead at another size
    counts r * V, at the present size V. The solvers know a fixed cost of changing. With
    (1 - r) V(now) taken off both sides, that is the same: weight times r, and a change costs
    (1 - r) * V(now). A job that
    does not train has nothing to interrupt and keeps its `start_s`.
    """
    spans = periods(problem)
    jobs = (
        amortise(job, restart_factor(record, job.grow_s), spans)
        for job, record in zip(problem.jobs, records)
    )
    return replace(problem, jobs=tuple(jobs))


def amortise(job: JobAsk, factor: float, spans: Sequence[Period]) -> JobAsk:
    """The job with its rescales priced by the restart factor; see `amortised`."""
    now = progress_now(job)
    if is_idle(job) or now <= 0:
        return job
    sizes = [sum(n for n, is_open in zip(job.held, s.is_open) if is_open) for s in spans]
    kept_s = sum(s.seconds * progress(job, size) for s, size in zip(spans, sizes)) / now
    change_s = (1 - factor) / factor * kept_s
    return replace(job, weight=job.weight * factor, grow_s=change_s, shrink_s=change_s)
