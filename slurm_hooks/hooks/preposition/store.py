"""A user's directory in the store, as this user: what is laid, used and evicted there.

There is `env-DIGEST`, an environment named after its content, whose time is that of its last use;
`of-KEY`, a link to it, KEY standing for the file that it came from; `job-ID`, the link that a job
follows; `lock-KEY`, locked by whoever lays it, in `part-KEY`; `gone-...`, on its way out. A lock
ends with its process, so who gets the lock of a part knows that whoever began it is dead.
All works in the current directory. It must not know of root.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Optional, cast

from .content import (
    Digesting,
    Entry,
    NotLaid,
    tar_entries,
    tree_entries,
    tree_manifest,
    write_entries,
)

STARTING_S = 600.0  # from Prolog to the first process that tells of its job, generously
SQUASHFS = b"hsqs"  # its first bytes, on little-endian machines


@dataclass(frozen=True)
class Rules:
    """What the site allows: bytes of one user on a node, bytes to be left free, seconds."""

    most: int
    free: int
    unused_s: float


@contextlib.contextmanager
def locked(name: str, wait: bool = True) -> Iterator[bool]:
    """The lock of that name; False if another has it and `wait` is false."""
    file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(file)


def lay(path: str, job: str, rules: Rules) -> str:
    """Have `job-JOB` lead to the environment at `path`, laid now unless it is here already.

    Evicts before and after it lays. Returns the environment's name. Raises
    NotLaid, OSError, tarfile.TarError.
    """
    source = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO must not hold us up
    with open(source, "rb", closefd=True) if _is_file(source, path) else _tree(source) as file:
        key = _key(path, source)
        with locked(f"lock-{key}"):
            if not use(key, job):
                evict(rules, time.time())
                _lay_new(file, path, key, rules)
                evict(rules, time.time())  # the newest is the last to go
            if not use(key, job):
                raise NotLaid("it has been evicted at once")
    return os.readlink(f"job-{job}")


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
    told = [path, at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns]
    if stat.S_ISDIR(at.st_mode):
        told.append(tree_manifest(path))
    return hashlib.sha256(repr(told).encode(errors="surrogatepass")).hexdigest()[:20]


def use(key: str, job: str) -> bool:
    """Lead the job to what was laid of `key`, and note the use; False if it is not here."""
    with locked("lock"):
        try:
            name = os.readlink(f"of-{key}")
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


def _lay_new(file: Optional[IO[bytes]], path: str, key: str, rules: Rules) -> None:
    part = f"part-{key}"
    remove(part)
    room = os.statvfs(".")
    most = min(rules.most, room.f_bavail * room.f_frsize - rules.free)
    try:
        digest = _fill(file, path, part, most)
    except BaseException:
        remove(part)
        raise
    with locked("lock"):
        with contextlib.suppress(OSError):  # two files of the same content: one is enough
            os.rename(part, f"env-{digest}")
        _link(f"env-{digest}", f"of-{key}")
    remove(part)


def _fill(file: Optional[IO[bytes]], path: str, part: str, most: int) -> str:
    if file is None:
        before = tree_manifest(path)
        write_entries(tree_entries(path), part, most)
        after, digest = tree_manifest(path), before
    else:
        before = _written(file)
        digest = _fill_from_file(file, part, most)
        after = _written(file)
    if before != after:
        raise NotLaid("it was written to while it was read")
    return digest


def _written(file: IO[bytes]) -> str:
    at = os.fstat(file.fileno())
    return f"{at.st_size} {at.st_mtime_ns}"


def _fill_from_file(file: IO[bytes], part: str, most: int) -> str:
    is_image = file.read(len(SQUASHFS)) == SQUASHFS
    file.seek(0)
    source = Digesting(file)
    if not is_image:
        write_entries(tar_entries(source), part, most)
        return source.finish()
    at = os.fstat(file.fileno())
    image = Entry(
        "image.squashfs", 0o400, at.st_mtime, at.st_size, source=cast("IO[bytes]", source)
    )
    write_entries(iter([image]), part, most)
    return source.finish()


def evict(rules: Rules, now: float) -> None:
    """Remove what dead processes left, and environments that no job here uses: those unused for too
    long, then the ones used longest ago until the rest is within the limit."""
    for name in os.listdir("."):
        if name.startswith("part-"):
            with locked("lock-" + name[5:], wait=False) as dead:
                if dead:
                    remove(name)
    with locked("lock"):
        _drop_links(now)
        in_use = {os.readlink(name) for name in os.listdir(".") if name.startswith("job-")}
        idle = [name for name in _environments() if name not in in_use]
        total = sum(map(size_of, _environments()))
        for name in sorted(idle, key=lambda name: os.stat(name).st_mtime):
            if now - os.stat(name).st_mtime > rules.unused_s or total > rules.most:
                total -= size_of(name)
                os.rename(name, f"gone-{name}-{os.getpid()}")
    for name in os.listdir("."):
        if name.startswith("gone-"):
            remove(name)


def _environments() -> list[str]:
    return [name for name in os.listdir(".") if re.fullmatch("env-[0-9a-f]{64}", name)]


def _drop_links(now: float) -> None:
    running = jobs_here()
    for name in os.listdir("."):
        if not name.startswith(("job-", "of-")):
            continue
        is_old = now - os.lstat(name).st_mtime > STARTING_S
        if (name.startswith("job-") and is_old and name[4:] not in running) or not os.path.exists(
            name
        ):
            os.unlink(name)


def jobs_here() -> frozenset[str]:
    """The ids of the jobs of which this user has a process on this host."""
    found = set()
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{process}/environ", "rb") as file:
            found.update(re.findall(rb"(?:^|\0)SLURM_JOB_ID=(\d+)", file.read()))
    return frozenset(job.decode() for job in found)


def size_of(name: str) -> int:
    """Bytes of the files of an environment: what they take of the disk is not known at once."""
    paths = (os.path.join(at, file) for at, _, files in os.walk(name) for file in files)
    return sum(os.lstat(path).st_size for path in paths)


def remove(name: str) -> None:
    """Remove a directory and what is in it, if it is there."""
    shutil.rmtree(name, ignore_errors=True)
