"""Small machines and jobs whose replays can be calculated by hand."""

from __future__ import annotations

import math

from slurm_hooks.model import Curve
from slurm_hooks.replay.costs import Rescale
from slurm_hooks.replay.outcome import Outcome
from slurm_hooks.replay.record import Interval, Record
from slurm_hooks.replay.work import Kind, kind

SIX_FOUR = Rescale(6.0, 4.0)


def two_nodes(images: float = 1e9) -> Kind:
    """A job with 10 images/s on 1 node, and 18 on 2 nodes."""
    return kind("toy", Curve(((0, 0.0), (1, 10.0), (2, 18.0))), (1, 2), images)


def record(
    *holes: tuple[int, float, float], to_s: float = 100.0, known_s: float = math.inf
) -> Record:
    """A record from (node, from, to)."""
    intervals = tuple(Interval(node, start, end, known_s) for node, start, end in holes)
    return Record(intervals, 1 + max(node for node, _, _ in holes), 0.0, to_s)


def images(outcome: Outcome) -> float:
    """All work done."""
    return math.fsum(outcome.ledger.images.values())
