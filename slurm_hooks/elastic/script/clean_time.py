"""The clean time of a training: the time of training alone, and the steps done in it.

A worker leaves out only steps that certainly contain other work. These are the first steps, which
set things up, and steps with a checkpoint or an evaluation in them. An evaluation draws data from
another DataLoader, and the training from the first again. If half of the steps are like that, it is
the pace of this training, and counts. A step that is late for another reason counts as well. The
agent judges that (steady.py).

A script queues steps on a device and then waits. So after a step that is left out the queue gets
time to fill. All times are in seconds of any clock, which may also run backwards or jump.
"""

from __future__ import annotations

import math

WARM_STEPS = 3
WARM_S = 2.0
SETTLE_S = 1.0  # after a step that is left out, at most
SPAN = 64  # steps; fewer than half of them are left out
_ALL = (1 << SPAN) - 1
_MOST_S = 86_400.0  # between two steps: more is a broken clock


class CleanTime:
    """`seconds`, `steps` and `samples` are the sums over all steps that count."""

    def __init__(self) -> None:
        self.seconds, self.steps, self.samples = 0.0, 0, 0.0
        self._last = math.inf
        self._warm_steps, self._warm_s, self._settle_s = 0, 0.0, 0.0
        self._others = 0  # a bit for each step of SPAN that contains other work
        self._usual_switches = 1
        self._source = 0
        self._has_paused, self._switches, self._drawn = False, 0, 0.0

    def draw(self, source: int, samples: float) -> None:
        """Data for a later step was taken from a source."""
        if source != self._source:
            self._source = source
            self._switches += 1
        self._drawn += samples

    def pause(self) -> None:
        """The training did other work."""
        self._has_paused = True

    def step(self, now: float) -> None:
        """A step is done."""
        taken = now - self._last
        self._last = now
        if 0.0 < taken < _MOST_S:
            self._judge(taken)
        self._has_paused, self._switches, self._drawn = False, 0, 0.0

    def _judge(self, taken: float) -> None:
        is_warm = self._warm_steps >= WARM_STEPS and self._warm_s >= WARM_S
        if is_warm and self._is_left_out():
            usual_s = self.seconds / self.steps if self.steps else 0.0
            self._settle_s = min(SETTLE_S, max(0.0, taken - usual_s))
            return
        self._usual_switches = max(1, self._switches)
        if is_warm:
            self._count(taken)
        else:
            self._warm_steps += 1
            self._warm_s += taken

    def _is_left_out(self) -> bool:
        is_other = self._has_paused or self._switches > self._usual_switches
        is_rare = 2 * bin(self._others).count("1") < SPAN
        self._others = (self._others << 1 | is_other) & _ALL
        return is_other and is_rare

    def _count(self, taken: float) -> None:
        if self._settle_s > 0.0:
            self._settle_s -= taken
            return
        self.seconds += taken
        self.steps += 1
        self.samples += self._drawn
