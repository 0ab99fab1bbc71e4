"""Throughput curves: for jobs nobody has measured, and from measurements nobody vouches for.

Measurements come from user jobs. A curve made here rises, stays finite and never claims more than
linear speed-up, so that no job can talk itself into more nodes than a perfect scaler would get.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from slurm_hooks.model import Curve

SERIAL_FRACTION = 0.005
"""The usual serial fraction of Amdahl's law.

Least squares on log speed-up, one fraction for each of the seven models (1 to 64 nodes) in the
scaling table published with BFTrainer: 0.0016 (vgg16) to 0.0244 (AlexNet), median 0.00495.
"""


def prior(serial_fraction: float = SERIAL_FRACTION, max_nodes: int = 64) -> Curve:
    """A curve to assume of a job: Amdahl's law, in units of one node's rate.

    speed-up(n) = 1 / (s + (1 - s) / n), G. M. Amdahl, AFIPS 1967, with the serial fraction s. The
    points are the powers of two and `max_nodes`: few, since each costs the solver a variable; the
    chord between them is at most 1.8 % low up to 64 nodes for the default s.
    Raises ValueError unless 0 <= s <= 1 and max_nodes >= 1.
    """
    if not 0 <= serial_fraction <= 1 or max_nodes < 1:
        raise ValueError(f"no curve for serial fraction {serial_fraction} and {max_nodes} nodes")
    sizes = [2**k for k in range(max_nodes.bit_length()) if 2**k < max_nodes]
    points = ((n, n / (1 + serial_fraction * (n - 1))) for n in [*sizes, max_nodes])
    return Curve(((0, 0.0), *points))


CLAIM, BEYOND, FAR_BEYOND = 1.5, 0.5, 0.1
"""What a node more than its first unit counts for a job about which nothing is known, up to its
share, up to twice the share, and beyond: up to there more than for a job that scales perfectly,
since that one would keep it for the sake of the pauses that the change costs; beyond, it takes what
nobody else makes better use of."""


def equal_share(share: int, max_nodes: int, unit: int = 1) -> Curve:
    """The curve of a job about which too little is known to weigh it against others.

    It gets its share, since nobody's curve is above linear. Raises ValueError unless all are at
    least 1.
    """
    if share < 1 or max_nodes < 1 or unit < 1:
        raise ValueError(f"no share of {share} nodes out of {max_nodes} by {unit}")
    first, second = min(share, max_nodes), min(2 * share, max_nodes)
    base = min(unit, first)
    worth = {base: float(base)}
    worth[first] = base + CLAIM * (first - base)
    worth[second] = worth[first] + BEYOND * (second - first)
    worth[max_nodes] = worth[second] + FAR_BEYOND * (max_nodes - second)
    return Curve(((0, 0.0), *sorted(worth.items())))


BEYOND_SHARE = 0.98  # so little less that only pools among themselves notice


def pool_curve(share: int, most: int, unit: int = 1) -> Curve:
    """The curve of workers that do not need each other: linear up to the `most` nodes they want.

    Beyond its share a node counts a little less, or the first of two large pools would keep all
    that there is. The first `unit` is within every share.
    """
    most = max(most, unit)
    first = min(max(share, unit), most)
    worth = {first: float(first), most: first + BEYOND_SHARE * (most - first)}
    return Curve(((0, 0.0), *sorted(worth.items())))


def equal_shares(most: Sequence[int], nodes: int, least: Sequence[int] = ()) -> list[int]:
    """What each job has if all have the same, as far as it can use it: `most` (job), at least
    `least` (job; 1 if it is empty). Those that could use most come first where it does not divide.
    """
    bounds = list(zip(least or [1] * len(most), most))

    def at(level: int) -> list[int]:
        return [max(low, min(high, level)) for low, high in bounds]

    level, above = 1, max(nodes, 1) + 1
    while level + 1 < above:
        middle = (level + above) // 2
        level, above = (middle, above) if sum(at(middle)) <= nodes else (level, middle)
    shares = at(level)
    left = max(nodes - sum(shares), 0)
    taking = [k for k, (low, high) in enumerate(bounds) if low <= level < high]
    for k in sorted(taking, key=lambda k: (most[k], k))[len(taking) - min(left, len(taking)) :]:
        shares[k] += 1
    return shares


LEAST_RATE = 1e-100  # anything less is noise, and its ratios are not exact


def curve_of(samples: Iterable[tuple[int, float]]) -> Curve:
    """The curve through measured (nodes, throughput), made safe.

    Samples that are not finite and well above zero are dropped; several of one size become their
    median. Going up, each point is then held between the throughput before it (more nodes do not
    hurt) and the same throughput per node as before it (never above linear). Raises ValueError if
    no sample is left.
    """
    by_size: dict[int, list[float]] = {}
    for nodes, rate in samples:
        if nodes >= 1 and math.isfinite(rate) and rate >= LEAST_RATE:
            by_size.setdefault(nodes, []).append(rate)
    if not by_size:
        raise ValueError("no usable sample of throughput")
    points = [(0, 0.0)]
    for nodes in sorted(by_size):
        rate = median(by_size[nodes])
        before, least = points[-1]
        most = least / before * nodes if before else rate
        points.append((nodes, min(max(rate, least), most)))
    return Curve(tuple(points))
