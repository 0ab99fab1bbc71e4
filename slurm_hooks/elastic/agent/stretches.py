"""From what workers have counted to stretches of clean time of the whole round."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Optional

from slurm_hooks.elastic.speed import Speed
from slurm_hooks.elastic.steady import Steady, Stretch, extended, steady

CUT_S = 3.0  # of clean time
STEPS = 2  # in it, at least


class Stretches:
    """Of one round. `sync` is the share of a step that waits for others, None if nobody saw it."""

    def __init__(self) -> None:
        self.sync: Optional[float] = None
        self._history: tuple[Stretch, ...] = ()
        self._base: dict[int, Speed] = {}

    def see(self, speeds: Mapping[int, Speed], nodes: int) -> bool:
        """The counts of the workers of one of `nodes` nodes, by local rank. Whether there is a new
        stretch."""
        seen = [speed.sync for speed in speeds.values() if speed.sync >= 0]
        self.sync = fmean(seen) if seen else self.sync
        base = self._base
        if speeds.keys() != base.keys() or any(_is_new(base[s], speeds[s]) for s in speeds):
            self._base = dict(speeds)
            return False
        done = [_difference(base[seat], speeds[seat]) for seat in speeds]
        if not done or max(d.seconds for d in done) < CUT_S or min(d.steps for d in done) < STEPS:
            return False
        self._base = dict(speeds)
        self._history = extended(self._history, stretch_of(done, nodes))
        return True

    def steady(self) -> Optional[Steady]:
        """The rate of late, None as long as it is not known."""
        return steady(self._history)


def _is_new(before: Speed, after: Speed) -> bool:
    """Whether this is another process than before."""
    is_less = after.steps < before.steps or after.seconds < before.seconds
    return is_less or after.samples < before.samples or after.first_at != before.first_at


def _difference(before: Speed, after: Speed) -> Speed:
    return Speed(
        seconds=after.seconds - before.seconds,
        steps=after.steps - before.steps,
        samples=after.samples - before.samples,
        told=after.told,
        times=after.times,
    )


def stretch_of(workers: list[Speed], nodes: int) -> Stretch:
    """What workers of one node have done, as a stretch of all nodes. Workers step together, each
    with samples of its own, unless the script tells how many there are in all. They know how many
    they are; otherwise all nodes are taken for alike."""
    seconds = fmean(one.seconds for one in workers)
    steps_s = fmean(one.steps / one.seconds if one.seconds else 0.0 for one in workers)
    told = max(one.told for one in workers)
    drawn = [one.samples / one.steps for one in workers]
    times = max(one.times for one in workers) or nodes
    batch = told or (times * sum(drawn) if all(drawn) else 0.0)
    return Stretch(seconds, steps_s * seconds, batch)
