"""The job's shared directory as a compare-and-set store of one State, plus heart beats.

Two guards make an update safe. A lock (fcntl) keeps the queue of writers short where it
works; but on BeeGFS by default and on Lustre with `localflock` it only works within one
node, so what makes an update right is a claim file named after the revision to be
written, created with O_EXCL. Readers always open the file anew: on NFS that is what makes
the client ask the server. It must not know what a State means.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from .codec import MAX_BYTES, StateFormatError, decode, encode
from .state import State

UPDATE_TIMEOUT_S = 30.0
CLAIM_STALE_S = 10.0
READ_CACHE_S = 2.0
ROUND_LOG_BYTES = 4 << 20

_TRANSIENT = {errno.ESTALE, errno.EIO, errno.EAGAIN, errno.ETIMEDOUT, errno.EINTR, errno.EBUSY}
_NAME = re.compile(r"[0-9a-z.-]{1,64}\Z")


class DirectoryError(Exception):
    """The shared directory did not do what it must; the message says what to do."""


class SharedDirectory:
    """One training's directory. Methods raise DirectoryError; all of them are safe to
    call from several threads and processes."""

    def __init__(self, path: Path, run: str) -> None:
        self.path = path
        self._run = run
        self._turn = threading.Lock()
        self._seen: tuple[tuple[int, int, int], float, State] | None = None
        self._stale_claim: tuple[str, float] | None = None

    def open(self) -> None:
        """Create the directory, for the user alone, and see that it can be written."""
        probe = self.path / f".probe.{os.getpid()}.{random.getrandbits(32):08x}"
        with _explained(self.path, "create and write"):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name in ("beats", "stages"):
                (self.path / name).mkdir(mode=0o700, exist_ok=True)
            probe.write_bytes(b"x" * 4096)
            probe.unlink()

    def read(self) -> State:
        """The state as it is now, parsed only if the file changed."""
        with _explained(self.path, "read"):
            return self._load(READ_CACHE_S)

    def update(
        self, change: Callable[[State], State], timeout_s: float = UPDATE_TIMEOUT_S
    ) -> State:
        """Apply `change` to the newest state; it may be called several times and must be
        free of effects. Returns the state afterwards."""
        deadline = time.monotonic() + timeout_s
        with self._my_turn(deadline), _explained(self.path, "update"):
            while time.monotonic() < deadline:
                old = self._load(0.0)
                new = change(old)
                if new == old:
                    return old
                written = replace(new, revision=old.revision + 1)
                if self._publish(old.revision, written):
                    return written
                time.sleep(random.uniform(0.002, 0.03))
        raise DirectoryError(
            f"updating {self.path}/state.json: no turn within {timeout_s:.0f} s; "
            "is the file system slow, or full?"
        )

    def _load(self, cache_s: float) -> State:
        for attempt in range(5):
            try:
                return self._load_once(cache_s)
            except FileNotFoundError:
                return State(run=self._run)
            except StateFormatError as error:
                problem = str(error)
            except OSError as error:
                if error.errno not in _TRANSIENT or attempt == 4:
                    raise
                problem = str(error)
            time.sleep(0.05 * (attempt + 1))
        raise DirectoryError(
            f"reading {self.path}/state.json: {problem}; "
            "remove that directory if no fragment of the job is running"
        )

    def _load_once(self, cache_s: float) -> State:
        with open(self.path / "state.json", "rb") as file:
            info = os.fstat(file.fileno())
            signature = (info.st_ino, info.st_mtime_ns, info.st_size)
            now = time.monotonic()
            seen = self._seen
            if seen and seen[0] == signature and now - seen[1] < cache_s:
                return seen[2]
            data = file.read(MAX_BYTES + 1)
        state = decode(data.decode("ascii", "replace"))
        if state.run != self._run:
            raise DirectoryError(
                f"{self.path} belongs to the job {state.run}, not to {self._run}: "
                "give every job a directory of its own"
            )
        self._seen = (signature, now, state)
        return state

    def _publish(self, revision: int, state: State) -> bool:
        claim = self.path / f"claim.{state.revision}"
        if not self._claim(claim):
            return False
        draft = self.path / f"draft.{os.getpid()}.{random.getrandbits(32):08x}"
        try:
            if self._load(0.0).revision != revision:
                return False
            with open(draft, "w", encoding="ascii") as file:
                file.write(encode(state))
                file.flush()
                os.fsync(file.fileno())
            os.rename(draft, self.path / "state.json")
            return True
        finally:
            _discard(draft)
            _discard(claim)

    def _claim(self, claim: Path) -> bool:
        try:
            os.close(os.open(claim, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            now = time.monotonic()
            if self._stale_claim is None or self._stale_claim[0] != claim.name:
                self._stale_claim = (claim.name, now)
            elif now - self._stale_claim[1] > CLAIM_STALE_S:
                self._stale_claim = None
                _discard(claim)  # its writer died between claiming and writing
            return False
        return True

    @contextmanager
    def _my_turn(self, deadline: float) -> Iterator[None]:
        if not self._turn.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise DirectoryError(f"updating {self.path}: another thread of this agent hangs")
        try:
            with _explained(self.path, "lock"):
                handle = os.open(self.path / "lock", os.O_CREAT | os.O_RDWR, 0o600)
            try:
                _queue(handle, min(deadline, time.monotonic() + CLAIM_STALE_S))
                yield
            finally:
                os.close(handle)
        finally:
            self._turn.release()

    def write_beat(self, token: str, count: int) -> None:
        """Record that the agent `token` lives; fixed width, so never read half."""
        with _explained(self.path, "write a heart beat"):
            handle = os.open(self._beat(token), os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                os.pwrite(handle, b"%016d\n" % count, 0)
            finally:
                os.close(handle)

    def read_beat(self, token: str) -> int | None:
        """The last count of `token`, None if there is none (yet)."""
        try:
            with open(self._beat(token), "rb") as file:
                text = file.read(32)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DirectoryError(f"reading a heart beat in {self.path}: {error}") from None
        return int(text) if re.fullmatch(rb"[0-9]{16}\n", text) else None

    def remove_beat(self, token: str) -> None:
        """Forget the heart of `token`."""
        _discard(self._beat(token))

    def _beat(self, token: str) -> Path:
        return self.path / "beats" / _checked(token)

    def read_stage(self, place: str, incarnation: str) -> int:
        """How many trainings the batch script at `place` has completed, plus one."""
        try:
            text = (self.path / "stages" / _checked(place)).read_text("ascii")[:256]
            owner, _, count = text.partition(" ")
            return min(int(count), 10**6) if owner == incarnation else 1
        except (OSError, ValueError):
            return 1

    def write_stage(self, place: str, incarnation: str, stage: int) -> None:
        """Remember the training that the batch script at `place` has reached."""
        with _explained(self.path, "write"):
            (self.path / "stages" / _checked(place)).write_text(f"{incarnation} {stage}", "ascii")

    def log_round(self, line: str) -> None:
        """Append one line to rounds.jsonl, unless that has grown too long."""
        path = self.path / "rounds.jsonl"
        with _explained(self.path, "append to rounds.jsonl"), open(path, "a") as file:
            if file.tell() < ROUND_LOG_BYTES:
                file.write(line + "\n")


def _queue(handle: int, deadline: float) -> None:
    """Wait for the lock, politely. Without a working lock the claim alone decides; so
    it does when somebody holds the lock for long."""
    while time.monotonic() < deadline:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                return
        time.sleep(random.uniform(0.002, 0.02))


def _checked(name: str) -> str:
    if not _NAME.match(name):
        raise DirectoryError(f"refusing the file name {name!r}")
    return name


def _discard(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


@contextmanager
def _explained(path: Path, deed: str) -> Iterator[None]:
    try:
        yield
    except StateFormatError as error:
        raise DirectoryError(f"{deed} in {path}: {error}") from None
    except OSError as error:
        raise DirectoryError(f"{deed} in {path}: {error.strerror}; {_advice(error)}") from None


def _advice(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space or quota"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "submit from a directory that the compute nodes can write"
    return "it must be a directory on a file system that all nodes of the job share"
