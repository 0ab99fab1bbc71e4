"""The switches, two files in the state directory: `off` keeps malleable jobs off all nodes,
`no-growth` keeps them from growing.

A file is there or it is not: whatever lies under its name counts, and one line of a plain file is
the reason. Where nobody can tell, nobody may take it for absent.
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
    """The switch in the state directory, None if malleable jobs are on.

    Raises SettingsError if the directory cannot be looked into.
    """
    return _find(directory, NAME, "whether malleable jobs are switched off")


def find_no_growth(directory: str) -> Optional[Off]:
    """The file by which the site keeps jobs from growing, None if they may.

    Raises SettingsError if the directory cannot be looked into.
    """
    return _find(directory, NO_GROWTH, "whether malleable jobs may grow")


def _find(directory: str, name: str, what: str) -> Optional[Off]:
    path = Path(directory) / name
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _fault(directory, what, error) from error
    return Off(_since(found), _reason(path) if stat.S_ISREG(found.st_mode) else "")


def _since(found: os.stat_result) -> datetime:
    """Its date, or that of its last change if it was given one that no calendar has."""
    try:
        return moment(int(found.st_mtime))
    except (ValueError, OverflowError, OSError):
        return moment(int(found.st_ctime))


def with_switches(seen: Snapshot, directory: str, is_reading: bool) -> Snapshot:
    """The snapshot with both files as they stand.

    Raises SettingsError if that cannot be seen; who `is_reading` alone gets a line about it.
    """
    try:
        return replace(seen, off=find_off(directory), no_growth=find_no_growth(directory))
    except SettingsError as error:
        if not is_reading:
            raise
        return replace(seen, unknown=(*seen.unknown, str(error)))


def switch_off(directory: str, reason: str = "") -> Off:
    """Put the file there; returns what holds now. One that is there keeps its date, and its reason
    where the new one cannot be written.

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
    return find_off(directory) or written  # somebody else may have switched on since


def switch_on(directory: str) -> Optional[Off]:
    """Remove the file; returns what held before. Raises NotAllowed if this user may not
    remove it, SettingsError if it cannot be removed."""
    before = find_off(directory)
    if before is None:
        return None
    try:
        with _opened(directory) as place, contextlib.suppress(FileNotFoundError):
            os.unlink(NAME, dir_fd=place)
    except OSError as error:
        what = f"malleable jobs are still switched off by {Path(directory) / NAME}; remove it"
        raise _refusal(directory, what, error) from error
    return before


@contextlib.contextmanager
def _opened(directory: str) -> Iterator[int]:
    place = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield place
    finally:
        os.close(place)


def _write(place: int, reason: str, before: Optional[Off]) -> Off:
    """A new file under a name of its own, renamed: no link that lies there is followed, and of two
    who do so at once neither is in the way."""
    partial = f".{NAME}.{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(partial, dir_fd=place)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(partial, flags, 0o644, dir_fd=place)
    try:
        os.fchmod(handle, 0o644)  # users read it, whatever the umask
        with contextlib.suppress(OSError):  # a full disk takes the reason; an empty file counts too
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
    """The first line of the file; empty if it cannot be read, which makes it no less there."""
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


def _refusal(directory: str, what: str, error: OSError) -> MalleableError:
    if error.errno not in (errno.EACCES, errno.EPERM):
        return _fault(directory, what, error)
    return NotAllowed(
        f"tick.state_dir = {directory!r}: {what}: {error.strerror}; run this as root or as the "
        "user of the tick"
    )


def _fault(directory: str, what: str, error: OSError) -> SettingsError:
    is_barred = error.errno in (errno.EACCES, errno.EPERM, errno.ENOTDIR)
    advice = (
        "; run this as root or as the user of the tick, and let everybody search the directory "
        "(chmod a+rx)"
        if is_barred
        else ""
    )
    return SettingsError([f"tick.state_dir = {directory!r}: {what}: {error.strerror}{advice}"])
