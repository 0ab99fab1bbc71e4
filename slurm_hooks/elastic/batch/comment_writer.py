"""The only writer of the Comment of this process's job. Its form: slurm_hooks/protocol/comment.py.

The reporters of an agent say which values should stand there. A turn reads the Comment. If a due
value is missing, the turn writes all wanted values in a single request. A later turn reads the
Comment again, because another process may have read before that request and written after it.
"""

from __future__ import annotations

import math
import random
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Optional

from slurm_hooks.elastic.batch import job_comment
from slurm_hooks.elastic.batch.job_comment import EVERY_S
from slurm_hooks.elastic.log import debug, endured, suppressed
from slurm_hooks.protocol.comment import Comment, Standing, Wish, parse

GATHER_S = 0.2  # news of the same moment make a single change
CONFIRM_S = 1.0  # until it is read again
LOOK_S = 20.0  # the same for values that are not urgent
AGAIN_S = 5.0  # after a failure, and twice as long each time
AGAIN_MOST_S = 60.0
TURN_S = 2 * job_comment.TIMEOUT_S
_NEWS = frozenset({"loss", "progress"})  # they keep EVERY_S
_SPACED = _NEWS | {"remark"}  # after each of these


class Stand(NamedTuple):
    """The standing of a fragment in its run."""

    standing: Standing
    run: int


class Withdrawal(NamedTuple):
    """This remark no longer holds. Another remark stays."""

    remark: str


@dataclass
class _Want:
    """The wanted `value` of a field. `due`: the time of its next turn (time.monotonic())."""

    field: str
    value: Any
    due: float
    check_s: float = math.inf
    stands: Callable[[], None] = lambda: None  # called when it has been read there
    is_written: bool = False
    tries: int = 0

    def come_again(self, in_s: float) -> None:
        """Put the next turn off by `in_s`, and by twice as long each time."""
        pause_s = min(in_s * 2.0**self.tries, max(in_s, AGAIN_MOST_S))
        self.due = time.monotonic() + pause_s
        self.tries = min(self.tries + 1, 6)


