"""The job's shared directory as a compare-and-set store of a State, plus heartbeats.

A lock (fcntl) keeps the queue of writers short where it works. On BeeGFS by default, and on Lustre
with `localflock`, it works only within a node. revisions.py makes an update right without it.

An NFSv4 server may delegate a file to a node that opens it for reading. If that node loses its
power or network, removing the file, or opening it for writing, takes 90 s elsewhere. So agents open
the lock for writing only. They go on without the lock if that hangs, since somebody else may have
read it. No agent waits for the removal of a file that others have read. If that node held the lock,
the server keeps it for as long. So agents wait for the lock only while others write.
"""

from __future__ import annotations

import errno
import json
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from slurm_hooks.elastic.log import debug
from slurm_hooks.elastic.private_directory import (
    DirectoryError,
    await_lock,
    entered,
    make_private,
    read_file,
    write_file,
)
from slurm_hooks.elastic.rendezvous.codec import StateFormatError, decode, encode
from slurm_hooks.elastic.rendezvous.read_interval import ReadInterval
from slurm_hooks.elastic.rendezvous.revisions import (
    Revision,
    RevisionError,
    find_newest,
    has_links,
    publish,
    tidy,
)
from slurm_hooks.elastic.rendezvous.state import State

__all__ = ["DirectoryError", "SharedDirectory"]

UPDATE_TIMEOUT_S = 30.0
QUEUE_S = 10.0
STILL_S = 2.0  # if no agent writes for so long, a lost node holds the lock
OPEN_S = 2.0
TIDY_EACH = 8  # revisions
ROUND_LOG_BYTES = 4 << 20
WORDS_BYTES = 1 << 20

