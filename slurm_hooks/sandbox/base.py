"""The directory in which sandboxes live: its mode, its lock, and the free names and ports."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import random
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Collection, Iterator
from itertools import chain
from pathlib import Path
from typing import Optional

from slurm_hooks.errors import RetryLater, UsageError
from slurm_hooks.owned import is_open

_log = logging.getLogger(__name__)
LOCK_WAIT_S = 30.0
# Below the range from which Linux assigns ports automatically (32768 and up).
FIRST_PORT, LAST_PORT = 20000, 32000
RECORD = "sandbox.json"
UNFINISHED = ".new-"


def default_base() -> Path:
    """/tmp/slurm-malleable-sandbox-UID.

    Not $XDG_RUNTIME_DIR: munged refuses a socket below a directory that others cannot pass.
    """
    return Path(f"/tmp/slurm-malleable-sandbox-{os.geteuid()}")


def make_base(base: Path) -> Path:
    """Creates it with mode 0755 and returns its real path.

    Raises UsageError if it belongs to another user, if others may write into it, or if others
    cannot reach it. munged and jobs of other users need that.
    """
    with contextlib.suppress(FileExistsError):
        base.mkdir(mode=0o755, parents=True)
        base.chmod(0o755)  # with any umask
    status = os.lstat(base)
    if not stat.S_ISDIR(status.st_mode) or is_open(status, (os.geteuid(),)):
        raise UsageError(
            f"Sandboxes cannot live in {base}: it must be a directory of user {os.geteuid()} that "
            f"other users cannot write to (seen: user {status.st_uid}, mode "
            f"{stat.filemode(status.st_mode)}); remove it or name another base."
        )
    real = base.resolve()
    closed = [path for path in (real, *real.parents) if not path.stat().st_mode & stat.S_IXOTH]
    if closed:
        raise UsageError(
            f"Sandboxes cannot live in {base}: other users cannot pass {closed[0]} (chmod o+x), "
            "and munged then refuses to start; name another base, for example below /tmp."
        )
    return real


@contextlib.contextmanager
def locked(base: Path, limit_s: float = LOCK_WAIT_S) -> Iterator[Path]:
    """Makes the base directory, holds its lock and yields its real path.

    The lock is on the directory itself, so no lock file is left behind. The kernel releases it
    when the holder dies. Raises RetryLater after `limit_s` seconds.
    """
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        try:
            real = make_base(base)
            handle = os.open(real, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:  # another sandbox's end removed it between two of these lines
            continue
        try:
            # The last holder may have removed the directory: then lock the new directory.
            if _lock(handle, deadline) and _is_same(handle, real):
                _remove_unfinished(real)
                yield real
                return
        finally:
            os.close(handle)
    raise RetryLater(f"Waited {limit_s:.0f} s for the lock of {base}; another sandbox is starting.")


def _lock(handle: int, deadline: float) -> bool:
    while time.monotonic() < deadline:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.02)
    return False


def _is_same(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _remove_unfinished(base: Path) -> None:
    """Removes the leftovers of a start or an end that was killed."""
    for leftover in base.glob(f"{UNFINISHED}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def remove(directory: Path) -> None:
    """Removes a sandbox whose processes have ended, and the default base if it is now empty.

    Its name is free at once. Raises UsageError if something in it cannot be removed.
    """
    old = directory.with_name(f"{UNFINISHED}{secrets.token_hex(8)}")
    with locked(directory.parent), contextlib.suppress(FileNotFoundError):  # ended twice at once
        directory.rename(old)
    for _attempt in range(3):  # a process that was killed may have made files since
        shutil.rmtree(old, ignore_errors=True)
        if not old.exists():
            break
    else:
        raise UsageError(f"{old} cannot be removed: check the owners of the files that are left.")
    _remove_if_unused(directory.parent)


def _remove_if_unused(base: Path) -> None:
    """Removes the default base once no sandbox is left in it. A caller's own base is kept."""
    if base != default_base() or not base.exists():
        return
    try:
        with locked(base, limit_s=1.0) as real:
            real.rmdir()  # refuses while it has entries
    except (OSError, RetryLater) as error:
        _log.debug("%s was not removed: %s", base, error)


def sandbox_directories(base: Path) -> list[Path]:
    """Returns the directories of the sandboxes there, by name. Empty if there is no base."""
    return sorted(record.parent for record in base.resolve().glob(f"[!.]*/{RECORD}"))


def free_name(base: Path) -> str:
    """Returns the first of sb1, sb2, ... that is not taken."""
    return next(name for n in range(1, 10_000) if not (base / (name := f"sb{n}")).exists())


def free_ports(count: int, taken: Collection[range], start: Optional[int] = None) -> int:
    """Returns the first of `count` free ports in a row that no sandbox has taken.

    Searches from `start` upwards, then from below. The default start is random, since the lock of
    this base does not cover other users' sandboxes and other bases. Raises RetryLater if there is
    no such row.
    """
    last = LAST_PORT - count
    begin = random.randrange(FIRST_PORT, last) if start is None else start
    for first in chain(range(begin, last, 10), range(FIRST_PORT, begin, 10)):
        wanted = range(first, first + count)
        if not any(_overlap(wanted, other) for other in taken) and all(map(_is_free, wanted)):
            return first
    raise RetryLater(f"No {count} free ports in a row between {FIRST_PORT} and {LAST_PORT}.")


def _overlap(first: range, second: range) -> bool:
    return first.start < second.stop and second.start < first.stop


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as slurmd binds
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
