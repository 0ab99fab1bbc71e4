"""One tick at a time, and an error of its own once none has been completed for long.

The lock is a file that nobody but the user of the tick can open: whoever can open a file can
flock it, and so block every tick. The date of a file beside it is that of the last completed tick.
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

from slurm_hooks.books.storage.place import refuse_open_above
from slurm_hooks.errors import NotAllowed, NoTickForLong, RetryLater, SettingsError
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
    """Hold the tick lock; the kernel lets go of it when this process ends, however it ends.

    Raises NotAllowed if it is another user's, SettingsError if it lies where others could meddle
    with it, RetryLater if another tick runs. A RetryLater from in here or from the body becomes
    NoTickForLong once no tick has been completed for `patience_s`.
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
    """Hold the lock as soon as no tick runs. Raises NotAllowed and SettingsError as `locked` does,
    RetryLater if a tick takes longer than a command waits."""
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
    """The file whose date is that of the last completed tick."""
    path = Path(chosen.lock)
    return path.with_name(f"{path.name}.done")


def patience_s(chosen: Tick) -> float:
    """How many seconds without a completed tick are no failure yet: slurmctld may restart."""
    return max(SHORTEST_PATIENCE_S, TICKS_OF_PATIENCE * chosen.every_s)


@contextlib.contextmanager
def _as_settings_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        fault = f"tick.lock = {str(path)!r}: cannot be used: {error}"
        raise SettingsError([fault]) from error


def _make_directory(path: Path) -> None:
    """Make it, for us alone; an existing one is used only if nobody else can write to it.

    Its mode is not changed: the setting may name a directory that others need.
    """
    try:
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700, parents=True)
    except PermissionError as error:
        raise NotAllowed(
            "only the tick's user may run ticks and hold jobs: run this as root or as SlurmUser "
            f"({path} is not there, and this user cannot make it)"
        ) from error
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"{path} is not a directory ({stat.filemode(found.st_mode)})")
    trusted = (0, os.geteuid())
    if found.st_uid not in trusted:
        raise _of_another(path, found.st_uid)
    if is_open(found, trusted):
        raise PermissionError(
            f"others can write to {path} ({stat.filemode(found.st_mode)}) and could block every "
            "tick: name a directory that is used for nothing else"
        )
    refuse_open_above(path)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[int]:
    """A descriptor of a file of our own that nobody else can open. Raises OSError."""
    try:
        handle = os.open(path, _FLAGS, 0o600)
    except PermissionError as error:
        raise _of_another(path, _owner(path)) from error
    try:
        found = os.fstat(handle)
        if found.st_uid != os.geteuid():
            raise _of_another(path, found.st_uid)
        if not stat.S_ISREG(found.st_mode):
            raise PermissionError(f"{path} is not a plain file ({stat.filemode(found.st_mode)})")
        if found.st_mode & 0o077:
            # As versions before this one made it: whoever has it open could hold it for ever.
            _log.debug("%s is made anew: %s", path, stat.filemode(found.st_mode))
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
        who = os.pread(holder, 20, 0).decode("ascii", "replace").strip() or "unknown"
        raise RetryLater(
            f"another tick is running (process {who} holds {path}); nothing done"
        ) from error
    try:
        with contextlib.suppress(OSError):  # a full disk takes the number; the lock is held
            os.ftruncate(holder, 0)
            os.pwrite(holder, f"{os.getpid()}\n".encode(), 0)
        _log.debug("locked %s", path)
        yield
    finally:
        lock.release()


def _raise_if_overdue(error: RetryLater, last: float, patience: float) -> None:
    """Raises NoTickForLong if the last tick was completed longer ago than `patience` seconds.

    A stamp that lies as far ahead tells of a clock that was set back, and is as good as none.
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
    """The lock is made by the user of the ticks, who alone may do what needs it."""
    return NotAllowed(
        f"only the tick's user may run ticks and hold jobs: run this as {_name(uid)}, to whom "
        f"{path} belongs ({_as_user(uid)})"
    )


def _owner(path: Path) -> int:
    """Of the file, or of the directory that hides it."""
    try:
        return os.lstat(path).st_uid
    except OSError:
        return os.lstat(path.parent).st_uid


def _as_user(uid: int) -> str:
    """How to run a command as this user: root needs no password to become another."""
    name = _name(uid).removeprefix("user ")
    become = f"runuser -u {name} --" if os.geteuid() == 0 else f"sudo -u {name}"
    return f"{become} malleable ..."


def _name(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"
