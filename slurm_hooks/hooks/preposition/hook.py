"""The hook that a site's Prolog calls as root (docs/admins/environments.md), with `python3 -I`.

Python 3.9 and its standard library are enough. The hook never keeps a job from starting: it ends
with 0, within its seconds. A job whose environment is not laid by then uses the original. Root
opens only the store. A child with the user's rights reads and writes the paths that the user named.
No program of the user is executed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import random
import resource
import signal
import sys
import time
from collections.abc import Mapping

from .content import NotLaid
from .eviction import DAY_S, Rules, evict_surplus, evict_unused
from .store import lay

GIB = 2**30
TIDY_S = 0.5  # for a user; the rest waits for the next day
MEMORY = GIB // 2  # of address space: a header of a tar may ask for as much as it likes


def open_home(store: str, uid: int, gid: int) -> int:
    """Return a handle of the user's directory of the store, made if it is missing. Raises OSError,
    and NotLaid if the directory or the store has wrong rights.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    top = os.open(store, flags)
    try:
        at = os.fstat(top)
        if at.st_uid != os.geteuid() or at.st_mode & 0o022:
            raise NotLaid(f"{store} must belong to root, and only root may write to it")
        with contextlib.suppress(FileExistsError):
            os.mkdir(str(uid), 0o700, dir_fd=top)
        home = os.open(str(uid), flags, dir_fd=top)
    finally:
        os.close(top)
    if os.fstat(home).st_uid == os.geteuid() != uid:
        os.fchown(home, uid, gid)
    if os.fstat(home).st_uid != uid or os.fstat(home).st_mode & 0o077:
        raise NotLaid(f"{store}/{uid} must belong to the user, with mode 0700")
    return home


def become(uid: int, gid: int, home: int, seconds: float) -> None:
    """Give up root's rights for good, and work in `home`, with bounds and no open file except
    stderr.

    It ends after `seconds`, even if its parent is gone. Slurmd waits for the end of the Prolog's
    output, so a child that hangs must not keep that open.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    signal.setitimer(signal.ITIMER_REAL, seconds)
    os.fchdir(home)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.closerange(3, 256)
    if os.geteuid() == 0:
        _take_groups(uid, gid)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.umask(0o077)


def _take_groups(uid: int, gid: int) -> None:
    """Take the groups of the user's own processes: a group may own the named path."""
    try:
        os.initgroups(pwd.getpwuid(uid).pw_name, gid)
    except KeyError:  # this node does not know a user of that number
        os.setgroups([])


def wait_for(child: int, seconds: float) -> None:
    """Wait that long, then kill it and do not wait: it may hang in a dead file system."""
    end = time.monotonic() + seconds
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            tell(f"process {child} was killed after {seconds:g} s, before it had finished")
            return
        time.sleep(0.02)


def tell(text: str) -> None:
    """Write a line to slurmd's log. A failure to write does not concern the job, and is ignored."""
    with contextlib.suppress(OSError):
        os.write(2, f"malleable: preposition: {ascii(text)[1:-1]}\n".encode())


def run_as_user(path: str, job: str, rules: Rules) -> None:
    """Do the child's part, and log the result."""
    begin = time.monotonic()
    try:
        name = lay(path, job, rules)
        tell(f"job {job}: {name} after {time.monotonic() - begin:.2f} s")
    except NotLaid as error:
        tell(f"job {job}: not laid, the job uses the original: {error}")
    except Exception as error:  # tarfile has many for a damaged tar
        why = f"{type(error).__name__}: {error}"
        tell(f"job {job}: not laid, the job uses the original: {why}")


def tidy_once_a_day(store: str, rules: Rules, seconds: float) -> None:
    """Evict, each as its user, in the directories of users that may never come back."""
    stamp = os.path.join(store, ".tidied")
    with contextlib.suppress(FileNotFoundError):
        if 0 <= time.time() - os.lstat(stamp).st_mtime < DAY_S:
            return
    if seconds < TIDY_S:
        return
    os.close(os.open(stamp, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    os.utime(stamp, None)
    end = time.monotonic() + seconds
    users = [name for name in os.listdir(store) if name.isdecimal()]
    for name in random.sample(users, len(users)):  # so that the same user is not skipped every day
        if time.monotonic() > end:
            return
        if os.geteuid() in (0, int(name)):
            _tidy(store, int(name), rules)


def _tidy(store: str, uid: int, rules: Rules) -> None:
    gid = os.lstat(os.path.join(store, str(uid))).st_gid
    try:
        home = open_home(store, uid, gid)
    except (NotLaid, OSError):
        return
    child = os.fork()
    if child == 0:
        become(uid, gid, home, 2 * TIDY_S)
        with contextlib.suppress(OSError):
            evict_unused(rules, time.time())
            evict_surplus(rules)
        os._exit(0)
    os.close(home)
    wait_for(child, TIDY_S)  # a stopped process of a user delays another user's job only briefly


def amount(word: str) -> float:
    """Return a number from 0 on. Raises ValueError."""
    number = float(word)
    if not 0 <= number < float("inf"):
        raise ValueError(word)
    return number


def arguments(words: list[str]) -> argparse.Namespace:
    """Read the arguments of the site's Prolog."""
    parser = argparse.ArgumentParser(description="lay a malleable job's environment on the node")
    parser.add_argument(
        "--store", required=True, help="root's directory on the node's own disk (required)"
    )
    parser.add_argument(
        "--seconds",
        type=amount,
        default=60.0,
        help="the longest wait of the job (default %(default)g)",
    )
    parser.add_argument(
        "--user-gib",
        type=amount,
        default=50.0,
        help="limit of a user on a node (default %(default)g)",
    )
    parser.add_argument(
        "--free-gib",
        type=amount,
        default=10.0,
        help="leave this free on the disk (default %(default)g)",
    )
    share = "leave this share of the disk's bytes and inodes free, 0 to 1 (default %(default)g)"
    parser.add_argument("--free-share", type=amount, default=0.05, help=share)
    parser.add_argument(
        "--days",
        type=amount,
        default=14.0,
        help="remove an environment after so many days without use (default %(default)g)",
    )
    return parser.parse_args(words)


def main(words: list[str], environ: Mapping[str, str]) -> None:
    """Lay the environment that the job names. Raises NotLaid, OSError, ValueError."""
    path, job = environ.get("SPANK_MALLEABLE_ENV", ""), environ.get("SLURM_JOB_ID", "")
    if not path.startswith("/") or not environ.get("SPANK_MALLEABLE") or not job.isdecimal():
        return
    uid, gid = int(environ["SLURM_JOB_UID"]), int(environ["SLURM_JOB_GID"])
    site = arguments(words)
    if os.geteuid() not in (0, uid):
        raise NotLaid("this is neither root nor the job's user")
    most, free = int(site.user_gib * GIB), int(site.free_gib * GIB)
    rules = Rules(most, free, site.days * DAY_S, site.free_share)
    home = open_home(site.store, uid, gid)
    child = os.fork()
    if child == 0:
        become(uid, gid, home, site.seconds + 1)
        run_as_user(path, job, rules)
        os._exit(0)
    end = time.monotonic() + site.seconds
    wait_for(child, site.seconds)
    tidy_once_a_day(site.store, rules, end - time.monotonic())


if __name__ == "__main__":
    try:
        main(sys.argv[1:], os.environ)
    except (Exception, SystemExit) as error:  # any other end drains the node
        tell(f"{type(error).__name__}: {error}")
    os._exit(0)
