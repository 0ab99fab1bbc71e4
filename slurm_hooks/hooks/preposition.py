"""Lays the environment that a malleable job names on the node's own disk, before the job starts.

A site's Prolog calls it, as root, with `python3 -I` (docs/sysadmin.md); Python 3.9 and its standard
library are enough. It is never the reason why a job does not start: it ends with 0, within its
seconds, and a job whose environment is not laid by then uses the original. Root opens the store and
nothing else: what the user named is read, and written, by a child that is this user. Nothing of the
user's is executed.

A user's directory in the store holds, each name with 20 or 64 hexadecimal digits:
`env-DIGEST` an environment, named after its content; its time is that of its last use;
`of-KEY` a link to it, KEY standing for the file it came from; `job-ID` the link that a job follows;
`lock-KEY`, locked by who lays it, in `part-KEY`; `gone-...`, on its way out.
A lock ends with its process, so who has the lock of a part knows that whoever began it is dead.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import re
import resource
import shutil
import signal
import stat
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Optional, cast

GIB = 2**30
BLOCK = 2**20
STARTING_S = 600.0  # from Prolog to the first process that tells of its job, generously
MEMORY = 4 * GIB  # of address space: tarfile keeps what it has read of a tar's members
SQUASHFS = b"hsqs"  # its first bytes, on little-endian machines


class NotLaid(Exception):
    """The environment cannot be laid; the text says why."""


@dataclass(frozen=True)
class Rules:
    """What the site allows: bytes of one user on a node, bytes to be left free, seconds."""

    most: int
    free: int
    unused_s: float


@dataclass(frozen=True)
class Entry:
    """One member of an environment. `target` of a link; `source` of a file."""

    name: str
    mode: int
    mtime: float
    size: int = 0
    target: str = ""
    hard: str = ""
    source: Optional[IO[bytes]] = None


class Digesting:
    """A file that is hashed while it is read."""

    def __init__(self, source: IO[bytes]) -> None:
        self.source, self.sum = source, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """The next bytes, `size` at most."""
        content = self.source.read(size)
        self.sum.update(content)
        return content

    def finish(self) -> str:
        """Read what is left; the digest of the whole file."""
        while self.read(BLOCK):
            pass
        return self.sum.hexdigest()


# --- what is in an environment ---


def checked_name(name: str) -> str:
    """`name` without `.` and empty parts. Raises NotLaid if it leads out of the environment."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts:
        raise NotLaid(f"{name[:80]!r} leads out of it")
    return "/".join(parts)


def tar_entries(source: Digesting) -> Iterator[Entry]:
    """The members of a tar, compressed or not, in its order. Raises NotLaid for a device or FIFO."""
    with tarfile.open(fileobj=cast("IO[bytes]", source), mode="r|*") as archive:
        for member in archive:
            entry = Entry(checked_name(member.name), member.mode, member.mtime)
            if member.issym():
                yield Entry(entry.name, 0, entry.mtime, target=member.linkname)
            elif member.islnk():
                hard = checked_name(member.linkname)
                yield Entry(entry.name, 0, entry.mtime, hard=hard)
            elif member.isdir():
                yield Entry(entry.name, entry.mode | stat.S_IFDIR, entry.mtime)
            elif member.isreg():
                content = archive.extractfile(member)
                yield Entry(entry.name, entry.mode, entry.mtime, member.size, source=content)
            else:
                raise NotLaid(f"{member.name[:80]!r} is neither file, directory nor link")


def tree_entries(root: str) -> Iterator[Entry]:
    """The same of a directory, names in order, without what is neither file, directory nor link."""
    for where, directories, files in os.walk(root):
        directories.sort()
        for name in sorted(directories + files):
            path = os.path.join(where, name)
            found = os.lstat(path)
            short = os.path.relpath(path, root)
            if stat.S_ISLNK(found.st_mode):
                yield Entry(short, 0, found.st_mtime, target=os.readlink(path))
            elif stat.S_ISDIR(found.st_mode):
                yield Entry(short, found.st_mode, found.st_mtime)
            elif stat.S_ISREG(found.st_mode):
                with open(path, "rb") as source:
                    yield Entry(short, found.st_mode, found.st_mtime, found.st_size, source=source)