_TRANSIENT = {errno.ESTALE, errno.EIO, errno.EAGAIN, errno.ETIMEDOUT, errno.EINTR, errno.EBUSY}
_NAME = re.compile(r"[0-9a-z.-]{1,64}\Z")
_WRITE = os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class SharedDirectory:
    """The directory of a training. Methods raise DirectoryError. All of them are safe to call from
    several threads and processes.
    """

    def __init__(self, path: Path, run: str) -> None:
        self.path = path
        self._run = run
        self._turn = threading.Lock()
        self._memory = threading.Lock()
        self._seen = (Revision(), State(run=run))
        self._tidying, self._beating, self._removing = Aside(), Aside(), Aside()
        self._opening = Aside()
        self._locks: list[int] = []  # opened, and not used yet
        self.read_interval = ReadInterval()  # an update always reads afresh
        self.on_written: Callable[[], None] = lambda: None  # called when this agent has written

    def open(self) -> None:
        """Create the directory, for the user alone, and check that it can be used."""
        with _explained(self.path, "create and write"):
            make_private(self.path)
            with entered(self.path) as handle:
                for name in ("beats", "stages"):
                    with suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=handle)
                is_fit = has_links(handle)
        if not is_fit:
            raise DirectoryError(
                f"{self.path} is on a file system without hard links, which the rendezvous needs; "
                "submit from a directory on another file system, or have your administrator "
                "change dir= in plugstack.conf"
            )

    def read(self) -> State:
        """Return the present state, or the state of the last read while no read is due (see
        ReadInterval).
        """
        if not self.read_interval.is_due(time.monotonic()):
            return self._seen[1]
        return self.read_fresh()

    def read_fresh(self) -> State:
        """Return the present state."""
        with _explained(self.path, "read"):
            return self._load()[1]

    def nudge(self) -> None:
        """Give the directory a new time, later than the last update's. NFS clients see a change by
        this time, and two changes may have the same time.
        """
        with _explained(self.path, "touch"), entered(self.path) as handle:
            os.utime(handle)

    def update(
        self, change: Callable[[State], State], timeout_s: float = UPDATE_TIMEOUT_S
    ) -> State:
        """Apply `change` to the newest state, and return the state afterwards. `change` may be
        called several times and must be free of effects.
        """
        deadline = time.monotonic() + timeout_s
        with _explained(self.path, "update"), self._my_turn(deadline):
            while time.monotonic() < deadline:
                base, old = self._load()
                new = change(old)
                if new == old:
                    return old
                written = replace(new, revision=base.number + 1)
                published = publish(self.path, base, encode(written))
                if published:
                    self._remember(published, written)
                    self.on_written()
                    if published.number % TIDY_EACH == 0:
                        self._tidying.do(partial(tidy, self.path))
                    return written
                time.sleep(random.uniform(0.002, 0.03))
        raise DirectoryError(
            f"cannot update {self.path} within {timeout_s:.0f} s; "
            "check whether the file system is slow or full"
        )

    def _load(self) -> tuple[Revision, State]:
        for attempt in range(5):
            try:
                return self._load_once(attempt == 4)
            except (StateFormatError, RevisionError) as error:
                problem = str(error)
            except OSError as error:
                if error.errno not in _TRANSIENT or attempt == 4:
                    raise
                problem = str(error)
            debug(f"reading {self.path}: {problem}; retrying")
            time.sleep(0.05 * (attempt + 1))
        raise DirectoryError(
            f"cannot read {self.path}: {problem}; "
            "remove that directory if no fragment of the job is running"
        )

    def _load_once(self, is_last: bool) -> tuple[Revision, State]:
        seen = self._seen
        newest = find_newest(self.path, seen[0])
        self.read_interval.has_read(time.monotonic(), newest is not seen[0])
        if newest is seen[0]:
            return seen
        if newest.number < seen[0].number and not is_last:
            raise RevisionError("the newest revision has vanished")
        state = decode(newest.text) if newest.number else State(run=self._run)
        if state.revision != newest.number:
            raise StateFormatError(f"state.{newest.number} calls itself {state.revision}")
        if state.run != self._run:
            raise DirectoryError(
                f"{self.path} belongs to the job {state.run}, not to {self._run}: "
                "give every job a directory of its own"
            )
        self._remember(newest, state, is_last)
        return newest, state

    def _remember(self, revision: Revision, state: State, is_sure: bool = False) -> None:
        with self._memory:  # another thread may have seen a later revision
            if is_sure or revision.number > self._seen[0].number:
                self._seen = (revision, state)

    @contextmanager
    def _my_turn(self, deadline: float) -> Iterator[None]:
        if not self._turn.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise DirectoryError(f"cannot update {self.path}: another thread of this agent hangs")
        try:
            handle = self._lock()
            try:
                if handle is not None:
                    self._queue(handle, min(deadline, time.monotonic() + QUEUE_S))
                yield
            finally:
                if handle is not None:
                    os.close(handle)
        finally:
            self._turn.release()

    def _queue(self, handle: int, until: float) -> None:
        """Wait for the lock as long as others write."""
        before, pause_s = -1, 0.0
        while not await_lock(handle, time.monotonic() + pause_s) and time.monotonic() < until:
            newest = self._load()[0].number
            if newest == before:
                return
            before, pause_s = newest, STILL_S

    def _lock(self) -> int | None:
        """Open the lock. Return `None` if that takes longer than OPEN_S, or hangs already."""
        if not self._locks:
            self._opening.error = None  # of an earlier opening
            self._opening.do(lambda: self._locks.append(self._file("lock", _WRITE)), OPEN_S)
        if not self._locks and self._opening.error:
            raise self._opening.error
        return self._locks.pop() if self._locks else None

    def _file(self, name: str, flags: int, deed: str = "lock") -> int:
        """Return a handle of the file `name`, opened through the directory's handle."""
        with _explained(self.path, deed), entered(self.path) as handle:
            return os.open(name, flags, 0o600, dir_fd=handle)

    def write_beat(self, token: str, count: int) -> None:
        """Record that the agent `token` is alive. The fixed width prevents a read of half a
        number.
        """
        handle = self._file(f"beats/{_checked(token)}", _WRITE, "write a heartbeat")
        try:
            with _explained(self.path, "write a heartbeat"):
                os.pwrite(handle, b"%016d\n" % count, 0)
        finally:
            os.close(handle)

    def write_beat_aside(self, token: str, count: int) -> None:
        """As write_beat, without a wait for it. Raises the error of the last write."""
        error = self._beating.error
        self._beating.do(partial(self.write_beat, token, count))
        if error:
            raise DirectoryError(str(error))

    def read_beat(self, token: str) -> int | None:
        """Return the last count of `token`, or `None` without a heartbeat (yet)."""
        try:
            text = read_file(self.path, f"beats/{_checked(token)}", 32)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DirectoryError(f"cannot read a heartbeat in {self.path}: {error}") from None
        return int(text) if re.fullmatch(rb"[0-9]{16}\n", text) else None

    def remove_beats(self, tokens: Iterable[str], wait_s: float = 0.0) -> None:
        """Forget the heartbeats of `tokens`, and wait for that at most `wait_s`. Does not raise."""
        names = [f"beats/{_checked(token)}" for token in tokens]
        self._removing.do(partial(self._remove, names), wait_s)

    def _remove(self, names: list[str]) -> None:
        with entered(self.path) as handle:
            for name in names:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=handle)

    def read_stage(self, position: str, incarnation: str) -> int:
        """Return how many trainings the batch script at `position` has completed, plus 1."""
        try:
            text = read_file(self.path, f"stages/{_checked(position)}", 256).decode("ascii")
            owner, _, count = text.partition(" ")
            return min(int(count), 10**6) if owner == incarnation else 1
        except FileNotFoundError:
            return 1
        except (OSError, ValueError) as error:
            debug(f"reading the stage of {position}", error)
            return 1

    def write_stage(self, position: str, incarnation: str, stage: int) -> None:
        """Record the training that the batch script at `position` has reached."""
        handle = self._file(f"stages/{_checked(position)}", _WRITE | os.O_TRUNC, "write")
        with _explained(self.path, "write"), open(handle, "w", encoding="ascii") as file:
            file.write(f"{incarnation} {stage}")

    def write_words(self, digest: str, words: Sequence[str], token: str) -> None:
        """Let the other agents read the command of `token`, whose digest this is. A command that is
        longer than WORDS_BYTES is not written.
        """
        name, text = f"launch-{_checked(digest)}.json", json.dumps(list(words)).encode()
        with _explained(self.path, "write"):
            if len(text) <= WORDS_BYTES and not os.path.exists(self.path / name):
                write_file(self.path, name, text, draft=f"{name}.{_checked(token)}")

    def read_words(self, digest: str) -> tuple[str, ...]:
        """Return the command with this digest."""
        try:
            with _explained(self.path, "read"):
                raw = read_file(self.path, f"launch-{_checked(digest)}.json", WORDS_BYTES)
                return tuple(map(str, json.loads(raw)))
        except (ValueError, TypeError) as error:
            raise DirectoryError(f"cannot read a command in {self.path}: {error}") from None

    def log_round(self, line: str) -> None:
        """Append a line to rounds.jsonl, unless that has grown too long."""
        deed = "append to rounds.jsonl"
        handle = self._file("rounds.jsonl", _WRITE | os.O_APPEND, deed)
        with _explained(self.path, deed), open(handle, "a", encoding="utf-8") as file:
            if file.tell() < ROUND_LOG_BYTES:
                file.write(line + "\n")


