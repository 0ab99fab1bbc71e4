"""Makes throughput curves, for jobs without measurements and from measurements of unknown quality.

Measurements come from user jobs. A curve made here rises, stays finite and never claims more than
linear speed-up. So no job can claim more nodes than a perfectly scaling job would get.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from slurm_hooks.model import Curve

SERIAL_FRACTION = 0.005
"""The usual serial fraction of Amdahl's law.

Least squares on log speed-up, a fraction for each of the seven models (1 to 64 nodes) in the
scaling table published with BFTrainer: 0.0016 (vgg16) to 0.0244 (AlexNet), median 0.00495.
"""


def prior(serial_fraction: float = SERIAL_FRACTION, max_nodes: int = 64) -> Curve:
    """The curve assumed for a job: Amdahl's law, in units of a single node's rate.

    speed-up(n) = 1 / (s + (1 - s) / n), G. M. Amdahl, AFIPS 1967, with the serial fraction s. The
    points are the powers of two and `max_nodes`. They are few, since each costs the solver a
    variable. The chord between them is at most 1.8 % low up to 64 nodes for the default s. Raises
    ValueError unless 0 <= s <= 1 and max_nodes >= 1.
    """
    if not 0 <= serial_fraction <= 1 or max_nodes < 1:
        raise ValueError(f"no curve for serial fraction {serial_fraction} and {max_nodes} nodes")
    sizes = [2**k for k in range(max_nodes.bit_length()) if 2**k < max_nodes]
    points = ((n, n / (1 + serial_fraction * (n - 1))) for n in [*sizes, max_nodes])
    return Curve(((0, 0.0), *points))


CLAIM, BEYOND, FAR_BEYOND = 1.5, 0.5, 0.1
"""The worth of a node beyond the first unit of an unknown job: up to its share, up to twice the
share, and beyond. Up to its share a node counts more than for a job that scales perfectly.
Otherwise that job would keep the node, because a change costs pauses. Beyond its share the unknown
job takes nodes that no other job uses better."""


def equal_share(share: int, max_nodes: int, unit: int = 1) -> Curve:
    """The curve of a job about which too little is known to weigh it against others.

    It gets its share, since no job's curve is above linear. Raises ValueError unless all are at
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


BEYOND_SHARE = 0.98  # so near to 1 that it decides only between pools


def pool_curve(share: int, most: int, unit: int = 1) -> Curve:
    """The curve of workers that do not need each other: linear up to the `most` nodes they want.

    Beyond its share a node counts a little less. Otherwise the first of two large pools would keep
    all nodes. The first `unit` is within every share.
    """
    most = max(most, unit)
    first = min(max(share, unit), most)
    worth = {first: float(first), most: first + BEYOND_SHARE * (most - first)}
    return Curve(((0, 0.0), *sorted(worth.items())))


def equal_shares(most: Sequence[int], nodes: int, least: Sequence[int] = ()) -> list[int]:
    """Split the nodes equally, as far as each job can use them.

    Each gets up to `most` (job) and at least `least` (job, 1 if it is empty). If a rest remains, it
    goes to the jobs that could use most.
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

    Samples that are not finite and well above zero are dropped. Samples of the same size become
    their median. Going up, each point is then held between two limits: the throughput before it
    (more nodes do not hurt) and its throughput per node (never above linear). Raises ValueError
    without samples.
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
