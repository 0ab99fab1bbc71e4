"""Reads and writes the switches, two files in the state directory.

`off` keeps malleable jobs off all nodes, `no-growth` keeps them from growing. A file of any kind
counts under its name, and the first line of a plain file is the reason. If a file cannot be
checked, it must not count as absent.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Optional

from slurm_hooks.errors import MalleableError, NotAllowed, SettingsError
from slurm_hooks.model import Off, Snapshot
from slurm_hooks.model.moments import moment

NAME = "off"
NO_GROWTH = "no-growth"
LONGEST = 200


def find_off(directory: str) -> Optional[Off]:
    """The switch in the state directory. None if malleable jobs are on.

    Raises SettingsError if the directory cannot be read.
    """
    return _find(directory, NAME, "whether malleable jobs are switched off")


def find_no_growth(directory: str) -> Optional[Off]:
    """The file by which the site keeps jobs from growing. None if they may grow.

    Raises SettingsError if the directory cannot be read.
    """
    return _find(directory, NO_GROWTH, "whether malleable jobs may grow")


def _find(directory: str, name: str, question: str) -> Optional[Off]:
    path = Path(directory) / name
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _fault(directory, question, error) from error
    return Off(_since(status), _reason(path) if stat.S_ISREG(status.st_mode) else "")


def _since(status: os.stat_result) -> datetime:
    """The file's date, or its last change if no calendar has that date."""
    try:
        return moment(int(status.st_mtime))
    except (ValueError, OverflowError, OSError):
        return moment(int(status.st_ctime))


def with_switches(seen: Snapshot, directory: str, is_reading: bool) -> Snapshot:
    """The snapshot with the present state of both files.

    Raises SettingsError if that cannot be read. A caller that only reads (`is_reading`) gets a line
    about it.
    """
    try:
        return replace(seen, off=find_off(directory), no_growth=find_no_growth(directory))
    except SettingsError as error:
        if not is_reading:
            raise
        return replace(seen, unknown=(*seen.unknown, str(error)))


def switch_off(directory: str, reason: str = "") -> Off:
    """Create the switch file, and return the present switch.

    An existing file keeps its date. It also keeps its reason if the new reason cannot be written.
    Raises NotAllowed if this user may not write it, SettingsError if it cannot be written.
    """
    before = find_off(directory)
    if before is not None and (not reason or before.reason == reason):
        return before
    try:
        os.makedirs(directory, mode=0o755, exist_ok=True)
        with _opened(directory) as place:
            written = _write(place, _one_line(reason), before)
    except OSError as error:
        refusal = _refusal(directory, "the switch could not be set, and nothing changed", error)
        if before is None or isinstance(refusal, NotAllowed):
            raise refusal from error
        return before
    return find_off(directory) or written  # another user may have switched on since


def switch_on(directory: str) -> Optional[Off]:
    """Remove the switch file, and return the switch from before.

    Raises NotAllowed if this user may not remove it, SettingsError if it cannot be removed.
    """
    before = find_off(directory)
    if before is None:
        return None
    try:
        with _opened(directory) as place, contextlib.suppress(FileNotFoundError):
            os.unlink(NAME, dir_fd=place)
    except OSError as error:
        failure = f"malleable jobs are still switched off by {Path(directory) / NAME}: remove it"
        raise _refusal(directory, failure, error) from error
    return before


@contextlib.contextmanager
def _opened(directory: str) -> Iterator[int]:
    place = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield place
    finally:
        os.close(place)


def _write(place: int, reason: str, before: Optional[Off]) -> Off:
    """Write a new file under a unique name, and rename it.

    So no link under the final name is followed, and two processes can do it at once.
    """
    partial = f".{NAME}.{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(partial, dir_fd=place)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(partial, flags, 0o644, dir_fd=place)
    try:
        os.fchmod(handle, 0o644)  # users read it, whatever the umask
        with contextlib.suppress(OSError):  # a full disk loses the reason, but an empty file counts
            os.write(handle, f"{reason}\n".encode())
        if before is not None:
            os.utime(handle, (before.since.timestamp(),) * 2)
        since = _since(os.fstat(handle))
    finally:
        os.close(handle)
    try:
        os.rename(partial, NAME, src_dir_fd=place, dst_dir_fd=place)
    except OSError:
        os.unlink(partial, dir_fd=place)
        raise
    return Off(since, reason)


def _reason(path: Path) -> str:
    """The first line of the file. Empty if it cannot be read, but the file still counts."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return _one_line(os.read(handle, 4 * LONGEST).decode("utf-8", "replace"))
    except OSError:
        return ""
    finally:
        os.close(handle)


def _one_line(text: str) -> str:
    line = (text.strip().splitlines() or [""])[0]
    return re.sub(r"[^\x20-\x7e\u00a0-\ud7ff]", "?", line)[:LONGEST]


def _refusal(directory: str, failure: str, error: OSError) -> MalleableError:
    if error.errno not in (errno.EACCES, errno.EPERM):
        return _fault(directory, failure, error)
    return NotAllowed(
        f"tick.state_dir = {directory!r}: {failure}: {error.strerror}; run this as root or as the "
        "user of the tick"
    )


def _fault(directory: str, failure: str, error: OSError) -> SettingsError:
    is_barred = error.errno in (errno.EACCES, errno.EPERM, errno.ENOTDIR)
    advice = (
        "; run this as root or as the user of the tick, and let all users search the directory "
        "(chmod a+rx)"
        if is_barred
        else ""
    )
    return SettingsError([f"tick.state_dir = {directory!r}: {failure}: {error.strerror}{advice}"])
