"""A malleable job in the simulator: its nodes, its progress, its pauses.

Progress counts images. It is updated only when the job changes.
"""

from __future__ import annotations

import enum
import math

from slurm_hooks.replay.work import Kind


class Pause(enum.Enum):
    """The reason why a job makes no progress for a while."""

    NONE = "none"
    GROW = "grow"
    SHRINK = "shrink"
    LOSS = "loss"  # nodes left without notice


class Ledger:
    """Sums over all jobs, in node-seconds and images."""

    def __init__(self) -> None:
        self.used_node_s = 0.0
        self.paused_node_s = dict.fromkeys(Pause, 0.0)
        self.redone_node_s = 0.0
        self.images: dict[str, float] = {}

    @property
    def worked_node_s(self) -> float:
        """Node-seconds of training that was not lost."""
        return self.used_node_s - math.fsum(self.paused_node_s.values()) - self.redone_node_s


class Running:
    """A job that shares the nodes now. Times are in seconds.

    It may have a core: more nodes, which are not part of the record. The ledger counts the work of
    its other nodes.
    """

    def __init__(
        self, number: int, kind: Kind, now: float, checkpoint_s: float, core: int = 0
    ) -> None:
        self.number = number
        self.kind = kind
        self.core = core
        self.nodes: dict[int, float] = {}  # when each came, in that order
        self.since = now
        self.entered_s = now
        self.finish_s = math.inf
        self.left = kind.images
        self._pause = Pause.NONE
        self._paused_until = now
        self.loss_s = checkpoint_s  # the most work that an interruption costs
        self._checkpoint_s = checkpoint_s
        self._unsaved = 0.0  # images since the last checkpoint
        self._unsaved_s = 0.0
        self._worked_s: dict[int, float] = {}  # steady seconds by size

    @property
    def size(self) -> int:
        """Nodes it holds, or slots of nodes, with its core."""
        return self.core + len(self.nodes)

    @property
    def lent(self) -> int:
        """The nodes or slots from the record, without the core."""
        return self.size - self.core

    def advance(self, now: float, ledger: Ledger) -> None:
        """Bring progress up to `now`. Call this before the size changes."""
        dt, size = now - self.since, self.size
        if dt > 0 and size:
            worked = min(max(now - self._paused_until, 0.0), dt)
            ledger.used_node_s += self.lent * dt
            self._add_images(-self.kind.rates[self.core] * dt if self.core else 0.0, ledger)
            if worked < dt:
                ledger.paused_node_s[self._pause] += self.lent * (dt - worked)
            if worked > 0:
                self._worked_s[size] = self._worked_s.get(size, 0.0) + worked
                self._work(self.kind.rates[min(size, self.kind.max_nodes)], worked, ledger)
        self.since = now

    def _work(self, rate: float, seconds: float, ledger: Ledger) -> None:
        done = min(rate * seconds, self.left)
        self.left -= done
        self._add_images(done, ledger)
        if not self._checkpoint_s:
            return
        self._unsaved_s += seconds
        self._unsaved += done
        if self._unsaved_s >= self._checkpoint_s:
            self._unsaved_s %= self._checkpoint_s
            self._unsaved = min(rate * self._unsaved_s, done)

    def _add_images(self, count: float, ledger: Ledger) -> None:
        ledger.images[self.kind.name] = ledger.images.get(self.kind.name, 0.0) + count

    def worked(self, now: float) -> dict[int, float]:
        """Seconds of steady work by size so far."""
        seconds, size = dict(self._worked_s), self.size
        steady = now - max(self.since, self._paused_until)
        if size and steady > 0:
            seconds[size] = seconds.get(size, 0.0) + steady
        return seconds

    def pause(self, why: Pause, seconds: float) -> None:
        """Stop progress for this time, whatever pause there was. The job must be up to date."""
        self._pause = why
        self._paused_until = self.since + seconds
        rate = self.kind.rates[min(self.size, self.kind.max_nodes)]
        self.finish_s = self._paused_until + self.left / rate if rate > 0 else math.inf

    def save(self) -> None:
        """Keep the work done so far, as at a planned change, which comes at a step boundary."""
        self._unsaved = self._unsaved_s = 0.0

    def forget(self, size: int, ledger: Ledger) -> None:
        """Lose the work on `size` nodes since the last checkpoint. The job must be up to date."""
        self.left += self._unsaved
        self._add_images(-self._unsaved, ledger)
        ledger.redone_node_s += (size - self.core) * self._unsaved_s
        self.save()

    def complete(self, now: float, ledger: Ledger) -> None:
        """Bring progress to the end, without a rest by rounding."""
        self.advance(now, ledger)
        self._add_images(self.left, ledger)
        self.left = 0.0