def write_entries(entries: Iterator[Entry], part: str, most: int) -> None:
    """Write them below the new directory `part`, no more than `most` bytes. No setuid bits.

    Symbolic links come last, so that nothing is ever written through one. Raises NotLaid, OSError.
    """
    os.mkdir(part, 0o700)
    links: dict[str, str] = {}
    times: dict[str, float] = {}
    for entry in entries:
        path = os.path.join(part, entry.name) if entry.name else part
        most -= entry.size + 4096
        if most < 0:
            raise NotLaid("it is larger than one user may have here")
        links.pop(path, None)
        if entry.target:
            links[path] = entry.target
        elif entry.hard:
            _write_hard_link(os.path.join(part, entry.hard), path, links)
        elif stat.S_ISDIR(entry.mode):
            os.makedirs(path, 0o700, exist_ok=True)
            times[path] = entry.mtime
        elif entry.source:
            _write_file(path, entry, entry.source)
    for path, target in links.items():
        _make_room(path)
        os.symlink(target, path)
    for path, mtime in reversed(list(times.items())):
        os.utime(path, (mtime, mtime))


def _write_hard_link(target: str, path: str, links: dict[str, str]) -> None:
    if target in links:
        links[path] = links[target]
        return
    _make_room(path)
    os.link(target, path, follow_symlinks=False)


