"""A user's directory in the store, as this user: environments are laid, used and evicted there.

* `env-DIGEST`: an environment named after its content. Its time is the time of its last use.
* `of-KEY`: a link to it. KEY stands for the file from which it came.
* `job-ID`: the link that a job follows.
* `boot-DIGEST`: names the boot that laid it, until it is surely on the disk (settled.py).
* `lock-KEY`: locked by the process that lays it, in `part-KEY`.
* `gone-...`: on its way out.

A lock ends with its process. So a process that gets the lock of a part knows that the earlier
writer is dead. All works in the current directory. It must not know of root.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from typing import IO, Optional, cast

from .content import (
    Digesting,
    Entry,
    NotLaid,
    Room,
    tar_entries,
    tree_entries,
    tree_manifest,
    write_entries,
)
from .eviction import Rules, evict_surplus, evict_unused, remove
from .locks import locked
from .settled import drop_if_doubtful, mark_as_new

SQUASHFS = b"hsqs"  # its first bytes, on little-endian machines


def lay(path: str, job: str, rules: Rules) -> str:
    """Have `job-JOB` lead to the environment at `path`, laid now unless it is here already.

    Evicts before and after it lays, and handles a user's environments one after the other. Returns
    its name. Raises NotLaid, OSError, and the standard library's errors for a damaged tar.
    """
    _raise_if_ours(path)
    source = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO must not hold us up
    with open(source, "rb", closefd=True) if _is_file(source, path) else _tree(source) as file:
        key = _key(path, source)
        with locked(f"lock-{key}"):
            if not use(key, job):
                with locked("lay"):
                    evict_unused(rules, time.time())
                    _lay_new(file, path, key, rules, evict_surplus(rules))
                    evict_surplus(rules)  # the newest is the last to go
            if not use(key, job):
                raise NotLaid("it was evicted at once")
    return os.readlink(f"job-{job}")


def _raise_if_ours(path: str) -> None:
    """Refuse to copy the store into itself."""
    source, home = os.path.realpath(path), os.getcwd()
    if os.path.commonpath([source, home]) in (source, home):
        raise NotLaid(f"{path[:200]!r} is in the store, or the store in it")


def _is_file(source: int, path: str) -> bool:
    mode = os.fstat(source).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise NotLaid(f"{path[:200]!r} is neither a file nor a directory")
    return stat.S_ISREG(mode)


@contextlib.contextmanager
def _tree(source: int) -> Iterator[None]:
    try:
        yield None
    finally:
        os.close(source)


def _key(path: str, source: int) -> str:
    at = os.fstat(source)
    facts = [path, at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns]
    if stat.S_ISDIR(at.st_mode):
        facts.append(tree_manifest(path))
    return hashlib.sha256(repr(facts).encode(errors="surrogatepass")).hexdigest()[:20]


def use(key: str, job: str) -> bool:
    """Lead the job to the environment of `key`, and note the use. Return False if it is not
    here.
    """
    with locked("lock"):
        try:
            name = os.readlink(f"of-{key}")
            drop_if_doubtful(name)
            os.utime(name, None)
        except FileNotFoundError:
            return False
        _link(name, f"job-{job}")
        return True


def _link(target: str, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"new-{name}")
    os.symlink(target, f"new-{name}")
    os.replace(f"new-{name}", name)


def _lay_new(file: Optional[IO[bytes]], path: str, key: str, rules: Rules, in_use: int) -> None:
    part = f"part-{key}"
    remove(part)
    room = Room(rules.most - in_use, lambda: rules.spare() > 0)
    try:
        digest = _fill(file, path, part, room)
    except BaseException:
        remove(part)
        raise
    with locked("lock"):
        drop_if_doubtful(f"env-{digest}")
        mark_as_new(f"env-{digest}")
        with contextlib.suppress(OSError):  # two files of the same content need a single copy
            os.rename(part, f"env-{digest}")
        os.utime(f"env-{digest}", None)  # a tar may say how old its root is
        _link(f"env-{digest}", f"of-{key}")
    remove(part)


def _fill(file: Optional[IO[bytes]], path: str, part: str, room: Room) -> str:
    if file is None:
        before = tree_manifest(path)
        write_entries(tree_entries(path), part, room)
        after, digest = tree_manifest(path), before
    else:
        before = _written(file)
        digest = _fill_from_file(file, part, room)
        after = _written(file)
    if before != after:
        raise NotLaid("it changed while it was read")
    return digest


def _written(file: IO[bytes]) -> str:
    at = os.fstat(file.fileno())
    return f"{at.st_size} {at.st_mtime_ns}"


def _fill_from_file(file: IO[bytes], part: str, room: Room) -> str:
    is_image = file.read(len(SQUASHFS)) == SQUASHFS
    file.seek(0)
    source = Digesting(file)
    if not is_image:
        write_entries(tar_entries(source), part, room)
        return source.finish()
    at = os.fstat(file.fileno())
    image = Entry(
        "image.squashfs", 0o400, at.st_mtime, at.st_size, source=cast("IO[bytes]", source)
    )
    write_entries(iter([image]), part, room)
    return source.finish()
