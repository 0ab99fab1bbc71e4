"""The exact answer of a small problem, found by searching what prices leave open.

An answer that is better than the best one known consists of rows that cost their job less than the
gap between bound and value, at any prices. These rows are combined job by job. A partial answer is
dropped as soon as its own bound is no better than the best value. No solver has to be installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, product
from math import prod
from typing import NamedTuple

from slurm_hooks.allocation.problem import JobAsk
from slurm_hooks.allocation.solvers.knapsack import TooLarge
from slurm_hooks.allocation.solvers.market import Market, Priced
from slurm_hooks.allocation.value import Counts, Row, may_gain, row_fault, row_value

MOST_ROWS = 5_000
"""Rows of all jobs beyond which they are not listed: a tenth of a second of Python."""
MOST_PARTS = 50_000
"""Combinations beyond which the search gives up: a tenth of a second too."""


class _Choice(NamedTuple):
    """A row (class), its value, and its value less the price of its nodes."""

    row: Row
    value: float
    surplus: float


_Parts = dict[Row, tuple[float, Counts]]  # nodes used (class) -> the best value, and its rows


def finish(market: Market) -> Priced:
    """The best answer there is, so that its value is its bound.

    Raises TooLarge where the problem has too many rows, or prices leave too many of them open.
    """
    known = market.result()
    if sum(_row_count(job, market.caps) for job in market.problem.jobs) > MOST_ROWS:
        raise TooLarge(f"more than {MOST_ROWS} rows")
    above = known.value + 1e-9 * max(1.0, abs(known.value))
    menus = [_open_rows(market, at, known.bound - known.value) for at in range(len(market.bids))]
    order = sorted(range(len(menus)), key=lambda at: len(menus[at]))
    most = [market.bids[at].surplus for at in order]
    rest = [sum(most) - sure for sure in accumulate(most)]
    parts: _Parts = {(0,) * len(market.caps): (0.0, ())}
    tried = 0
    for at, later in zip(order, rest):
        tried += len(parts) * len(menus[at])
        if tried > MOST_PARTS:
            raise TooLarge(f"more than {MOST_PARTS} combinations")
        parts = _extended(market, parts, menus[at], above - later)
    value, rows = max(parts.values(), default=(known.value, ()))
    if value <= above:
        return replace(known, bound=known.value)
    placed = dict(zip(order, rows))
    return Priced(tuple(placed[at] for at in range(len(order))), value, value)


def _row_count(job: JobAsk, caps: Sequence[int]) -> int:
    """How many rows `_rows` lists at most."""
    return sum(prod(map(len, ranges)) for ranges in _ranges(job, caps))


def _ranges(job: JobAsk, caps: Sequence[int]) -> Iterator[list[range]]:
    """Nodes of each class: what a job may keep of what it holds, and what it may have beyond."""
    yield [range(0, n + 1, job.unit) for n in job.held]
    gains = (may_gain(job, c) for c in range(len(caps)))
    tops = [cap if gain else n for cap, gain, n in zip(caps, gains, job.held)]
    yield [range(n, min(top, job.max_nodes) + 1, job.unit) for n, top in zip(job.held, tops)]


def _open_rows(market: Market, at: int, gap: float) -> list[_Choice]:
    """The allowed rows of a job that cost it no more than `gap` against its best one."""
    job, best = market.problem.jobs[at], market.bids[at].surplus
    found = {}
    for row in (row for ranges in _ranges(job, market.caps) for row in product(*ranges)):
        if row not in found and not row_fault(job, row):
            value = row_value(job, market.spans, row)
            surplus = value - sum(p * n for p, n in zip(market.prices, row))
            if surplus >= best - gap - 1e-9 * max(1.0, abs(best)):
                found[row] = _Choice(row, value, surplus)
    return list(found.values())


def _extended(market: Market, parts: _Parts, menu: Sequence[_Choice], above: float) -> _Parts:
    """The partial answers with one job more, without those that cannot be worth `above`."""
    longer: _Parts = {}
    for (used, (value, rows)), choice in product(parts.items(), menu):
        now = tuple(map(sum, zip(used, choice.row)))
        left = [cap - n for cap, n in zip(market.caps, now)]
        if min(left) < 0 or sum(left) < market.spare:
            continue
        worth = value + choice.value
        if worth + market.worth(market.prices, left) > above:
            longer[now] = max(longer.get(now, (worth, ())), (worth, (*rows, choice.row)))
    return longer
