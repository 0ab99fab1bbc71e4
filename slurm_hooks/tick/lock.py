"""Allows a single tick at a time, and raises another error if no tick has completed for long.

Only the tick's user can open the lock file. Any process that can open a file can flock it, and so
block every tick. A file beside it has the date of the last completed tick.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from slurm_hooks.errors import NotAllowed, NoTickForLong, RetryLater, SettingsError
from slurm_hooks.history.place import refuse_open_above
from slurm_hooks.model.moments import moment, shown
from slurm_hooks.owned import is_open
from slurm_hooks.settings.values import Tick

_log = logging.getLogger(__name__)
SHORTEST_PATIENCE_S = 300.0
WAIT_S = 30.0
TICKS_OF_PATIENCE = 3
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class Outcome:
    """Whether the tick in the lock has done its work, so that it counts as completed."""

    is_completed: bool = True


@contextlib.contextmanager
def locked(chosen: Tick) -> Iterator[Outcome]:
    """Hold the tick lock. The kernel releases it when this process ends, however it ends.

    Raises NotAllowed if it belongs to another user, SettingsError if others could change it,
    RetryLater if another tick runs. A RetryLater from here or from the body becomes NoTickForLong
    once no tick has been completed for `patience_s`.
    """
    path = Path(chosen.lock)
    with contextlib.ExitStack() as opened:
        with _as_settings_error(path):
            _make_directory(path.parent)
            opened.enter_context(_open(path))
            holder = opened.enter_context(_open(path.with_name(f"{path.name}.holder")))
            stamp = opened.enter_context(_open(stamp_path(chosen)))
        try:
            outcome = Outcome()
            with _taken(path, holder):
                yield outcome
        except RetryLater as error:
            _raise_if_overdue(error, os.fstat(stamp).st_mtime, patience_s(chosen))
            raise
        if outcome.is_completed:
            os.utime(stamp)


@contextlib.contextmanager
def between_ticks(chosen: Tick) -> Iterator[None]:
    """Hold the lock as soon as no tick runs.

    Raises NotAllowed and SettingsError as `locked` does, RetryLater if a tick takes longer than a
    command waits.
    """
    path = Path(chosen.lock)
    with _as_settings_error(path):
        _make_directory(path.parent)
        with _open(path):
            pass
    lock = FileLock(path, timeout=WAIT_S, mode=0o600)
    try:
        with lock:
            yield
    except Timeout as error:
        raise RetryLater(f"a tick has run for {WAIT_S:.0f} s (it holds {path})") from error


def stamp_path(chosen: Tick) -> Path:
    """The file that has the date of the last completed tick."""
    path = Path(chosen.lock)
    return path.with_name(f"{path.name}.done")


def patience_s(chosen: Tick) -> float:
    """The seconds without a completed tick that are no failure yet, since slurmctld may restart."""
    return max(SHORTEST_PATIENCE_S, TICKS_OF_PATIENCE * chosen.every_s)


@contextlib.contextmanager
def _as_settings_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        fault = f"tick.lock = {str(path)!r}: cannot be used: {error}"
        raise SettingsError([fault]) from error


def _make_directory(path: Path) -> None:
    """Make the directory for our user alone, or check that others cannot write to it.

    An existing directory keeps its mode, since others may need the directory.
    """
    try:
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700, parents=True)
    except PermissionError as error:
        raise NotAllowed(
            "only the tick's user may run ticks and hold jobs: run this as root or as SlurmUser "
            f"({path} does not exist, and this user cannot make it{_remake(path)})"
        ) from error
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(f"{path} is not a directory ({stat.filemode(status.st_mode)})")
    trusted = (0, os.geteuid())
    if status.st_uid not in trusted:
        raise _of_another(path, status.st_uid)
    if is_open(status, trusted):
        raise PermissionError(
            f"others can write to {path} ({stat.filemode(status.st_mode)}) and could block every "
            "tick: name a directory that is used for nothing else"
        )
    refuse_open_above(path)


def _remake(path: Path) -> str:
    """How root makes the packages' directory again. /run is empty after a reboot."""
    if path != Path(Tick().lock).parent:
        return ""
    return ": as root, run `systemd-tmpfiles --create slurm-malleable.conf`"


@contextlib.contextmanager
def _open(path: Path) -> Iterator[int]:
    """Open a file of ours that no other user can open. Raises OSError."""
    try:
        handle = os.open(path, _FLAGS, 0o600)
    except PermissionError as error:
        raise _of_another(path, _owner(path)) from error
    try:
        status = os.fstat(handle)
        if status.st_uid != os.geteuid():
            raise _of_another(path, status.st_uid)
        if not stat.S_ISREG(status.st_mode):
            raise PermissionError(f"{path} is not a plain file ({stat.filemode(status.st_mode)})")
        if status.st_mode & 0o077:
            # A process of another user that has it open could hold it without end.
            _log.debug("%s is replaced: %s", path, stat.filemode(status.st_mode))
            path.unlink()
            replaced = os.open(path, _FLAGS | os.O_EXCL, 0o600)
            os.close(handle)
            handle = replaced
        yield handle
    finally:
        os.close(handle)


@contextlib.contextmanager
def _taken(path: Path, holder: int) -> Iterator[None]:
    """Lock it and write our process number into `holder`. Raises RetryLater if it is taken."""
    lock = FileLock(path, timeout=0, mode=0o600)
    try:
        lock.acquire()
    except Timeout as error:
        holder_id = os.pread(holder, 20, 0).decode("ascii", "replace").strip() or "unknown"
        raise RetryLater(
            f"another tick is running (process {holder_id} holds {path}): no change made"
        ) from error
    try:
        with contextlib.suppress(OSError):  # a full disk loses the number, but the lock is held
            os.ftruncate(holder, 0)
            os.pwrite(holder, f"{os.getpid()}\n".encode(), 0)
        _log.debug("locked %s", path)
        yield
    finally:
        lock.release()


def _raise_if_overdue(error: RetryLater, last: float, patience: float) -> None:
    """Raise NoTickForLong if the last tick was completed longer ago than `patience` seconds.

    A stamp that lies as far in the future shows a clock that was set back, and does not count.
    """
    silent_s = abs(time.time() - last)
    _log.debug("the last tick was completed %.0f s ago, patience is %.0f s", silent_s, patience)
    if silent_s <= patience:
        return
    since = shown(moment(last))
    raise NoTickForLong(
        f"no tick has been completed since {since} ({silent_s / 60:.0f} min), and leases run out: "
        f"{error}"
    ) from error


def _of_another(path: Path, uid: int) -> NotAllowed:
    """The error for a lock of another user. Only the user of the ticks may use the lock."""
    return NotAllowed(
        f"only the tick's user may run ticks and hold jobs: run this as {_name(uid)}, the "
        f"owner of {path} ({_as_user(uid)})"
    )


def _owner(path: Path) -> int:
    """The owner of the file, or of the directory that hides it."""
    try:
        return os.lstat(path).st_uid
    except OSError:
        return os.lstat(path.parent).st_uid


def _as_user(uid: int) -> str:
    """The command prefix that runs as this user. Root needs no password to become another user."""
    name = _name(uid).removeprefix("user ")
    become = f"runuser -u {name} --" if os.geteuid() == 0 else f"sudo -u {name}"
    return f"{become} malleable ..."


def _name(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"
