"""Decides which rates still count, since a job that changes its work has to be learned again.

A change of the batch of each node shows it at once. Otherwise a different rate at a known size
shows it, but only if the next rate confirms it. A single bad minute is a busy file system.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from slurm_hooks.learning.throughput import in_order
from slurm_hooks.model import Rate

SIGMAS = 4.0
LEAST_CHANGE = 0.05  # in the logarithm. A smaller change leaves the allocation as it is
BATCH_CHANGE = 0.02  # relative
JUMP = math.log(2)  # from the size at which the network is at its worst to the next


def current(rates: Iterable[Rate]) -> tuple[Rate, ...]:
    """The rates of the job's present phase, in order of time.

    A rate that differs from the rate before at its size counts only once a later rate has confirmed
    it.
    """
    phase: list[Rate] = []
    doubtful: list[Rate] = []
    for rate in in_order(rates):
        if phase and is_other_batch(phase[-1], rate):
            phase, doubtful = [rate], []
        elif not _contradicts(phase, rate):
            phase.append(rate)
            doubtful = []
        elif doubtful and _confirms(doubtful, rate):
            phase, doubtful = [*doubtful, rate], []
        else:
            doubtful.append(rate)
    return tuple(phase)


def is_other_batch(before: Rate, now: Rate) -> bool:
    """Tell whether the batch has changed, both the whole batch and each node's batch.

    False unless both rates report their batch.
    """
    if not before.batch or not now.batch:
        return False
    whole = math.log(now.batch) - math.log(before.batch)
    each = whole - math.log(now.nodes / before.nodes)
    return min(abs(whole), abs(each)) > BATCH_CHANGE


def _contradicts(phase: list[Rate], rate: Rate) -> bool:
    same = next((r for r in reversed(phase) if r.nodes == rate.nodes), None)
    if same is not None:
        return _differs(same, rate)
    return any(_is_impossible(r, rate) for r in phase)


def _is_impossible(one: Rate, other: Rate) -> bool:
    """Tell whether the larger size is far better than linear over the smaller size.

    Somewhat better is possible: 2 nodes can be slower than 1, and 3 faster than 2.
    """
    small, large = sorted((one, other), key=lambda r: r.nodes)
    gain = math.log(large.per_s / small.per_s)
    return gain > math.log(large.nodes / small.nodes) + JUMP + _allowed(one, other)


def _confirms(doubtful: list[Rate], rate: Rate) -> bool:
    last = doubtful[-1]
    if last.nodes == rate.nodes:
        return not _differs(last, rate)
    return not _is_impossible(last, rate)


def _differs(one: Rate, other: Rate) -> bool:
    return abs(math.log(one.per_s / other.per_s)) > _allowed(one, other)


def _allowed(one: Rate, other: Rate) -> float:
    return LEAST_CHANGE + SIGMAS * math.hypot(one.error, other.error)
