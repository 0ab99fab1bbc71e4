"""The time in which a training does nothing but train, and what it gets done in it.

Left out are the first steps, in which much is done once, and steps that were held up: by a
checkpoint, by an evaluation (data is drawn from another DataLoader and then from the first again),
by input that is late, or by anything else that takes many times as long as a step. What happens
often is no exception but the pace of this training, and counts.

Where a device works behind the script, the time between two steps of the script varies far more
than the device's: the script queues some ahead and then waits. So only long delays count as such,
and after one the queue gets time to fill. All moments are given, in seconds of any clock, which may
also run backwards or jump.
"""

from __future__ import annotations

WARM_STEPS = 3
WARM_S = 2.0
SETTLE_S = 1.0  # after what held a step up, at most
LONG = 8.0  # times a step, and LONG_S, is longer than any queue of a device
LONG_S = 1.0
SLOWER = 1.5  # times a step
SPAN = 64  # steps, of which at most so many are exceptions:
RARE = 3  # for a delay that nobody can explain
FEW = 8  # for data of another DataLoader in a step that is no slower
SOME = 32  # for one that is known to be none of training
_ALL = (1 << SPAN) - 1
_NEW = 0.1  # the weight of the last step in what is usual
_WARM_NEW = 0.5  # the same in the first steps
_MOST_S = 86_400.0  # between two steps: more is a broken clock


class CleanTime:
    """`seconds`, `steps` and `samples` are the sums over all steps that count."""

    def __init__(self) -> None:
        self.seconds, self.steps, self.samples = 0.0, 0, 0.0
        self._last = 0.0
        self._warm_steps, self._warm_s, self._settle_s = 0, 0.0, 0.0
        self._usual_s, self._usual_wait_s, self._usual_switches = 0.0, 0.0, 1
        self._odd, self._known, self._other = 0, 0, 0  # one bit for each step of SPAN
        self._has_begun = False
        self._source = 0
        self._waited_s, self._paused_s, self._switches, self._drawn = 0.0, 0.0, 0, 0.0

    def draw(self, source: int, samples: float, waited_s: float) -> None:
        """Data for a step to come was taken from a source, after a wait for it."""
        if source != self._source:
            self._source = source
            self._switches += 1
        self._drawn += samples
        self._waited_s += waited_s

    def pause(self, seconds: float) -> None:
        """The training did something else for so long."""
        self._paused_s += seconds

    def step(self, now: float) -> None:
        """A step is done."""
        taken = now - self._last
        self._last = now
        if not self._has_begun:
            self._has_begun = True
        elif 0.0 < taken < _MOST_S:
            self._judge(taken)
        self._waited_s, self._paused_s, self._switches, self._drawn = 0.0, 0.0, 0, 0.0

    def _judge(self, taken: float) -> None:
        if self._warm_steps < WARM_STEPS or self._warm_s < WARM_S:
            self._warm_steps += 1
            self._warm_s += taken
            self._get_used(taken, _WARM_NEW)
            return
        has_other = self._switches > max(1, self._usual_switches)
        self._other = (self._other << 1 | has_other) & _ALL
        known, odd = self._is_known_delay(taken), self._is_odd(taken)
        is_exception = (known and _bits(self._known) < SOME) or (odd and _bits(self._odd) < RARE)
        self._known = (self._known << 1 | known) & _ALL
        self._odd = (self._odd << 1 | (odd and not known)) & _ALL
        if is_exception:
            self._settle_s = min(SETTLE_S, max(0.0, taken - self._usual_s))
        else:
            self._get_used(taken, _NEW)
            self._count(taken)

    def _is_known_delay(self, taken: float) -> bool:
        if self._paused_s > 0.5 * self._usual_s:
            return True
        has_other = bool(self._other & 1)
        return has_other and (taken > SLOWER * self._usual_s or _bits(self._other) <= FEW)

    def _is_odd(self, taken: float) -> bool:
        is_late = self._waited_s > 4.0 * self._usual_wait_s + self._usual_s
        return is_late or taken > LONG * self._usual_s + LONG_S

    def _get_used(self, taken: float, weight: float) -> None:
        self._usual_s += weight * (taken - self._usual_s)
        self._usual_wait_s += weight * (self._waited_s - self._usual_wait_s)
        self._usual_switches = self._switches

    def _count(self, taken: float) -> None:
        if self._settle_s > 0.0:
            self._settle_s -= taken
            return
        self.seconds += taken
        self.steps += 1
        self.samples += self._drawn


def _bits(word: int) -> int:
    return bin(word).count("1")
