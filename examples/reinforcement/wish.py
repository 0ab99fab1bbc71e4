"""Choose how many workers the trainer asks for, by the length of the queue.

The trainer writes the number into a file. `malleable run --wish-file` sends it to Slurm, so the
trainer needs no command of Slurm.
"""

from __future__ import annotations

import math
import time

from exchange import FULL, Exchange

EVERY_S = 15.0


class Wish:
    """All workers for an empty queue, 1 for a full queue. The last worker hears of the next
    wish."""

    def __init__(self, exchange: Exchange, workers: int) -> None:
        self._exchange, self._workers = exchange, workers
        self._next = 0.0
        self._seen: list[int] = []

    def follow(self, waiting: int) -> None:
        """Write a new wish from time to time, by the mean length of the queue since the last."""
        self._seen.append(waiting)
        if time.monotonic() < self._next:
            return
        share = 1 - sum(self._seen) / len(self._seen) / FULL
        wanted = max(1, math.ceil(self._workers * share))
        if wanted != self._exchange.wish():
            print(f"wish for {wanted} of {self._workers} workers", flush=True)
            self._exchange.set_wish(wanted)
        self._seen.clear()
        self._next = time.monotonic() + EVERY_S
