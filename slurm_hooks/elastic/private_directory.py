"""A directory that only its user can access, below directories that others may write to.

A user that can put files into the shared directory decides where the agents connect. So the path is
made component by component, and each is checked through a handle opened without following links.
It is checked again on every open, because a name in another user's directory may later refer to
another directory.
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
    """The shared directory failed. The message tells the user how to mend that."""


def job_directory(env: Mapping[str, str]) -> Optional[Path]:
    """Return the directory that all nodes of this job share, or `None` outside of a malleable
    job.
    """
    places = (env.get(name, "") for name in ("PET_RDZV_ENDPOINT", "MALLEABLE_DIR"))
    return next((Path(place) for place in places if place.startswith("/")), None)


def await_lock(handle: int, until: float) -> bool:
    """Wait for the lock of an open file until that time (time.monotonic()). Return False if another
    process still holds it then. Where locks do not work, there is nothing to wait for.
    """
    while True:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                debug("locking a file of the job", error)
                return True
        if time.monotonic() >= until:
            return False
        time.sleep(random.uniform(0.002, 0.02))


def make_private(path: Path) -> None:
    """Make the directory and the missing directories above it, for this user alone.

    Directories that were there stay unchanged, but `path` itself must be the user's own. Raises
    DirectoryError, OSError.
    """
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
    """Return the deepest directory above `path` that can be seen, and the names below it."""
    names = [path.name]
    above = path.parent
    while not os.path.isdir(above):
        names.insert(0, above.name)
        above = above.parent
    return above, names


def _step_into(handle: int, name: str, path: Path) -> int:
    """Return a handle of the directory `name` in the directory of `handle`, which is closed."""
    try:
        with suppress(FileExistsError):  # another agent, or another user, may have been faster
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
    """Return a handle of the user's own directory `name`, called `path` in messages."""
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
        "removed, or submit from a directory where only you can write"
    )


def _narrow(handle: int, path: Path) -> None:
    """Close to other users a directory that may have been made with another mode."""
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
    """Open the user's own directory `path`, through the handle `above` of its parent if it is
    given.

    On NFS the open makes the client ask the server, so a listing through this handle is fresh.
    Raises DirectoryError, OSError.
    """
    handle = _open(path if above is None else path.name, path, above)
    try:
        yield handle
    finally:
        os.close(handle)


def write_file(path: Path, name: str, data: bytes, draft: str) -> None:
    """Write a whole file of the directory `path`, under the name `draft` until it is complete.
    Raises OSError, DirectoryError.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with entered(path) as handle:
        with open(os.open(draft, flags, 0o600, dir_fd=handle), "wb") as file:
            file.write(data)
        os.replace(draft, name, src_dir_fd=handle, dst_dir_fd=handle)


def read_file(path: Path, name: str, limit: int) -> bytes:
    """Return at most `limit` bytes of a file in the directory `path`. No link is followed, and a
    FIFO does not block. Raises OSError, DirectoryError.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with entered(path) as handle, open(os.open(name, flags, dir_fd=handle), "rb") as file:
        return file.read(limit) or b""
