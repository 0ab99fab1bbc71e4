"""The memory that an agent shares with the workers on its node.

The agent posts the planned change. The workers post "I am listening", "you may stop me" and
observations of the training. Two slots of memory hold the newest checkpoint.

The mailbox consists of memory files that the agent holds open. Workers of the same user find them
through /proc, or over a socket (lending.py) if they cannot see the agent there. Other users cannot
reach them, and they disappear with the agent.
"""

from __future__ import annotations

import json
import math
import os
import struct
import weakref
import zlib
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from slurm_hooks.elastic import lending
from slurm_hooks.elastic import speed as speeds
from slurm_hooks.elastic.log import debug, say_if_possible, suppressed
from slurm_hooks.elastic.observed import SIZE, Observed, pack, unpack
from slurm_hooks.elastic.speed import Speed

MAILBOX = "MALLEABLE_MAILBOX"
SLOTS = "MALLEABLE_SLOTS"
LENT = "MALLEABLE_LENT"  # the name to ask for where /proc does not show the agent
SEAT = "MALLEABLE_SEAT"  # among the workers of an agent, where LOCAL_RANK does not say it
WORKERS = 1024
CHANGE_BYTES = 256
_LISTENS, _READY, _BUSY = b"l", b"r", b"b"  # the status of a worker, else 0
_IS_WATCHED = b"w"
_HAS_ENDED, _HAS_FAILED = b"e", b"f"
_BOUNDS = struct.Struct("<QQ")
_SECONDS = struct.Struct("<d")
ALL_STEPS = range(1 << 63)


@dataclass(frozen=True)
class _Field:
    """`count` records of `size` bytes each, from the byte `start` of the mailbox on."""

    start: int
    size: int
    count: int = 1

    def then(self, size: int, count: int = 1) -> _Field:
        """Return the field behind this field."""
        return _Field(self.start + self.size * self.count, size, count)

    def read(self, handle: int) -> bytes:
        """Return all records, as far as the file goes. Raises OSError."""
        return os.pread(handle, self.size * self.count, self.start)

    def read_one(self, handle: int, at: int) -> bytes:
        """Return record number `at`. Raises OSError."""
        return os.pread(handle, self.size, self.start + at * self.size)

    def write(self, handle: int, data: bytes, at: int = 0) -> None:
        """Write from record number `at` on. Raises OSError."""
        os.pwrite(handle, data, self.start + at * self.size)

    def clear(self, handle: int) -> None:
        """Make all bytes 0. Raises OSError."""
        self.write(handle, b"\0" * (self.size * self.count))


_CHANGE = _Field(0, CHANGE_BYTES)
_STATUS = _CHANGE.then(1, WORKERS)
_SAMPLES = _STATUS.then(20)  # the last number given to `report()`, in digits
_FILE = _SAMPLES.then(4096)  # where the checkpoint in memory has its file
_WATCHES = _FILE.then(1)  # the last boundary survives these workers
_OWNER = _WATCHES.then(4)  # the file of the copies in memory, as a checksum of its path
_STEPS = _OWNER.then(_BOUNDS.size)  # the steps of the present training: first, end
_WRITING = _STEPS.then(_SECONDS.size, 2)  # seconds of the last copy in memory, and of the last file
_LAG = _WRITING.then(_SECONDS.size)  # how far the kept state may be behind the last step
_ENDED = _LAG.then(1, WORKERS)  # this worker has made its last step, or its program has failed
_OBSERVED = _Field(8192, SIZE, WORKERS)  # the file ends with the last worker that has written
_SPEEDS = _OBSERVED.then(speeds.SIZE, WORKERS)
_MOST = (1 << 53) - 1


@dataclass(frozen=True)
class PlannedChange:
    """A planned change: `why` is "grow" or "leave". The workers get `left_s` seconds to reach a
    boundary and save.
    """

    why: str
    left_s: float


