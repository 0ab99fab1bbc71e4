"""Counts steps, samples and checkpoints of a training process, and tells the agent now and then.

Its callers may be part of any script, so no call raises, waits or keeps its arguments.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Optional

from slurm_hooks.elastic.log import suppressed
from slurm_hooks.elastic.mailbox import MailboxReader
from slurm_hooks.elastic.observed import Observed
from slurm_hooks.elastic.script.clean_time import CleanTime
from slurm_hooks.elastic.script.reported_samples import ReportedSamples
from slurm_hooks.elastic.script.waiting_share import NOT_SEEN, waiting_share
from slurm_hooks.elastic.speed import Speed

EVERY_S = 1.0  # the agent is told no more often than this
AGES = 8  # the last checkpoints; a checkpoint may consist of several files
ANOTHER = 100  # switch to another optimizer after this many steps without the counted one
PART = 4  # a file smaller than a quarter of the parameters is no checkpoint
SYNC_EVERY_S = 10.0  # torch itself measures every hundredth step
_NEW = 0.2  # the weight of the newest measurement in the time of a step


class Observer:
    """Observes the process that makes the first step, not processes that it forks later.

    Times are time.monotonic(). `is_dispatching`: data from DataLoaders is now drawn for all
    processes, and counted when each gets its share. `tell` is called at the first step.
    """

    def __init__(self, every_s: float = EVERY_S, tell: Callable[[], None] = lambda: None) -> None:
        self.is_dispatching = False
        self._tell_first = tell
        self._every_s = every_s
        self._begun_in, self._pid = os.getpid(), 0
        self._has_ended = False
        self._mailbox: Optional[MailboxReader] = None
        self._optimizer: Optional[weakref.ref[Any]] = None  # Python gives an address away again
        self._others, self._bytes = 0, 0
        self._calls: dict[str, int] = {}
        self._steps, self._stepped_at, self._step_s = 0, 0.0, 0.0
        self._told_steps, self._told_at, self._due = 0, 0.0, 0.0
        self._first_at = 0.0
        self._saves, self._saved_at = 0, 0.0
        self._ages: deque[float] = deque(maxlen=AGES)
        self._clean, self._reported = CleanTime(), ReportedSamples()
        self._loader: Optional[weakref.ref[Any]] = None
        self._loaders = 0
        self._thread = 0  # the thread that steps
        self._parallel: Optional[weakref.ref[Any]] = None
        self._sync, self._sync_due = NOT_SEEN, 0.0
        self._times = 0.0

    @property
    def seen(self) -> Observed:
        """The observations up to now."""
        return Observed(
            steps=self._steps,
            saves=self._saves,
            step_s=self._step_s,
            stepped_at=self._stepped_at,
            saved_at=self._saved_at,
            widest_s=max(self._ages, default=0.0),
        )

    @property
    def speed(self) -> Speed:
        """The speed up to now."""
        clean = self._clean
        return Speed(
            first_at=self._first_at,
            seconds=clean.seconds,
            steps=clean.steps,
            samples=clean.samples,
            reported=self._reported.per_step,
            times=self._times,
            sync=self._sync,
        )

    def see_end(self) -> None:
        """The training has made its last step, unless a further step is seen."""
        if os.getpid() == self._begun_in:
            self._has_ended = True
            self._tell_end()

    def _tell_end(self) -> None:
        with suppressed(Exception, doing="telling the agent whether the training has ended"):
            self._reader().write_ended(self._has_ended)

    def see_step(self, optimizer: Any) -> None:
        """One of torch's optimizers has made a step. If there are several, the first is counted."""
        if self._has_ended:
            self._has_ended = False
            self._tell_end()
        if not _is(optimizer, self._optimizer) and not self._is_next(optimizer):
            return
        now = time.monotonic()
        self._others = 0
        self._clean.step(now)
        self._count(now)

    def _count(self, now: float) -> None:
        self._steps += 1
        self._stepped_at = now
        if now >= self._due:
            self._tell(now)

    def see_call(self, function: str) -> None:
        """The script has called one of our functions that belongs to a step boundary. If no
        optimizer of torch steps, a step lies between two calls of the function that it calls most.
        """
        calls = self._calls[function] = self._calls.get(function, 0) + 1
        if self._optimizer is None and calls > self._steps + 1:
            now = time.monotonic()
            self._begin(now)
            self._count(now)

    def see_draw(self, loader: object, samples: float) -> None:
        """A DataLoader has given so many samples for a later step."""
        if not _is(loader, self._loader):
            self._loader = weakref.ref(loader)
            self._loaders += 1
        self._clean.draw(self._loaders, samples)

    def see_pause(self) -> None:
        """This thread did other work than training."""
        if threading.get_ident() == self._thread:
            self._clean.pause()

    def see_parallel(self, module: Any) -> None:
        """The training is distributed by a module that measures its waits for others."""
        self._parallel = weakref.ref(module)

    def see_reported(self, samples: int) -> None:
        """The script has reported how far all processes are together. If no optimizer of torch
        steps, that counts as a step for its speed.
        """
        steps = 0 if self._optimizer is None else self._steps
        if self._reported.see(samples, steps) and self._optimizer is None:
            self._clean.step(time.monotonic())

    def _is_next(self, optimizer: Any) -> bool:
        self._others += 1
        is_there = self._optimizer is not None and self._optimizer() is not None
        if (is_there and self._others < ANOTHER) or _creates_state(optimizer):
            return False
        self._optimizer, self._told_at = weakref.ref(optimizer), 0.0
        self._thread = threading.get_ident()
        with suppressed(Exception, doing="looking at the size of the parameters"):
            self._bytes = _size_of(optimizer)
        self._begin(time.monotonic())
        return True

    def _begin(self, now: float) -> None:
        if not self._first_at:
            self._tell_first()
            self._first_at, self._pid = now, os.getpid()
            self._times = times_as_many(os.environ)

    def see_saved(self, began: float, size: Optional[int] = None) -> None:
        """A save that began at that moment is complete. `size` in bytes if it is known.

        A small file is no checkpoint, nor a file of a script whose parameters are not known. Before
        the first step there is no checkpoint either.
        """
        if not self._steps or os.getpid() != self._pid:
            return
        if size is not None and (self._optimizer is None or size * PART < self._bytes):
            return
        self._ages.append(time.monotonic() - (self._saved_at or self._first_at))
        self._saves += 1
        self._saved_at = began
        self._write()

    def _tell(self, now: float) -> None:
        if self._told_at:
            step_s = (now - self._told_at) / (self._steps - self._told_steps)
            is_first = not self._step_s
            self._step_s = step_s if is_first else self._step_s + _NEW * (step_s - self._step_s)
        self._told_at, self._told_steps, self._due = now, self._steps, now + self._every_s
        if now >= self._sync_due:
            self._sync_due = now + SYNC_EVERY_S
            self._sync = waiting_share(self._parallel and self._parallel())
        self._write()

    def _write(self) -> None:
        if os.getpid() != self._pid:
            return  # a forked child must not report for its parent
        with suppressed(Exception, doing="telling the agent what is seen of the training"):
            self._reader().write_observed(self.seen)
            self._reader().write_speed(self.speed)

    def _reader(self) -> MailboxReader:
        if self._mailbox is None:
            self._mailbox = MailboxReader(os.environ)
        return self._mailbox


