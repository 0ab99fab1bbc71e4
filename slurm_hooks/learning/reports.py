"""The rates of a job that count, from the reports in the Comments of its fragments.

A job's user can write any text there, but it changes only the user's own job. A rate counts only
at a size that the job may have, and not before its time. A job that changes its work is learned
again: rates from before the change contradict the newest rates, and are left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Optional

from slurm_hooks.learning.throughput import MOST_SIZES
from slurm_hooks.model import MalleableJob, Pauses, Rate, Telemetry
from slurm_hooks.model.resources import GPU

AHEAD_S = 300  # munge refuses a node whose clock is further ahead
WORST_ERROR = 0.5  # relative. A rate with a larger error does not count
SIGMAS = 4.0
LEAST_CHANGE = 0.05  # in the logarithm. A smaller change leaves the allocation as it is
BATCH_CHANGE = 0.02  # relative
JUMP = math.log(2)  # from the size at which the network is at its worst to the next


@dataclass(frozen=True)
class JobReport:
    """The rates that count, the newest last, and the rest of the newest report."""

    rates: tuple[Rate, ...] = ()
    sync: Optional[float] = None
    pauses: Pauses = field(default_factory=Pauses)


def report_of(job: MalleableJob, now_s: float) -> JobReport:
    """The reports of all fragments together, without rates from after `now_s`. Empty without a
    report.
    """
    limit_s = now_s + AHEAD_S
    reports = [_until(limit_s, f.telemetry) for f in job.fragments if f.telemetry is not None]
    if not reports:
        return JobReport()
    newest = max(reports, key=_age)
    alike = (each for each in reports if each.counts is newest.counts)
    since = _since(job)
    usable = (r for each in alike for r in each.rates if _may_count(r, job) and r.at >= since)
    return JobReport(current(usable), newest.sync, newest.pauses)


def _until(most_s: float, telemetry: Telemetry) -> Telemetry:
    """A rate from the future would be the newest forever."""
    return replace(telemetry, rates=tuple(r for r in telemetry.rates if r.at <= most_s))


_COUNTER = re.compile(r"[-_.]\d+$")


def family_of(job: MalleableJob) -> Optional[Hashable]:
    """Equal for jobs that should scale equally: the same user, script, unit and kind of node.

    A counter at the end of the name makes no difference: trial-7 and trial-8 are of a family. None
    without a name, and for a gang that takes any type of GPU.
    """
    request, needs = job.request, job.needs
    if not request.name or (request.slot is not None and request.slot.gres == GPU):
        return None
    name = _COUNTER.sub("", request.name) or request.name
    kind = request.slot or (needs.features, needs.gres)
    return job.user, name, request.unit, request.engine, kind


def _age(telemetry: Telemetry) -> tuple[int, str]:
    return max((rate.at for rate in telemetry.rates), default=0), repr(telemetry)


def _may_count(rate: Rate, job: MalleableJob) -> bool:
    is_a_size = rate.nodes <= job.request.max_nodes and rate.nodes % job.request.unit == 0
    return is_a_size and rate.error <= WORST_ERROR


def _since(job: MalleableJob) -> float:
    """The moment since which its rates belong to its present GPUs.

    A gang of slots may have had other GPUs before, and reports their rates too.
    """
    if job.request.slot is None or not job.way.works_as_one:
        return -math.inf
    starts = (f.start.timestamp() for f in job.active if f.start is not None)
    return min(starts, default=math.inf)


def current(rates: Iterable[Rate]) -> tuple[Rate, ...]:
    """The rates of the job's present work, in order of time, the newest of each size.

    They are the newest rates, back to the first that contradicts a newer rate.
    """
    phase: dict[int, Rate] = {}
    after: Optional[Rate] = None
    for rate in _newest_first(rates):
        if after is not None and (is_other_batch(rate, after) or _contradicts(phase, rate)):
            break
        phase.setdefault(rate.nodes, rate)
        after = rate
    return tuple(reversed(phase.values()))


def _newest_first(rates: Iterable[Rate]) -> list[Rate]:
    """Return the rates of the newest MOST_SIZES sizes and of the smallest: a flood of others must
    not delay a tick.
    """
    ordered = in_order(rates)[::-1]
    sizes = list(dict.fromkeys(rate.nodes for rate in ordered))
    kept = {*sizes[:MOST_SIZES], min(sizes, default=0)}
    return [rate for rate in ordered if rate.nodes in kept]


def in_order(rates: Iterable[Rate]) -> list[Rate]:
    """Sort by time. Rates of the same second always have the same order."""
    return sorted(rates, key=lambda r: (r.at, r.nodes, r.per_s, r.error, r.batch))


def is_other_batch(before: Rate, now: Rate) -> bool:
    """Tell whether the batch has changed, both the whole batch and each node's batch.

    False unless both rates report their batch.
    """
    if not before.batch or not now.batch:
        return False
    whole = math.log(now.batch) - math.log(before.batch)
    each = whole - math.log(now.nodes / before.nodes)
    return min(abs(whole), abs(each)) > BATCH_CHANGE


def _contradicts(phase: dict[int, Rate], rate: Rate) -> bool:
    same = phase.get(rate.nodes)
    if same is not None:
        return abs(math.log(same.per_s / rate.per_s)) > _allowed(same, rate)
    return any(_is_impossible(other, rate) for other in phase.values())


def _is_impossible(one: Rate, other: Rate) -> bool:
    """Tell whether the larger size is far better than linear over the smaller size.

    Somewhat better is possible: 2 nodes can be slower than 1, and 3 faster than 2.
    """
    small, large = sorted((one, other), key=lambda r: r.nodes)
    gain = math.log(large.per_s / small.per_s)
    return gain > math.log(large.nodes / small.nodes) + JUMP + _allowed(one, other)


def _allowed(one: Rate, other: Rate) -> float:
    return LEAST_CHANGE + SIGMAS * math.hypot(one.error, other.error)
