"""Small allocation problems of every shape, and their optimum by trying everything."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Iterator

from hypothesis import strategies as st

from slurm_hooks.allocation.problem import JobAsk, NodeClass, Problem
from slurm_hooks.allocation.solvers.greedy import solve_greedy
from slurm_hooks.allocation.solvers.market import Market
from slurm_hooks.allocation.solvers.prices import solve_prices
from slurm_hooks.allocation.value import Row, nodes_to_give, periods, row_fault, row_value
from slurm_hooks.model import Curve


def brute_force(problem: Problem) -> float:
    """The greatest value of all allowed counts, by trying every row of every job."""
    spans = periods(problem)
    choices = [list(rows_of(problem, job)) for job in problem.jobs]
    most = nodes_to_give(problem)

    @functools.lru_cache(None)
    def best(at: int, free: Row, given_before: int) -> float:
        if at == len(choices):
            return 0.0
        values = []
        for row in choices[at]:
            left = tuple(f - n for f, n in zip(free, row))
            given_now = given_before + sum(row)
            if min(left, default=0) >= 0 and given_now <= most:
                rest = best(at + 1, left, given_now)
                values.append(rest + row_value(problem.jobs[at], spans, row))
        return max(values)

    return best(0, tuple(c.capacity for c in problem.classes), 0)


def rows_of(problem: Problem, job: JobAsk) -> Iterator[Row]:
    ranges = [range(c.capacity + 1) for c in problem.classes]
    return (row for row in itertools.product(*ranges) if not row_fault(job, row))


seconds = st.sampled_from([0.0, 1.0, 7.5, 30.0, 200.0])


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    """Any shape that rises at first: also with steps, plateaus and drops."""
    sizes = sorted(draw(st.sets(st.integers(1, 6), min_size=1, max_size=4)))
    values = [draw(st.integers(1, 40)) / 8 for _ in sizes]
    return Curve(((0, 0.0), *zip(sizes, values)))


@st.composite
def jobs(draw: st.DrawFn, name: str, held: tuple[int, ...]) -> JobAsk:
    low = draw(st.integers(1, 4))
    high = low + draw(st.integers(0, 5))
    some = st.frozensets(st.integers(low, high), max_size=4)
    return JobAsk(
        name=name,
        min_nodes=low,
        max_nodes=high,
        curve=draw(curves()),
        held=held,
        usable=tuple(draw(st.booleans()) or draw(st.booleans()) for _ in held),
        unit=draw(st.sampled_from([1, 1, 2])),
        grow_s=draw(seconds),
        shrink_s=draw(seconds),
        weight=draw(st.sampled_from([1.0, 0.0, 0.3, 4.0])),
        claim=draw(st.sampled_from([0.0, 0.0, 1.0, 9.0])),
        may_grow=draw(st.sampled_from([True, True, False])),
        sizes=draw(st.none() | some),
        preferred=draw(st.sampled_from([0, 0, low, low + 1])),
    )


@st.composite
def problems(draw: st.DrawFn, most_classes: int = 3) -> Problem:
    classes = tuple(
        NodeClass(draw(st.integers(0, 4)), draw(st.sampled_from([math.inf, 120.0, 60.0, 20.0])))
        for _ in range(draw(st.integers(1, most_classes)))
    )
    free = [c.capacity for c in classes]
    asks = []
    for at in range(draw(st.integers(1, 3))):
        held = tuple(draw(st.integers(0, f)) if draw(st.booleans()) else 0 for f in free)
        free = [f - h for f, h in zip(free, held)]
        asks.append(draw(jobs(f"job{at}", held)))
    return Problem(
        tuple(asks),
        classes,
        horizon_s=draw(st.sampled_from([120.0, 30.0])),
        ceiling_nodes=draw(st.sampled_from([None, None, 0, 2, 5, 7])),
        survival_s=draw(st.sampled_from([math.inf, 100.0])),
    )


def torn(seed: int, most_jobs: int = 4, most_nodes: int = 6) -> Problem:
    """Two to so many jobs of realistic curves that want more nodes than there are.

    In a twentieth of them, prices alone miss the best answer by up to half.
    """
    draw = random.Random(seed)
    holes = [math.inf, 120.0, 60.0, 30.0, 20.0]
    classes = tuple(
        NodeClass(draw.randint(1, most_nodes), draw.choice(holes)) for _ in range(2 + seed % 2)
    )
    free = [c.capacity for c in classes]
    asks = []
    for at in range(draw.randint(2, most_jobs)):
        held = tuple(draw.randint(0, f) if draw.random() < 0.4 else 0 for f in free)
        free = [f - h for f, h in zip(free, held)]
        least, serial = draw.randint(1, 4), draw.choice([0.0, 0.01, 0.05, 0.2])
        curve = Curve(((0, 0.0), *((n, n / (1 + serial * (n - 1))) for n in (1, 2, 4, 8, 16))))
        asks.append(
            JobAsk(
                name=f"job{at}",
                min_nodes=least,
                max_nodes=least + draw.randint(0, 8),
                curve=curve,
                held=held,
                usable=tuple(draw.random() < 0.8 for _ in held),
                unit=draw.choice([1, 1, 2]),
                grow_s=draw.choice([0.0, 5.0, 20.0]),
                shrink_s=draw.choice([0.0, 5.0, 20.0]),
                claim=draw.choice([0.0, 0.0, 2.0]),
            )
        )
    total = sum(c.capacity for c in classes)
    return Problem(tuple(asks), classes, ceiling_nodes=total - draw.choice([0, 0, 1]))


def priced(problem: Problem, gap: float) -> Market:
    """The market of the problem once prices have been searched from the greedy answer."""
    market = Market(problem, solve_greedy(problem))
    solve_prices(market, gap)
    return market


def agree(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-7)