class Aside:
    """Does deeds in a thread for which its caller does not wait. Further deeds are left out while
    a deed hangs. `error` is the error of the last deed.
    """

    def __init__(self) -> None:
        self._is_free = threading.Lock()
        self.error: Exception | None = None

    def do(self, deed: Callable[[], object], wait_s: float = 0.0) -> None:
        """Begin the deed, and wait for its end at most `wait_s`. Does not raise."""
        if self._is_free.acquire(blocking=False):
            try:
                thread = threading.Thread(target=self._do, args=(deed,), daemon=True)
                thread.start()
                thread.join(wait_s)
            except RuntimeError as error:
                self._is_free.release()
                debug("starting a thread", error)

    def _do(self, deed: Callable[[], object]) -> None:
        try:
            deed()
            self.error = None
        except (OSError, DirectoryError) as error:
            debug("working in the shared directory", error)
            self.error = error
        finally:
            self._is_free.release()


def _checked(name: str) -> str:
    if not _NAME.match(name):
        raise DirectoryError(f"refusing the file name {name!r}")
    return name


@contextmanager
def _explained(path: Path, deed: str) -> Iterator[None]:
    try:
        yield
    except (StateFormatError, RevisionError) as error:
        raise DirectoryError(f"cannot {deed} in {path}: {error}") from None
    except OSError as error:
        raise DirectoryError(
            f"cannot {deed} in {path}: {error.strerror}; {_advice(error)}"
        ) from None


def _advice(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space or quota"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "submit from a directory that the compute nodes can write"
    return "it must be a directory on a file system that all nodes of the job share"