class Mailbox:
    """The agent's side. Raises OSError where the kernel has no memory files."""

    def __init__(self) -> None:
        self._change = os.memfd_create("malleable-news")
        self._slots = [os.memfd_create("malleable-memory") for _ in range(2)]
        self.clear()

    def environment(self) -> dict[str, str]:
        """Return the variables by which workers find it."""
        slots = ":".join(str(fd) for fd in self._slots)
        return {MAILBOX: f"{os.getpid()}:{self._change}", SLOTS: f"{os.getpid()}:{slots}"}

    def lend(self) -> dict[str, str]:
        """Return the variables for workers in a container that hides this process, empty if it
        cannot be offered.
        """
        errors = OSError, AttributeError, RuntimeError
        with suppressed(*errors, doing="lending the mailbox to containers"):
            return {LENT: lending.lend([self._change, *self._slots])}
        return {}

    def clear(self) -> None:
        """Begin a new round: no change is planned, and no worker listens yet. Memory stays."""
        os.ftruncate(self._change, _OBSERVED.start)
        for field in (_CHANGE, _STATUS, _WATCHES, _LAG, _ENDED):
            field.clear(self._change)

    def post(self, change: PlannedChange) -> None:
        """Let the workers know."""
        text = json.dumps({"why": change.why, "left_s": round(change.left_s, 1)}).encode()
        _CHANGE.write(self._change, text.ljust(_CHANGE.size, b"\n"))

    def withdraw(self) -> None:
        """Withdraw the planned change. The status that a worker has set stays."""
        _CHANGE.clear(self._change)

    def samples(self) -> int:
        """Return how many samples a worker reported last, 0 before a report."""
        digits = _SAMPLES.read(self._change)
        return min(int(digits), _MOST) if digits.isdigit() else 0

    def file(self) -> str:
        """Return the absolute path of the file that belongs to the state in memory, empty if the
        workers have named no file.
        """
        return _FILE.read(self._change).strip(b"\0").decode("utf-8", "replace")

    def observed(self) -> list[Observed]:
        """Return the observations of the workers of this round that step or save."""
        records = map(unpack, self._records(_OBSERVED))
        return [seen for seen in records if seen is not None]

    def speeds(self) -> dict[int, Speed]:
        """Return how fast the workers of this round train, by local rank."""
        records = enumerate(map(speeds.unpack, self._records(_SPEEDS)))
        return {seat: speed for seat, speed in records if speed is not None}

    def _records(self, field: _Field) -> Iterator[bytes]:
        """Return a record for each worker, up to the last worker that has written."""
        data, size = field.read(self._change).rstrip(b"\0"), field.size
        return (data[at : at + size].ljust(size, b"\0") for at in range(0, len(data), size))

    def is_watched(self) -> bool:
        """Tell whether the state at the last step boundary survives the workers of this round."""
        return _WATCHES.read(self._change) == _IS_WATCHED

    def lag_s(self) -> float:
        """Return the seconds of training that are lost with a process although it is watched.

        It is 0 if the process can write its last boundary when it ends, and infinite if it has kept
        no state yet.
        """
        (lag_s,) = _SECONDS.unpack(_LAG.read(self._change))
        return float(lag_s) if lag_s >= 0 else math.inf

    def writing_s(self) -> float:
        """Return how long the last writing of the state took: to memory, and from there to its
        file. A part that was not seen counts as 0.
        """
        parts = (part_s for (part_s,) in _SECONDS.iter_unpack(_WRITING.read(self._change)))
        return float(sum(part_s for part_s in parts if math.isfinite(part_s) and part_s > 0))

    def has_ended(self) -> bool:
        """Tell whether a worker of this round has made the last step of its training."""
        return any(_ENDED.read(self._change))

    def has_failed(self) -> bool:
        """Tell whether the program of a worker of this round has ended with an error."""
        return _HAS_FAILED in _ENDED.read(self._change)

    def is_listened_to(self) -> bool:
        """Tell whether a worker of this round hears of planned changes."""
        statuses = _STATUS.read(self._change)
        return _LISTENS in statuses or _READY in statuses

    def is_awaited(self) -> bool:
        """Tell whether a listening worker has not reached a step boundary yet, or a worker is
        busy.
        """
        statuses = _STATUS.read(self._change)
        return _LISTENS in statuses or _BUSY in statuses


