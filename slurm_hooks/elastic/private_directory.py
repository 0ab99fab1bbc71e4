"""A directory that only its user can access, below directories that others may write to.

Whoever can put files into the shared directory decides where the agents connect. So it is made
one component at a time, each checked through a handle opened without following links, and checked
again on every open, because a name in somebody else's directory may later refer to something
else.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Optional

from slurm_hooks.elastic.log import debug, suppressed

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class DirectoryError(Exception):
    """The shared directory did not do what it must; the message says what to do."""


def job_directory(env: Mapping[str, str]) -> Optional[Path]:
    """The one that all nodes of this job share; None outside of a malleable job."""
    found = (env.get(name, "") for name in ("PET_RDZV_ENDPOINT", "MALLEABLE_DIR"))
    return next((Path(place) for place in found if place.startswith("/")), None)


def await_lock(handle: int, until: float) -> None:
    """Wait for the lock of an open file until that moment (time.monotonic()). Returns without it
    where locks do not work, or somebody holds it for long."""
    while time.monotonic() < until:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                debug("locking a file of the job", error)
                return
        time.sleep(random.uniform(0.002, 0.02))


def make_private(path: Path) -> None:
    """Make the directory and what is missing above it, for this user alone. Directories that
    were there are taken as they are, but `path` itself must be the user's own. Raises
    DirectoryError, OSError."""
    above, missing = _split(path)
    handle = os.open(above, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in missing:
            above = above / name
            handle = _step_into(handle, name, above)
        _narrow(handle, path)
    except DirectoryError as error:
        raise DirectoryError(f"making {path}: {error}") from None
    finally:
        os.close(handle)


def _split(path: Path) -> tuple[Path, list[str]]:
    """The deepest directory above `path` that can be seen, and the names from there on."""
    names = [path.name]
    above = path.parent
    while not os.path.isdir(above):
        names.insert(0, above.name)
        above = above.parent
    return above, names


def _step_into(handle: int, name: str, path: Path) -> int:
    """A handle of the directory `name` in that of `handle`, which is closed."""
    try:
        with suppress(FileExistsError):  # an agent of ours may have been faster, or somebody else
            os.mkdir(name, 0o700, dir_fd=handle)
        inner = _open(name, path, handle)
    except PermissionError as error:
        closed = path if os.path.lexists(path) else path.parent
        owner = os.stat(closed).st_uid
        raise DirectoryError(
            f"{error.strerror} in {closed}, which belongs to the user with uid "
            f"{owner}; submit from a directory that you can write on the compute nodes"
        ) from None
    os.close(handle)
    return inner


def _open(name: str | Path, path: Path, above: int | None = None) -> int:
    """A handle of one's own directory `name`, `path` in messages."""
    try:
        handle = os.open(name, _FLAGS | os.O_NOFOLLOW, dir_fd=above)
    except NotADirectoryError:
        raise DirectoryError(f"{path} is a link or a file, not a directory; remove it") from None
    owner = os.fstat(handle).st_uid
    if owner == os.geteuid():
        return handle
    os.close(handle)
    raise DirectoryError(
        f"{path} belongs to the user with uid {owner}, not to you (uid {os.geteuid()}): have it "
        "removed, or submit from a directory where nobody else can write"
    )


def _narrow(handle: int, path: Path) -> None:
    """Keep others out of what may have been made with another mode."""
    if stat.S_IMODE(os.fstat(handle).st_mode) & 0o077:
        with suppressed(OSError, doing=f"narrowing the mode of {path}"):
            os.fchmod(handle, 0o700)
    if os.fstat(handle).st_mode & 0o022:
        raise DirectoryError(
            f"{path} can be written by others and its mode cannot be changed; "
            "submit from a directory on another file system"
        )


@contextmanager
def entered(path: Path, above: Optional[int] = None) -> Iterator[int]:
    """A handle of the user's own directory `path`, found through that of the one `above` if it is
    given. On NFS opening it makes the client ask the server, so what is listed through it is
    new. Raises DirectoryError, OSError."""
    handle = _open(path if above is None else path.name, path, above)
    try:
        yield handle
    finally:
        os.close(handle)


def read_file(path: Path, name: str, limit: int) -> bytes:
    """At most `limit` bytes of a file in the directory `path`; no link is followed, and a FIFO is
    not waited for. Raises OSError, DirectoryError."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with entered(path) as handle, open(os.open(name, flags, dir_fd=handle), "rb") as file:
        return file.read(limit) or b""