def _make_room(path: str) -> None:
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _write_file(path: str, entry: Entry, source: IO[bytes]) -> None:
    _make_room(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(os.open(path, flags, 0o600), "wb") as written:
        left = entry.size
        while left and (content := source.read(min(BLOCK, left))):
            left -= written.write(content)
        if left:
            raise NotLaid(f"{entry.name[:80]!r} ends too early")
    os.chmod(path, stat.S_IMODE(entry.mode) & 0o777 | 0o400)
    os.utime(path, (entry.mtime, entry.mtime))  # Python compares it with what it has compiled


def tree_manifest(root: str) -> str:
    """A digest of names, kinds, modes, sizes and times in a directory; contents are not read."""
    found = hashlib.sha256()
    for where, directories, files in os.walk(root):
        directories.sort()
        for name in sorted(directories + files):
            path = os.path.join(where, name)
            at = os.lstat(path)
            line = (os.path.relpath(path, root), at.st_mode, at.st_size, at.st_mtime_ns)
            found.update(repr(line).encode(errors="surrogatepass"))
    return found.hexdigest()


# --- as the user, in the user's directory of the store ---


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

    Works in the current directory, and evicts first. Returns the environment's name. Raises
    NotLaid, OSError, tarfile.TarError.
    """
    evict(rules, time.time())
    source = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO must not hold us up
    with open(source, "rb", closefd=True) if _is_file(source, path) else _tree(source) as file:
        key = _key(path, source)
        with locked(f"lock-{key}"):
            if not use(key, job):
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


# --- eviction ---


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
    """Bytes on disk of an environment."""
    paths = (os.path.join(at, file) for at, _, files in os.walk(name) for file in files)
    return sum(os.lstat(path).st_blocks * 512 for path in paths)


def remove(name: str) -> None:
    """Remove a directory and what is in it, if it is there."""
    shutil.rmtree(name, ignore_errors=True)


# --- as root ---


def open_home(store: str, uid: int, gid: int) -> int:
    """The user's directory of the store, made if it is missing. Raises NotLaid if it, or the store,
    is not as it must be, OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    top = os.open(store, flags)
    try:
        at = os.fstat(top)
        if at.st_uid != os.geteuid() or at.st_mode & 0o022:
            raise NotLaid(f"{store} is not root's, or others may write to it")
        with contextlib.suppress(FileExistsError):
            os.mkdir(str(uid), 0o700, dir_fd=top)
        home = os.open(str(uid), flags, dir_fd=top)
    finally:
        os.close(top)
    if os.fstat(home).st_uid == os.geteuid() != uid:
        os.fchown(home, uid, gid)
    if os.fstat(home).st_uid != uid or os.fstat(home).st_mode & 0o077:
        raise NotLaid(f"{store}/{uid} is not the user's own")
    return home


def become(uid: int, gid: int, home: int) -> None:
    """Give up root's rights for good; work in `home`, with bounds, no file open but stderr."""
    os.fchdir(home)
    os.closerange(3, 256)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.umask(0o077)


def wait_for(child: int, seconds: float) -> None:
    """Wait that long, then kill it and do not wait: it may hang in a dead file system."""
    end = time.monotonic() + seconds
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            tell(f"process {child} was not ready in time; the job uses the original")
            return
        time.sleep(0.02)


def tell(text: str) -> None:
    """One line for slurmd's log."""
    print(f"malleable: preposition: {ascii(text)[1:-1]}", file=sys.stderr, flush=True)


def run_as_user(path: str, job: str, rules: Rules) -> None:
    """The child's part; tells what it did."""
    begin = time.monotonic()
    try:
        name = lay(path, job, rules)
        tell(f"job {job}: {name} after {time.monotonic() - begin:.2f} s")
    except (NotLaid, OSError, tarfile.TarError, EOFError, ValueError, MemoryError) as error:
        tell(f"job {job}: not laid, the job uses the original: {error}")


def tidy_once_a_day(store: str, rules: Rules, seconds: float) -> None:
    """Evict, each as its user, in the directories of users who may never come back."""
    stamp = os.path.join(store, ".tidied")
    with contextlib.suppress(FileNotFoundError):
        if time.time() - os.lstat(stamp).st_mtime < 86400:
            return
    os.close(os.open(stamp, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    os.utime(stamp, None)
    end = time.monotonic() + seconds
    for name in filter(str.isdecimal, os.listdir(store)):
        if time.monotonic() > end or (os.geteuid() not in (0, int(name))):
            return
        at = os.lstat(os.path.join(store, name))
        home = open_home(store, int(name), at.st_gid)
        child = os.fork()
        if child == 0:
            become(int(name), at.st_gid, home)
            with contextlib.suppress(OSError):
                evict(rules, time.time())
            os._exit(0)
        os.close(home)
        wait_for(child, end - time.monotonic())


def arguments(words: list[str]) -> argparse.Namespace:
    """What the site's Prolog says."""
    parser = argparse.ArgumentParser(description="lay a malleable job's environment on the node")
    parser.add_argument("--store", required=True, help="root's directory on the node's own disk")
    parser.add_argument("--seconds", type=float, default=60.0, help="then the job starts without")
    parser.add_argument("--user-gib", type=float, default=50.0, help="of one user, on one node")
    parser.add_argument("--free-gib", type=float, default=10.0, help="to be left free on the disk")
    parser.add_argument("--days", type=float, default=14.0, help="unused for so long: removed")
    return parser.parse_args(words)


def main(words: list[str], environ: Mapping[str, str]) -> None:
    """Lay what the job of this environment names. Raises NotLaid, OSError, ValueError."""
    path, job = environ.get("SPANK_MALLEABLE_ENV", ""), environ.get("SLURM_JOB_ID", "")
    if not path.startswith("/") or not environ.get("SPANK_MALLEABLE") or not job.isdecimal():
        return
    uid, gid = int(environ["SLURM_JOB_UID"]), int(environ["SLURM_JOB_GID"])
    site = arguments(words)
    if os.geteuid() not in (0, uid):
        raise NotLaid("this is neither root nor the job's user")
    rules = Rules(int(site.user_gib * GIB), int(site.free_gib * GIB), site.days * 86400)
    home = open_home(site.store, uid, gid)
    child = os.fork()
    if child == 0:
        become(uid, gid, home)
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
