"""Evict environments from a user's directory of the store (store.py), as this user.

It works in the current directory. It must not know of root, nor of the content of an environment.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from dataclasses import dataclass

from .content import NAME
from .locks import locked

DAY_S = 86400.0
STARTING_S = 600.0  # from the Prolog to the first process of the job, generously


@dataclass(frozen=True)
class Rules:
    """The site's limits: bytes of a user on a node, bytes to leave free, seconds, and the share of
    the disk, in bytes and in inodes, to leave free.
    """

    most: int
    free: int
    unused_s: float
    free_share: float = 0.0

    def spare(self) -> int:
        """Return the bytes that may still be taken of the disk, negative if it is too full."""
        at = os.statvfs(".")
        if at.f_favail < self.free_share * at.f_files:  # both zero if inodes have no limit
            return -1
        kept = max(self.free, int(self.free_share * at.f_blocks * at.f_frsize))
        return at.f_bavail * at.f_frsize - kept


def evict_unused(rules: Rules, now: float) -> None:
    """Remove the leftovers of dead processes, and environments that no job here has used for too
    long.
    """
    for name in os.listdir("."):
        if name.startswith(("part-", "lock-")):
            _remove_dead(name, now)
    with locked("lock"):
        _drop_links(now)
        put_away([name for name in _idle() if age(name, now) > rules.unused_s])
    _removeput_away()


def evict_surplus(rules: Rules) -> int:
    """Remove unused environments until the rest is within the limit and the disk not too full.
    Return the bytes of the environments that jobs use.

    Environments whose last use is longest ago go first.
    """
    with locked("lock"):
        idle = _idle()
        sizes = {name: size_of(name) for name in _environments()}
        total = sum(sizes.values())
        in_use = total - sum(sizes[name] for name in idle)
        surplus = max(total - rules.most, -rules.spare())
        going: list[str] = []
        while surplus > 0 and len(going) < len(idle):
            going.append(idle[len(going)])
            surplus -= sizes[going[-1]]
        put_away(going)
    _removeput_away()
    return in_use


def _remove_dead(name: str, now: float) -> None:
    """Remove a directory that a dead process began to fill, or a lock that has been free for a
    day.
    """
    if name.startswith("lock-") and age(name, now) < DAY_S:
        return
    with locked("lock-" + name[5:], wait=False) as dead:
        if dead and name.startswith("part-"):
            remove(name)
        elif dead:
            os.unlink(name)


def age(name: str, now: float) -> float:
    """Return seconds since its last use. A time in the future, by a wrong clock, counts the
    same.
    """
    return abs(now - os.lstat(name).st_mtime)


def put_away(names: list[str]) -> None:
    """Rename them, so that they are no longer used. They are removed when the lock is free."""
    for name in names:
        os.rename(name, f"gone-{name}-{time.time_ns()}")


def _removeput_away() -> None:
    for name in os.listdir("."):
        if name.startswith("gone-"):
            remove(name)


def _environments() -> list[str]:
    return [name for name in os.listdir(".") if re.fullmatch("env-[0-9a-f]{64}", name)]


def _idle() -> list[str]:
    """Return environments that no job here uses, the longest unused first."""
    in_use = {os.readlink(name) for name in os.listdir(".") if name.startswith("job-")}
    idle = [name for name in _environments() if name not in in_use]
    return sorted(idle, key=lambda name: os.lstat(name).st_mtime)


def _drop_links(now: float) -> None:
    running = jobs_here()
    for name in os.listdir("."):
        if name.startswith("boot-") and not os.path.lexists(f"env-{name[5:]}"):
            os.unlink(name)
        if not name.startswith(("job-", "of-")):
            continue
        is_old = age(name, now) > STARTING_S
        if (name.startswith("job-") and is_old and name[4:] not in running) or not os.path.exists(
            name
        ):
            os.unlink(name)


def jobs_here() -> frozenset[str]:
    """Return the ids of the jobs of which this user has a process on this host."""
    jobs = set()
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{process}/environ", "rb") as file:
            jobs.update(re.findall(rb"(?:^|\0)SLURM_JOB_ID=(\d+)", file.read()))
    return frozenset(job.decode() for job in jobs)


def size_of(name: str) -> int:
    """Return the bytes of an environment as they are counted when it is laid."""
    paths = (os.path.join(at, file) for at, _, files in os.walk(name) for file in files)
    return sum(os.lstat(path).st_size + NAME for path in paths)


def remove(name: str) -> None:
    """Remove a directory, if it is there, even if a job has write-protected its content."""
    with contextlib.suppress(OSError):
        os.chmod(name, 0o700)
    for where, directories, _ in os.walk(name):
        for path in (os.path.join(where, each) for each in directories):
            with contextlib.suppress(OSError):
                if not os.path.islink(path):
                    os.chmod(path, 0o700)
    shutil.rmtree(name, ignore_errors=True)
