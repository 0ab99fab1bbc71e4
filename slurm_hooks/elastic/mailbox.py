"""The board between an agent and the workers on its node: news one way, "I am listening"
and "you may stop me" the other, and two slots of memory for the newest checkpoint.

It is made of memory files that the agent holds open and that workers of the same user find
through /proc: no other user can reach them, and nothing is left when the agent is gone. It
must not know rounds, torch or the shared directory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

NEWS = "MALLEABLE_BOARD"
SLOTS = "MALLEABLE_SLOTS"
WORKERS = 1024
_NEWS_BYTES = 256
_LISTENS, _READY = b"l", b"r"
_SAMPLES = _NEWS_BYTES + WORKERS  # what `report()` was told last, in digits
_SAMPLES_BYTES = 20
_MOST = (1 << 53) - 1


@dataclass(frozen=True)
class News:
    """A change that is coming: `why` is "grow" or "leave"; `left_s` the seconds that
    the workers get to reach a boundary and save."""

    why: str
    left_s: float


class Mailbox:
    """The agent's side. Raises OSError where the kernel has no memory files."""

    def __init__(self) -> None:
        self._news = os.memfd_create("malleable-news")
        self._slots = [os.memfd_create("malleable-memory") for _ in range(2)]
        self.clear()

    def environment(self) -> dict[str, str]:
        """What workers need to find it."""
        slots = ":".join(str(fd) for fd in self._slots)
        return {NEWS: f"{os.getpid()}:{self._news}", SLOTS: f"{os.getpid()}:{slots}"}

    def clear(self) -> None:
        """A new round: no news, nobody listens yet. Memory stays."""
        os.pwrite(self._news, b"\0" * (_NEWS_BYTES + WORKERS), 0)

    def post(self, news: News) -> None:
        """Tell the workers."""
        line = json.dumps({"why": news.why, "left_s": round(news.left_s, 1)}).encode()
        os.pwrite(self._news, line.ljust(_NEWS_BYTES, b"\n"), 0)

    def samples(self) -> int:
        """How many samples a worker has told of last, 0 if none has."""
        told = os.pread(self._news, _SAMPLES_BYTES, _SAMPLES)
        return min(int(told), _MOST) if told.isdigit() else 0

    def is_awaited(self) -> bool:
        """Whether a worker listens that has not come to a boundary yet."""
        return _LISTENS in os.pread(self._news, WORKERS, _NEWS_BYTES)


class MailboxReader:
    """A worker's side; without an agent of ours nothing is ever new."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._handle = -1
        self._place = _NEWS_BYTES + min(int(env.get("LOCAL_RANK", "0") or 0), WORKERS - 1)
        with suppress(OSError, ValueError, IndexError):
            self._handle = open_files(env.get(NEWS, ""))[0]

    def listen(self) -> None:
        """Say that this worker comes to boundaries."""
        self._mark(_LISTENS)

    def is_ready(self) -> None:
        """Say that this worker may be stopped."""
        self._mark(_READY)

    def tell_samples(self, samples: int) -> None:
        """Say how far the training is."""
        with suppress(OSError):
            os.pwrite(self._handle, b"%0*d" % (_SAMPLES_BYTES, samples), _SAMPLES)

    def read(self) -> News | None:
        """What is coming, if anything."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            raw = json.loads(os.pread(self._handle, _NEWS_BYTES, 0).strip(b"\0\n"))
            return News(str(raw["why"]), float(raw["left_s"]))
        return None

    def _mark(self, mark: bytes) -> None:
        with suppress(OSError):
            os.pwrite(self._handle, mark, self._place)


def open_files(where: str) -> list[int]:
    """Handles of the memory files named `pid:fd[:fd]`. Raises OSError, ValueError; also
    if they are no memory files of this user."""
    pid, *fds = (int(word) for word in where.split(":"))
    handles = []
    for fd in fds:
        path = f"/proc/{pid}/fd/{fd}"
        if not os.readlink(path).startswith("/memfd:malleable-"):
            raise ValueError(f"{path} is not the board of an agent")
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        handles.append(handle)
        if os.fstat(handle).st_uid != os.getuid():
            raise ValueError(f"{path} belongs to somebody else")
    return handles
