"""Finds the sizes that a job may have: allowed by its request, without sizes at which it fails.

A script cannot have a size at which it fails repeatedly while it trains at others. Failures are in
the marks of fragments. The job itself reports, by a rate, that it trains at a size.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Optional

from slurm_hooks.model import Detail, FailedSize, MalleableJob, Reason, Why
from slurm_hooks.model.plural import unit_word
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.moments import is_within


def trained(job: MalleableJob) -> dict[int, int]:
    """The sizes of the request at which the job has reported a rate, each with the unix second."""
    low, high = job.request.min_nodes, job.request.max_nodes
    rates = [rate for f in job.fragments if f.telemetry for rate in f.telemetry.rates]
    ranked = sorted(rates, key=lambda rate: rate.at)
    return {rate.nodes: rate.at for rate in ranked if low <= rate.nodes <= high}


def with_failure(ground: Ground, job: MalleableJob, nodes: int) -> tuple[FailedSize, ...]:
    """Add a failure to those that count, and keep as many of each size as matter."""
    failures = {*_lasting(ground, job), FailedSize(nodes, ground.now)}
    kept: list[FailedSize] = []
    for size in sorted(failures, reverse=True):
        if sum(k.nodes == size.nodes for k in kept) < ground.settings.failures.limit:
            kept.append(size)
    return tuple(sorted(kept))


def failing(ground: Ground, job: MalleableJob, more: tuple[FailedSize, ...] = ()) -> frozenset[int]:
    """Sizes at which the script has failed as often in a row as it may, but trained at another.

    `more` failures are not in the marks yet.
    """
    seen = trained(job)
    if not seen or not job.way.works_as_one:
        return frozenset()
    failed = {*_lasting(ground, job), *more}
    counts = Counter(s.nodes for s in failed if s.at.timestamp() > seen.get(s.nodes, 0))
    bad = frozenset(n for n, count in counts.items() if count >= ground.settings.failures.limit)
    return bad if seen.keys() - bad else frozenset()


def avoided(job: MalleableJob, bad: frozenset[int]) -> frozenset[int]:
    """The `bad` sizes, and sizes that a job with failures on record had better avoid.

    Those are the sizes at which it never trained, until it has trained again. Another failure there
    might stop it for good.
    """
    if not bad or not job.failures:
        return bad
    seen = trained(job)
    failed = max(s.at for f in job.stirring for s in f.mark.failed_sizes)
    if max(seen.values()) > failed.timestamp():
        return bad
    sizes = range(job.request.unit, job.request.max_nodes + 1, job.request.unit)
    return frozenset(sizes) - (seen.keys() - bad)


def only(
    job: MalleableJob, bad: frozenset[int], allowed: frozenset[int]
) -> Optional[frozenset[int]]:
    """The only sizes that the job is given now, among the `allowed` sizes if there are any.

    None if it may have all that its request names.
    """
    away = avoided(job, bad)
    if not (away or allowed):
        return None
    every = range(job.request.unit, job.request.max_nodes + 1, job.request.unit)
    return frozenset(allowed or every) - away


def why_not(job: MalleableJob, bad: frozenset[int]) -> Reason:
    """Say where it fails and where it trains, and suggest a better request if possible."""
    good = sorted(trained(job).keys() - bad)
    detail = Detail(sizes_failing=tuple(sorted(bad)), sizes_good=tuple(good))
    if request := _request(good, bad, job):
        detail["request"] = request
    return Reason(Why.SIZE, detail)


def _lasting(ground: Ground, job: MalleableJob) -> set[FailedSize]:
    span = timedelta(seconds=ground.settings.failures.avoid_s)
    noted = (size for f in job.stirring for size in f.mark.failed_sizes)
    return {size for size in noted if is_within(ground.now, size.at, span)}


def _request(good: list[int], bad: frozenset[int], job: MalleableJob) -> str:
    low, high, own = good[0], good[-1], job.request.unit
    if low == high:
        return ""  # too little is known
    for unit in range(own, low + 1, own):
        sizes = set(range(low, high + 1, unit))
        if low % unit == 0 and sizes.issuperset(good) and sizes.isdisjoint(bad):
            word = unit_word(unit, job.request.size_unit)
            return f"{low}-{high}" + (f",unit={word}" if word != "1" else "")
    return ""
