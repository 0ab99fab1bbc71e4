"""States the allocation problem in counts: how many nodes of each class each job should hold.

Equal nodes form a class, so the problem does not grow with the machine. All solvers share these
values as input and output.
"""

from __future__ import annotations

import math
from bisect import bisect
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Optional

from slurm_hooks.model import Curve, Solve


@dataclass(frozen=True)
class JobAsk:
    """The wants, possibilities and holdings of a job.

    `held[c]` counts the nodes of class c that it holds now. `usable[c]` says whether it may get new
    nodes of class c. It may always keep its nodes. Sizes are in nodes and multiples of `unit` in
    each class. `grow_s` and `shrink_s` are the seconds without progress after growing and
    shrinking. A job with `may_grow` False keeps or loses nodes.

    `weight` multiplies its progress. Each second with MIN nodes or more is also worth `claim`.
    `beside` is its speed-up from nodes outside all classes, which a rescale interrupts too.
    Speed-ups count against the throughput `per_node`. If that is 0, they count against the smallest
    size.

    If `sizes` is given, it may have only those sizes from MIN to MAX. Of sizes with equal worth it
    takes `preferred`.
    """

    name: str
    min_nodes: int
    max_nodes: int
    curve: Curve
    held: tuple[int, ...]
    usable: tuple[bool, ...]
    unit: int = 1
    grow_s: float = 0.0
    shrink_s: float = 0.0
    weight: float = 1.0
    claim: float = 0.0
    may_grow: bool = True
    beside: float = 0.0
    per_node: float = 0.0
    sizes: Optional[frozenset[int]] = None
    preferred: int = 0

    def may_have(self, size: int) -> bool:
        """Tell whether it may train with so many nodes."""
        is_within = self.min_nodes <= size <= self.max_nodes
        return is_within and (self.sizes is None or size in self.sizes)

    def settled(self, size: int) -> int:
        """The largest number of these nodes, at most MAX, with which it may train, or 0."""
        if self.sizes is None or not self.min_nodes <= size <= self.max_nodes:
            return size if self.min_nodes <= size <= self.max_nodes else 0
        at = bisect(self._ranked, size)
        return self._ranked[at - 1] if at else 0

    @cached_property
    def _ranked(self) -> list[int]:
        return sorted(n for n in self.sizes or () if self.may_have(n) and n % self.unit == 0)

    @cached_property
    def size(self) -> int:
        """The nodes that it holds now."""
        return sum(self.held)

    @cached_property
    def is_off_unit(self) -> bool:
        """Tell whether its nodes in some class are not a multiple of its unit.

        Such a job (a hole that ends for a single node split its unit) is kept unchanged or given
        up, never resized.
        """
        return self.unit > 1 and any(n % self.unit for n in self.held)

    @cached_property
    def holdings(self) -> tuple[tuple[int, int], ...]:
        """The classes in which it holds nodes, each with their number."""
        return tuple((c, n) for c, n in enumerate(self.held) if n)

    @cached_property
    def speedup_now(self) -> float:
        """Its speed-up with its present nodes, up to MAX."""
        return self.speedup(self.settled(min(self.size, self.max_nodes)))

    @cached_property
    def rate_per_node(self) -> float:
        """The throughput against which its speed-ups count."""
        return self.per_node or self.curve(self.unit) / self.unit

    def speedup(self, nodes: int) -> float:
        """Throughput at `nodes` over the throughput per node at its smallest size.

        A job at MIN nodes has speed-up MIN times its efficiency there. So jobs of different MIN
        compare by well-used nodes.
        """
        base = self.rate_per_node
        return self.curve(nodes) / base if base > 0 else 0.0


def beside_core(ask: JobAsk, core: int, trains: bool) -> JobAsk:
    """The ask of a job that also has `core` nodes outside all classes.

    Its curve shows how much more nodes add to these. With `trains` the core trains alone.
    """
    alone = ask.curve(core) if trains else 0.0
    sizes = sorted({1, *(n - core for n, _ in ask.curve.points if n > core)})
    added = ((n, max(0.0, ask.curve(n + core) - alone)) for n in sizes)
    return replace(
        ask,
        curve=Curve(((0, 0.0), *added)),
        sizes=None if ask.sizes is None else frozenset(n - core for n in ask.sizes if n > core),
        preferred=max(0, ask.preferred - core),
        per_node=ask.rate_per_node,
        beside=ask.speedup(core) if trains else 0.0,
    )


@dataclass(frozen=True)
class NodeClass:
    """`capacity` nodes, free or held by a job of the problem, that stay open for `open_s` seconds.

    `open_s` is infinite for nodes without a claim.
    """

    capacity: int
    open_s: float = math.inf


@dataclass(frozen=True)
class Problem:
    """Jobs, classes, and the seconds to look ahead.

    All jobs together have at most `ceiling_nodes` (None: no limit), and give back the rest.
    `survival_s` is the mean time after which an open hole closes unplanned (infinite: never). It
    discounts later periods.
    """

    jobs: tuple[JobAsk, ...]
    classes: tuple[NodeClass, ...]
    horizon_s: float = 120.0
    ceiling_nodes: Optional[int] = None
    survival_s: float = math.inf

    def __post_init__(self) -> None:
        for job in self.jobs:
            if not len(job.held) == len(job.usable) == len(self.classes):
                raise ValueError(f"job {job.name} does not have {len(self.classes)} classes")
        if self.horizon_s <= 0:
            raise ValueError("the horizon must be positive")


class OutOfTime(Exception):
    """A part of a search has used up its time without an answer."""


def never() -> bool:
    """Tell a search that its time is not up."""
    return False


@dataclass(frozen=True)
class Limits:
    """The time that a solver may take in seconds, and the relative gap at which it may stop."""

    seconds: float = 5.0
    gap: float = 1e-3


@dataclass(frozen=True)
class Allocation:
    """Nodes by (job, class), in the problem's order, and how they were found."""

    counts: tuple[tuple[int, ...], ...]
    solve: Solve = field(default_factory=Solve)