def _is(thing: object, known: Optional[weakref.ref[Any]]) -> bool:
    return known is not None and known() is thing


def times_as_many(env: Mapping[str, str]) -> float:
    """Return how many times as many processes there are in all as on this node, 0 if unknown. Nodes
    need not have equal numbers.
    """
    try:
        return int(env["WORLD_SIZE"]) / int(env["LOCAL_WORLD_SIZE"])
    except (KeyError, ValueError, ZeroDivisionError):
        return 0.0


def _size_of(optimizer: Any) -> int:
    """Return the bytes of its parameters in this process."""
    tensors = (tensor for group in optimizer.param_groups for tensor in group["params"])
    own = (getattr(tensor, "_local_tensor", tensor) for tensor in tensors)  # of a DTensor
    return sum(int(tensor.numel() * tensor.element_size()) for tensor in own)


def samples_in(data: Any, most: object) -> int:
    """Return the samples in a batch: the length of its first tensor, else the sampler's `most`."""
    is_many = isinstance(data, (Mapping, list, tuple))
    parts = (data.values() if isinstance(data, Mapping) else data) if is_many else (data,)
    shapes = (getattr(part, "shape", None) for part in parts)
    length = next((int(shape[0]) for shape in shapes if shape), 0)
    if isinstance(most, int) and most > 0:
        return min(length, most) if length else most
    return length or (len(data) if is_many else 1)


def _creates_state(optimizer: Any) -> bool:
    """Tell whether the step changes no parameter. torch.distributed.checkpoint makes such a step
    with rates of 0 before it reads or loads the state of a new optimizer.

    A rate on a device is never asked, because the process would wait for the device.
    """
    rates = [group.get("lr", 1.0) for group in getattr(optimizer, "param_groups", ())]
    is_zero = [str(getattr(rate, "device", "cpu")) == "cpu" and rate == 0 for rate in rates]
    return bool(rates) and all(is_zero)
