"""Cut the counts of workers into stretches of clean time of the whole round."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Optional

from slurm_hooks.elastic.speed import Speed
from slurm_hooks.elastic.steady import Steady, Stretch, extended, steady

CUT_S = 3.0  # of clean time
STEPS = 2  # in a stretch, at least


class Stretches:
    """The stretches of a round. `sync` is the share of a step that waits for others, `None` if
    unknown.
    """

    def __init__(self) -> None:
        self.sync: Optional[float] = None
        self._history: tuple[Stretch, ...] = ()
        self._base: dict[int, Speed] = {}

    def see(self, speeds: Mapping[int, Speed], nodes: int) -> bool:
        """Take in the counts of one node's workers, by local rank. The round has `nodes` nodes.
        Tell whether a new stretch is complete.
        """
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
        """Return the recent rate, `None` until it is known."""
        return steady(self._history)


def _is_new(before: Speed, after: Speed) -> bool:
    """Tell whether this is another process than before."""
    is_less = after.steps < before.steps or after.seconds < before.seconds
    return is_less or after.samples < before.samples or after.first_at != before.first_at


def _difference(before: Speed, after: Speed) -> Speed:
    return Speed(
        seconds=after.seconds - before.seconds,
        steps=after.steps - before.steps,
        samples=after.samples - before.samples,
        reported=after.reported,
        times=after.times,
    )


def stretch_of(workers: list[Speed], nodes: int) -> Stretch:
    """Return the work of a node's workers as a stretch of all nodes.

    Workers step together, each with its own samples, unless the script reports how many there are
    in all. Workers know how many there are. Otherwise all nodes count as equal.
    """
    seconds = fmean(worker.seconds for worker in workers)
    steps_s = fmean(w.steps / w.seconds if w.seconds else 0.0 for w in workers)
    reported = max(worker.reported for worker in workers)
    drawn = [worker.samples / worker.steps for worker in workers]
    times = max(worker.times for worker in workers) or nodes
    batch = reported or (times * sum(drawn) if all(drawn) else 0.0)
    return Stretch(seconds, steps_s * seconds, batch)