class CommentWriter:
    """The writer of a job's Comment. `newest` is the Comment as it was read last."""

    def __init__(self, job: str) -> None:
        self.newest = Comment()
        self.has_stood = False  # a standing of this training was written
        self._job = job
        self._wanted: dict[str, _Want] = {}
        self._changed = threading.Condition()  # guards _wanted
        self._turn = threading.Lock()  # one turn at a time
        self._thread: Optional[threading.Thread] = None
        self._spaced_until = -math.inf

    def want(
        self,
        field: str,
        value: Any,
        *,
        in_s: float = 0.0,
        check_s: Optional[float] = None,
        stands: Callable[[], None] = lambda: None,
    ) -> None:
        """Have the value written in the background. Does not raise.

        It is written in `in_s` seconds, or earlier together with another value. This is repeated
        until it stands there or another value is wanted.
        """
        check_s = CONFIRM_S if check_s is None else check_s
        with self._changed:
            old = self._wanted.get(field)
            if old is None or old.value != value or math.isinf(old.due):
                old = _Want(field, value, time.monotonic() + in_s)
                self._wanted[field] = old
            old.check_s, old.stands = check_s, stands
            self._begin()

    def wanted(self, field: str) -> Any:
        """Return the value that has not been written yet, or `None`."""
        want = self._wanted.get(field)
        return want.value if want and not want.is_written else None

    def write(
        self,
        field: str,
        value: Any,
        limit_s: float = TURN_S,
        before: Optional[str] = None,
        check_s: float = math.inf,
    ) -> bool:
        """Take a turn for the value now, within the limit. Return True if it stood there already.

        `before`: the Comment as it was read a moment ago. With `check_s` the rest happens in the
        background. Raises OSError, SubprocessError.
        """
        want = _Want(field, value, -math.inf, check_s)
        with self._changed:
            self._wanted[field] = want
        try:
            self._take_turn(limit_s, before)
        finally:
            if math.isfinite(check_s):
                with self._changed:
                    self._begin()
        return not want.is_written

    def _begin(self) -> None:
        self._changed.notify_all()
        if self._thread is None:
            thread = threading.Thread(target=self._run, daemon=True)
            with suppressed(RuntimeError, doing="starting a thread that writes to Slurm"):
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        is_endured = endured("writing news of this fragment to Slurm")
        while self._await_due():
            with is_endured:
                try:
                    self._take_turn(TURN_S, only_due=True)
                except (OSError, subprocess.SubprocessError) as error:
                    debug("writing news of this fragment to Slurm", error)

    def _await_due(self) -> bool:
        """Wait until a value becomes due. Return False if no value will."""
        with self._changed:
            while (due := self._next_due()) > time.monotonic():
                if math.isinf(due):
                    self._thread = None
                    return False
                self._changed.wait(due - time.monotonic())
            return True

    def _next_due(self) -> float:
        return min(map(self._due, self._wanted.values()), default=math.inf)

    def _due(self, want: _Want) -> float:
        """Return when a value is due. News wait their turn until they are written, then for their
        next look.
        """
        is_news = want.field in _NEWS and not want.is_written
        return max(want.due, self._spaced_until) if is_news else want.due

    def _take_turn(
        self, limit_s: float, before: Optional[str] = None, only_due: bool = False
    ) -> None:
        until = time.monotonic() + limit_s
        if not self._turn.acquire(timeout=limit_s):
            raise TimeoutError("another change of the Comment takes too long")
        try:
            if not (only_due and self._next_due() > time.monotonic()):
                self._read_and_write(until, before)
        except BaseException:
            self._put_off()
            raise
        finally:
            self._turn.release()

    def _read_and_write(self, until: float, before: Optional[str]) -> None:
        if before is None:
            before = job_comment.read(self._job, until - time.monotonic())
        self.newest = parse(before)
        missing, after = self._missing(self.newest)
        if missing:
            if not _SPACED.isdisjoint(want.field for want in missing):
                self._spaced_until = time.monotonic() + EVERY_S
            job_comment.write(self._job, after.text, until - time.monotonic())
            self._note_written(missing)

    def _missing(self, comment: Comment) -> tuple[list[_Want], Comment]:
        """Return the wanted values that are missing, if any of them is due, and the Comment with
        them.

        The standing stays wanted: if it is lost, the next request puts it back.
        """
        missing, now = [], time.monotonic()
        with self._changed:
            for want in sorted(self._wanted.values(), key=lambda want: want.field != "standing"):
                after = self._with(comment, want)
                if after.text != comment.text:
                    missing.append(want)
                    comment = after
                    continue
                want.stands()
                want.due = math.inf
                if want.field != "standing":
                    del self._wanted[want.field]
            is_due = [self._is_due(want, now) for want in missing]
        return (missing if any(is_due) else []), comment

    def _is_due(self, want: _Want, now: float) -> bool:
        """Tell whether it is to be written now. News that another process wrote over wait as
        well.
        """
        if want.field in _NEWS and now < self._spaced_until:
            want.is_written = False
            return False
        return want.due <= now

    def _with(self, comment: Comment, want: _Want) -> Comment:
        """Return the Comment with the value. A wish that outdoes this wish stays. So does the end
        that another process has reported, and the standing of a later run.
        """
        value = want.value
        if isinstance(value, Stand):
            is_finished = self.has_stood and comment.says(Standing.FINISHED, value.run)
            is_over = is_finished or (comment.standing is not None and comment.run > value.run)
            return comment if is_over else replace(comment, standing=value.standing, run=value.run)
        if isinstance(value, Withdrawal):
            return replace(comment, remark="") if comment.remark == value.remark else comment
        if isinstance(value, Wish) and comment.wish and comment.wish.outdoes(value, time.time()):
            return comment
        return replace(comment, **{want.field: value})

    def _note_written(self, wants: list[_Want]) -> None:
        with self._changed:
            for want in wants:
                self.has_stood = self.has_stood or want.field == "standing"
                want.is_written = True
                want.come_again(want.check_s)

    def _put_off(self) -> None:
        """Try again later to write the values that were due."""
        now = time.monotonic()
        with self._changed:
            for want in self._wanted.values():
                if want.due <= now:
                    want.come_again(AGAIN_S * random.uniform(0.5, 1.0))
                    if want.field in _NEWS:
                        self._spaced_until = now + EVERY_S


_writers: dict[str, CommentWriter] = {}


def writer_of(job: str) -> CommentWriter:
    """Return the only writer of this job's Comment in this process."""
    return _writers.setdefault(job, CommentWriter(job))
