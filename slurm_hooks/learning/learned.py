"""Turns rates into a curve that the allocator can trust, whatever the job reported.

The curve rises, is finite and never above linear of the job's own rate on its smallest unit. A
false report can make a job look better than it is at sizes that it claims to have measured, but
never better than linear.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Optional

from slurm_hooks.allocation.curves import curve_of
from slurm_hooks.learning.reports import current, family_of, report_of
from slurm_hooks.learning.throughput import (
    MODEL_ERROR,
    SHAPES,
    Belief,
    Seen,
    believe,
    log_speedups,
    seen_of,
)
from slurm_hooks.model import Curve, Learned, MalleableJob, Rate

PLAUSIBLE = 8
ENOUGH = 2  # sizes. With fewer, mean curves did worse than equal shares
KEPT = 4096  # results of 8 to 20 kB: those of the jobs of a loop, and 80 MB at most
NEAR = 2.0  # units. Without a size so small they did worse too


def learned_by(jobs: Sequence[MalleableJob], now_s: float) -> dict[int, Learned]:
    """Return the knowledge of how each of a user's jobs scales, by job id, from reports until
    `now_s`.
    """
    reports = {job.job_id: report_of(job, now_s).rates for job in jobs}
    of_family: dict[Optional[Hashable], list[Rate]] = defaultdict(list)
    for job in jobs:
        of_family[family_of(job)] += reports[job.job_id]
    shared = {family: current(rates) if family else () for family, rates in of_family.items()}
    return {
        job.job_id: learn_among(
            reports[job.job_id],
            shared[family_of(job)],
            job.request.unit,
            job.request.max_nodes,
            job.request.min_nodes,
        )
        for job in jobs
    }


def learn_among(
    rates: tuple[Rate, ...],
    of_family: tuple[Rate, ...],
    unit: int,
    max_nodes: int,
    min_nodes: int = 0,
) -> Learned:
    """Return the knowledge from a job's own rates, or from its family's while these are too few."""
    own = learn(rates, unit, max_nodes, min_nodes)
    if own.curve or rates == of_family:
        return own
    shared = learn(of_family, unit, max_nodes, min_nodes)
    return replace(shared, sizes_seen=own.sizes_seen, is_shared=True) if shared.curve else own


@lru_cache(maxsize=KEPT)
def learn(rates: tuple[Rate, ...], unit: int, max_nodes: int, min_nodes: int = 0) -> Learned:
    """Return the knowledge about a job with these rates, of different sizes, up to `max_nodes`.

    `curve` is None with fewer than two sizes, or without a size near the job's smallest, of at most
    two units or `min_nodes`.
    """
    seen = seen_of(rates, unit)
    belief = believe(seen)
    sizes = _sizes(seen, unit, max_nodes)
    likely = tuple(_curve(k, log_unit, seen, sizes, unit) for k, log_unit in _drawn(belief))
    is_enough = len(seen) >= ENOUGH and seen[0].units <= max(NEAR, min_nodes / unit)
    curve = _mean(belief, seen, sizes, unit) if is_enough else None
    return Learned(curve, likely, tuple(round(s.units * unit) for s in seen))


def _sizes(seen: Sequence[Seen], unit: int, max_nodes: int) -> list[int]:
    """The nodes for which the curve has points.

    They are few, since each costs the solver a variable.
    """
    most = max(max_nodes // unit, 1)
    sizes = {unit * 2**k for k in range(most.bit_length())} | {unit * most}
    sizes |= {round(s.units * unit) for s in seen if s.units >= 1}
    return sorted(n for n in sizes if n <= unit * most)


def _mean(belief: Belief, seen: Sequence[Seen], sizes: Sequence[int], unit: int) -> Curve:
    """The mean speed-up of the likely shapes, drawn towards the measurements."""
    log_unit = math.fsum(w * u for w, u in zip(belief.weights, belief.log_units))
    logs = {u: _mean_log(belief, u) for u in {n / unit for n in sizes} | {s.units for s in seen}}
    bend = _Bend([(s, s.log_rate - log_unit - logs[s.units]) for s in seen])
    return _safe([(n, log_unit + logs[n / unit] + bend(n / unit)) for n in sizes])


def _mean_log(belief: Belief, units: float) -> float:
    values = log_speedups(units)
    return math.log(math.fsum(w * math.exp(values[k]) for k, w in zip(belief.at, belief.weights)))


def _curve(
    shape: int, log_unit: float, seen: Sequence[Seen], sizes: Sequence[int], unit: int
) -> Curve:
    """The curve of a single shape, drawn towards the measurements."""
    bend = _Bend([(s, s.log_rate - log_unit - log_speedups(s.units)[shape]) for s in seen])
    return _safe([(n, log_unit + log_speedups(n / unit)[shape] + bend(n / unit)) for n in sizes])


def _safe(points: Sequence[tuple[int, float]]) -> Curve:
    return curve_of((n, math.exp(min(max(v, -40.0), 40.0))) for n, v in points)


class _Bend:
    """The shift of the curve, in the logarithm, that brings it close to the seen rates.

    At a seen size it is the part of the difference that is due to the shape and not to the
    measurement. Between sizes it is linear over their logarithm. Beyond them it stays as at the
    last.
    """

    def __init__(self, misses: Sequence[tuple[Seen, float]]) -> None:
        self._at = [math.log(s.units) for s, _ in misses]
        self._by = [miss * MODEL_ERROR**2 / (MODEL_ERROR**2 + s.error**2) for s, miss in misses]

    def __call__(self, units: float) -> float:
        if not self._at:
            return 0.0
        where = math.log(units)
        right = bisect_left(self._at, where)
        if right == 0 or right == len(self._at):
            return self._by[min(right, len(self._by) - 1)]
        left = right - 1
        part = (where - self._at[left]) / (self._at[right] - self._at[left])
        return self._by[left] + part * (self._by[right] - self._by[left])


def _drawn(belief: Belief) -> list[tuple[int, float]]:
    """Several shapes of equal likelihood, evenly from the steepest to the flattest."""
    rows = sorted(
        zip(belief.at, belief.weights, belief.log_units),
        key=lambda row: SHAPES[row[0]].cliff + SHAPES[row[0]].slope,
    )
    drawn: list[tuple[int, float]] = []
    passed, wanted = 0.0, 0.5 / PLAUSIBLE
    for shape, weight, log_unit in rows:
        passed += weight
        while wanted < passed and len(drawn) < PLAUSIBLE:
            drawn.append((shape, log_unit))
            wanted += 1 / PLAUSIBLE
    return drawn
