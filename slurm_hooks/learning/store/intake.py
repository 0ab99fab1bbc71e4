"""What is new in what a job tells: pure, and it believes nobody's clock.

A user's job can tell anything at any time. So it counts only for sizes that the job can have, so
often, and at moments that have come; what it tells again is nothing new. A gang that counts GPUs
may have had others before: only what it measured on those that it has counts.
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
GAP_S = 30  # between two rates of one size that count
SIZES = 8  # that are looked at in one tick, the newest
WORST_ERROR = 0.5  # relative: what is known no better is not known


@dataclass(frozen=True)
class Told:
    """What all fragments of a job tell together: one rate of each size, the newest last."""

    rates: tuple[Rate, ...] = ()
    counts: Counts = Counts.SAMPLES
    sync: Optional[float] = None
    pauses: Pauses = field(default_factory=Pauses)

    @property
    def digest(self) -> str:
        """Equal as long as nothing else is told."""
        rates = [(r.nodes, r.per_s, r.error, r.at, r.batch) for r in self.rates]
        pauses = self.pauses
        seconds = (pauses.start_s, pauses.grow_s, pauses.shrink_s, pauses.loss_s)
        text = repr((rates, self.counts.value, self.sync, seconds))
        return hashlib.blake2s(text.encode(), digest_size=8).hexdigest()


def told_by(job: MalleableJob) -> Optional[Told]:
    """What a job tells, of sizes that it may have; None if it tells nothing."""
    found = [f.telemetry for f in job.fragments if f.telemetry is not None]
    if not found:
        return None
    newest = max(found, key=_age) if len(found) > 1 else found[0]
    alike = [each for each in found if each.counts is newest.counts]
    return Told(_merged(alike, job), newest.counts, newest.sync, newest.pauses)


def _age(told: Telemetry) -> tuple[int, str]:
    return max((rate.at for rate in told.rates), default=0), repr(told)


def _merged(told: Iterable[Telemetry], job: MalleableJob) -> tuple[Rate, ...]:
    request = job.request
    newest: dict[int, Rate] = {}
    since = _since(job)
    for rate in sorted((r for each in told for r in each.rates), key=_order):
        is_a_size = rate.nodes <= request.max_nodes and rate.nodes % request.unit == 0
        if is_a_size and rate.error <= WORST_ERROR and rate.at >= since:
            newest[rate.nodes] = rate
    return tuple(sorted(newest.values(), key=_order)[-SIZES:])


def _since(job: MalleableJob) -> float:
    """From when on its rates are those of the GPUs that it has: a gang of slots may have had others
    before, and tells of those too."""
    if job.request.slot is None or not job.way.works_as_one:
        return -math.inf
    starts = (f.start.timestamp() for f in job.active if f.start is not None)
    return min(starts, default=math.inf)


def _order(rate: Rate) -> tuple[int, int, float]:
    return rate.at, rate.nodes, rate.per_s


@dataclass(frozen=True)
class News:
    """Rates to be added; `is_all` is false if more was told than may count now."""

    rates: tuple[Rate, ...]
    is_all: bool


def news(told: Told, kept: Sequence[Rate], now_s: int) -> News:
    """What of it the rates kept so far, in order of time, do not have.

    A rate that was measured again is new even if it is the same: it confirms the other.
    """
    known = {(rate.nodes, rate.per_s, rate.batch) for rate in kept}
    last = {rate.nodes: rate.at for rate in kept}
    fresh = [
        rate
        for rate in told.rates
        if last.get(rate.nodes, 0) < rate.at <= now_s
        or (rate.nodes, rate.per_s, rate.batch) not in known
    ]
    due = [rate for rate in fresh if now_s - last.get(rate.nodes, now_s - GAP_S) >= GAP_S]
    dated = (replace(rate, at=_moment(rate, last.get(rate.nodes), now_s)) for rate in due)
    return News(tuple(sorted(dated, key=_order)), len(due) == len(fresh))


def _moment(rate: Rate, last: Optional[int], now_s: int) -> int:
    """When it was measured; now if its clock is ahead, or was set back."""
    return rate.at if (last or 0) < rate.at <= now_s else now_s


def in_turn(waiting: Iterable[T], user_of: Callable[[T], str]) -> list[T]:
    """One of each user before the second of any, those first who have few, else in their order:
    there may not be time for all, and who has many jobs keeps nobody waiting."""
    by_user: dict[str, list[T]] = {}
    for one in waiting:
        by_user.setdefault(user_of(one), []).append(one)
    turns = zip_longest(*sorted(by_user.values(), key=len), fillvalue=None)
    return [one for turn in turns for one in turn if one is not None]