class MailboxReader:
    """The side of a worker. Without an agent of ours no change is ever planned."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._handle = -1
        self._seat = min(seat(env), WORKERS - 1)
        if not env.get(MAILBOX):
            return
        try:
            self._handle = find_files(env, MAILBOX)[0]
            weakref.finalize(self, os.close, self._handle).atexit = False
        except (OSError, ValueError, IndexError) as error:
            debug("opening the mailbox of the agent", error)
            if self._seat == 0:
                _complain(f"{type(error).__name__}: {error}")

    def listen(self) -> None:
        """Say that this worker asks at step boundaries."""
        self._write(_STATUS, _LISTENS, self._seat)

    def allow_stop(self) -> None:
        """Say that this worker may be stopped."""
        self._write(_STATUS, _READY, self._seat)

    def be_silent(self) -> None:
        """Say that this worker asks no more."""
        self._write(_STATUS, b"\0", self._seat)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """A planned stop waits until this is over, within the agent's bounds."""
        is_free = self._status() == b"\0"  # else it is waited for anyway
        if is_free:
            self._write(_STATUS, _BUSY, self._seat)
        try:
            yield
        finally:
            if is_free:
                self._write(_STATUS, b"\0", self._seat)

    def _status(self) -> bytes:
        if self._handle >= 0:
            with suppressed(OSError, doing="reading the status of this worker"):
                return _STATUS.read_one(self._handle, self._seat)
        return b""

    def write_samples(self, samples: int) -> None:
        """Report how far the training is."""
        self._write(_SAMPLES, b"%0*d" % (_SAMPLES.size, samples))

    def write_file(self, path: str, steps: range = ALL_STEPS) -> None:
        """Name the file that belongs to the state kept in memory, if the state is of these
        steps.
        """
        data = path.encode()
        if len(data) <= _FILE.size:
            self._write(_FILE, data.ljust(_FILE.size, b"\0"))
            self._write(_STEPS, _BOUNDS.pack(steps.start, steps.stop))

    def steps(self) -> range:
        """Return the steps that belong to the file, all steps if no worker has said."""
        if self._handle >= 0:
            with suppressed(OSError, struct.error, doing="reading which steps are kept"):
                bounds = _BOUNDS.unpack(_STEPS.read(self._handle))
                return range(*bounds) if any(bounds) else ALL_STEPS
        return ALL_STEPS

    def claim_memory(self, path: str) -> bool:
        """Claim the copies in memory for this file, and tell whether it has them.

        The first file that asks has them, as long as the agent lives. Without an agent any file may
        have them.
        """
        if self._handle < 0:
            return True
        mine = zlib.crc32(path.encode("utf-8", "replace")).to_bytes(_OWNER.size, "little")
        with suppressed(OSError, doing="reading which file owns the agent's memory"):
            owner = _OWNER.read(self._handle)
            if any(owner):
                return owner == mine
        self._write(_OWNER, mine)
        return True

    def write_observed(self, seen: Observed) -> None:
        """Write the observations of this worker."""
        self._write(_OBSERVED, pack(seen), self._seat)

    def write_ended(self, has_ended: bool) -> None:
        """Write whether this worker has made its last step."""
        self._write(_ENDED, _HAS_ENDED if has_ended else b"\0", self._seat)

    def write_failed(self) -> None:
        """Report that the program of this worker has ended with an error."""
        self._write(_ENDED, _HAS_FAILED, self._seat)

    def write_copy_s(self, seconds: float) -> None:
        """Write how long a copy of the state in memory took."""
        self._write(_WRITING, _SECONDS.pack(seconds))

    def write_file_s(self, seconds: float) -> None:
        """Write how long its file took."""
        self._write(_WRITING, _SECONDS.pack(seconds), 1)

    def write_lag_s(self, seconds: float) -> None:
        """Write how many seconds of training are lost with a process although it is watched."""
        self._write(_LAG, _SECONDS.pack(seconds))

    def write_speed(self, speed: Speed) -> None:
        """Write how fast this worker trains."""
        self._write(_SPEEDS, speeds.pack(speed), self._seat)

    def write_watched(self, is_watched: bool) -> None:
        """Write whether the state at the last step boundary survives the workers of this node."""
        self._write(_WATCHES, _IS_WATCHED if is_watched else b"\0")

    def read(self) -> PlannedChange | None:
        """Return the change that is planned, if any."""
        if self._handle < 0:
            return None
        errors = OSError, ValueError, KeyError, TypeError
        with suppressed(*errors, doing="reading the mailbox of the agent"):
            text = _CHANGE.read(self._handle).strip(b"\0\n")
            if text:
                raw = json.loads(text)
                return PlannedChange(str(raw["why"]), float(raw["left_s"]))
        return None

    def _write(self, field: _Field, data: bytes, at: int = 0) -> None:
        if self._handle >= 0:
            with suppressed(OSError, doing="writing to the mailbox of the agent"):
                field.write(self._handle, data, at)


def seat(env: Mapping[str, str]) -> int:
    """Return the number of this worker among its agent's workers, from 0 on. The first worker
    writes for all of them.
    """
    return int(env.get(SEAT) or env.get("LOCAL_RANK") or 0)


@cache
def _complain(why: str) -> None:
    """Complain once in a process."""
    say_if_possible(
        f"this process cannot reach its agent ({why}), so it gets no notice and keeps no state in "
        "memory; in a container, share the host's process ids or its network"
    )


def open_mailbox(env: MutableMapping[str, str]) -> Mailbox | None:
    """Return an agent's mailbox, and put into `env` where workers find it. Return `None` where the
    kernel has no memory files.
    """
    with suppressed(OSError, AttributeError, doing="opening a mailbox: workers get no notice"):
        mailbox = Mailbox()
        env.update(mailbox.environment() | mailbox.lend())
        return mailbox
    return None


def find_files(env: Mapping[str, str], name: str) -> list[int]:
    """Return handles of the files that the variable MAILBOX or SLOTS names, from /proc or from the
    agent. Raises as open_files.
    """
    where, lender = env.get(name, ""), env.get(LENT, "")
    try:
        return open_files(where)
    except (OSError, ValueError) as error:
        if not (where and lender):
            raise
        debug("the agent is not in /proc, asking it for its memory", error)
    mailbox, *slots = lending.borrow(lender)
    wanted, others = ([mailbox], slots) if name == MAILBOX else (slots, [mailbox])
    for handle in others:
        os.close(handle)
    return wanted


def open_files(where: str) -> list[int]:
    """Return handles of the memory files named `pid:fd[:fd]`.

    Raises OSError, ValueError, also if they are not memory files of this user.
    """
    pid, *fds = (int(word) for word in where.split(":"))
    handles = []
    for fd in fds:
        path = f"/proc/{pid}/fd/{fd}"
        if not os.readlink(path).startswith("/memfd:malleable-"):
            raise ValueError(f"{path} is not the mailbox of an agent")
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        handles.append(handle)
        if os.fstat(handle).st_uid != os.getuid():
            raise ValueError(f"{path} belongs to another user")
    return handles
