"""Selects the new rates in a job's report. It is pure, and trusts no clock.

A user's job can report anything at any time. So a rate counts only if the job can have its size,
not too often, and only if its moment has come. A repeated report is not new. A gang that counts
GPUs may have had other GPUs before, so only measurements on its present GPUs count.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Callable, Optional, TypeVar

from slurm_hooks.model import Counts, MalleableJob, Pauses, Rate, Telemetry

T = TypeVar("T")
GAP_S = 30  # between two rates of the same size that count
SIZES = 8  # the newest, that a tick reads
WORST_ERROR = 0.5  # relative. A rate with a larger error does not count


@dataclass(frozen=True)
class JobReport:
    """The report of all fragments of a job together: a rate of each size, the newest last."""

    rates: tuple[Rate, ...] = ()
    counts: Counts = Counts.SAMPLES
    sync: Optional[float] = None
    pauses: Pauses = field(default_factory=Pauses)

    @property
    def digest(self) -> str:
        """A text that stays equal as long as the report does."""
        rates = [(r.nodes, r.per_s, r.error, r.at, r.batch) for r in self.rates]
        pauses = self.pauses
        seconds = (pauses.start_s, pauses.grow_s, pauses.shrink_s, pauses.loss_s)
        text = repr((rates, self.counts.value, self.sync, seconds))
        return hashlib.blake2s(text.encode(), digest_size=8).hexdigest()


def report_of(job: MalleableJob) -> Optional[JobReport]:
    """A job's report about sizes that it may have. None without a report."""
    telemetry = [f.telemetry for f in job.fragments if f.telemetry is not None]
    if not telemetry:
        return None
    newest = max(telemetry, key=_age) if len(telemetry) > 1 else telemetry[0]
    similar = [each for each in telemetry if each.counts is newest.counts]
    return JobReport(_merged(similar, job), newest.counts, newest.sync, newest.pauses)


def _age(telemetry: Telemetry) -> tuple[int, str]:
    return max((rate.at for rate in telemetry.rates), default=0), repr(telemetry)


def _merged(telemetry: Iterable[Telemetry], job: MalleableJob) -> tuple[Rate, ...]:
    request = job.request
    newest: dict[int, Rate] = {}
    since = _since(job)
    for rate in sorted((r for each in telemetry for r in each.rates), key=_order):
        is_a_size = rate.nodes <= request.max_nodes and rate.nodes % request.unit == 0
        if is_a_size and rate.error <= WORST_ERROR and rate.at >= since:
            newest[rate.nodes] = rate
    return tuple(sorted(newest.values(), key=_order)[-SIZES:])


def _since(job: MalleableJob) -> float:
    """The moment since which its rates belong to its present GPUs.

    A gang of slots may have had other GPUs before, and reports their rates too.
    """
    if job.request.slot is None or not job.way.works_as_one:
        return -math.inf
    starts = (f.start.timestamp() for f in job.active if f.start is not None)
    return min(starts, default=math.inf)


def _order(rate: Rate) -> tuple[int, int, float]:
    return rate.at, rate.nodes, rate.per_s


@dataclass(frozen=True)
class News:
    """Rates to be added. `is_all` is false if the report has more than may count now."""

    rates: tuple[Rate, ...]
    is_all: bool


def news(report: JobReport, kept: Sequence[Rate], now_s: int) -> News:
    """The rates in the report that the kept rates, in order of time, do not have.

    A rate that was measured again is new even if it is equal, since it confirms the other.
    """
    known = {(rate.nodes, rate.per_s, rate.batch) for rate in kept}
    last = {rate.nodes: rate.at for rate in kept}
    fresh = [
        rate
        for rate in report.rates
        if last.get(rate.nodes, 0) < rate.at <= now_s
        or (rate.nodes, rate.per_s, rate.batch) not in known
    ]
    due = [rate for rate in fresh if now_s - last.get(rate.nodes, now_s - GAP_S) >= GAP_S]
    dated = (replace(rate, at=_moment(rate, last.get(rate.nodes), now_s)) for rate in due)
    return News(tuple(sorted(dated, key=_order)), len(due) == len(fresh))


def _moment(rate: Rate, last: Optional[int], now_s: int) -> int:
    """The moment of its measurement, or now if its clock is ahead, or was set back."""
    return rate.at if (last or 0) < rate.at <= now_s else now_s


def in_turn(waiting: Iterable[T], user_of: Callable[[T], str]) -> list[T]:
    """Take an item of each user before the second of any, users with few items first.

    There may not be time for all items. So a user with many jobs does not delay the others.
    """
    by_user: dict[str, list[T]] = {}
    for one in waiting:
        by_user.setdefault(user_of(one), []).append(one)
    turns = zip_longest(*sorted(by_user.values(), key=len), fillvalue=None)
    return [one for turn in turns for one in turn if one is not None]
