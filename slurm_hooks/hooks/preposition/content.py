"""The content of an environment, members of a tar or names in a directory, and how they are
written.

It reads and writes with its present rights. It must not know of stores, locks or users.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any, Optional, cast

BLOCK = 2**20
NAME = 4096  # bytes of the disk, about, that a name takes beside its content
DEEPEST = 256  # levels of a name: Python's own walks recurse
LOOK = 64 * BLOCK  # written between two looks at the disk


class NotLaid(Exception):
    """The environment cannot be laid. The text says why."""


@dataclass(frozen=True)
class Entry:
    """A member of an environment. `target` of a link, `source` of a file."""

    name: str
    mode: int
    mtime: float
    size: int = 0
    target: str = ""
    hard: str = ""
    source: Optional[IO[bytes]] = None


class Room:
    """The room for further writes: `most` bytes, while `is_enough` holds for the disk."""

    def __init__(self, most: int, is_enough: Callable[[], bool]) -> None:
        self.left, self.unseen, self.is_enough = most, LOOK, is_enough

    def take(self, size: int) -> None:
        """Take room for a further name and its content. Raises NotLaid without room."""
        if size < 0:
            raise NotLaid("a size in it is negative")
        self.left -= size + NAME
        if self.left < 0:
            raise NotLaid("it is larger than a user's share here (--user-gib)")
        self.note(NAME * 16)  # inodes run out sooner than bytes

    def note(self, written: int) -> None:
        """`written` bytes were written. Raises NotLaid if the disk is now too full."""
        self.unseen += written
        if self.unseen > LOOK:
            self.unseen = 0
            if not self.is_enough():
                raise NotLaid(
                    "the disk would be fuller than the site allows (--free-gib, --free-share)"
                )


class Digesting:
    """A file that is hashed while it is read."""

    def __init__(self, source: IO[bytes]) -> None:
        self.source, self.sum = source, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most `size`."""
        content = self.source.read(size)
        self.sum.update(content)
        return content

    def finish(self) -> str:
        """Read the rest, and return the digest of the whole file."""
        while self.read(BLOCK):
            pass
        return self.sum.hexdigest()


def checked_name(name: str) -> str:
    """Return `name` without `.` and empty parts. Raises NotLaid if it leads out of the
    environment.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts:
        raise NotLaid(f"{name[:80]!r} leads out of it")
    if len(parts) > DEEPEST:
        raise NotLaid(f"{name[:80]!r} is deeper than {DEEPEST} levels")
    return "/".join(parts)


def tar_entries(source: Digesting) -> Iterator[Entry]:
    """Yield the members of a tar, compressed or not, in order. Raises NotLaid for a device or a
    FIFO.
    """
    with tarfile.open(fileobj=cast("IO[bytes]", source), mode="r|*") as archive:
        while member := archive.next():
            cast(
                "Any", archive
            ).members.clear()  # or a tar of millions of names would fill the memory
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


def _open_file(path: str, flags: int) -> int:
    """Open without blocking: it may have become a FIFO."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _refuse(error: OSError) -> None:
    raise error


def tree_entries(root: str) -> Iterator[Entry]:
    """Yield the files, directories and links of a directory, names in order.

    Raises OSError for a directory that cannot be listed: a part is worse than no environment.
    """
    for where, directories, files in os.walk(root, onerror=_refuse):
        directories.sort()
        for name in sorted(directories + files):
            path = os.path.join(where, name)
            at = os.lstat(path)
            short = os.path.relpath(path, root)
            if stat.S_ISLNK(at.st_mode):
                yield Entry(short, 0, at.st_mtime, target=os.readlink(path))
            elif stat.S_ISDIR(at.st_mode):
                yield Entry(short, at.st_mode, at.st_mtime)
            elif stat.S_ISREG(at.st_mode):
                with open(path, "rb", opener=_open_file) as source:
                    yield Entry(short, at.st_mode, at.st_mtime, at.st_size, source=source)


def write_entries(entries: Iterator[Entry], part: str, room: Room) -> None:
    """Write the entries below the new directory `part`, while there is room. No setuid bits.

    Symbolic links come last, so that no file is ever written through a link. Raises NotLaid,
    OSError.
    """
    os.mkdir(part, 0o700)
    links: dict[str, str] = {}
    times: dict[str, float] = {}
    for entry in entries:
        path = os.path.join(part, entry.name) if entry.name else part
        if not entry.name and not stat.S_ISDIR(entry.mode):
            raise NotLaid("a member of it has no name")
        room.take(entry.size)
        links.pop(path, None)
        if entry.target:
            links[path] = entry.target
        elif entry.hard:
            _write_hard_link(os.path.join(part, entry.hard), path, links, room)
        elif stat.S_ISDIR(entry.mode):
            _make_directories(path, room)
            times[path] = entry.mtime
        elif entry.source:
            _write_file(path, entry, entry.source, room)
    for path, target in links.items():
        _make_way(path, room)
        os.symlink(target, path)
    for path, mtime in reversed(list(times.items())):
        os.utime(path, (mtime, mtime))


def _write_hard_link(target: str, path: str, links: dict[str, str], room: Room) -> None:
    if target in links:
        links[path] = links[target]
        return
    _make_way(path, room)
    os.link(target, path, follow_symlinks=False)


def _make_directories(path: str, room: Room) -> None:
    """Make directories. Those on the way take room too, since a name may have hundreds of them."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        room.take(0)
        os.mkdir(each, 0o700)


def _make_way(path: str, room: Room) -> None:
    _make_directories(os.path.dirname(path), room)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _write_file(path: str, entry: Entry, source: IO[bytes], room: Room) -> None:
    _make_way(path, room)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(os.open(path, flags, 0o600), "wb") as written:
        left = entry.size
        while left and (content := source.read(min(BLOCK, left))):
            left -= written.write(content)
            room.note(len(content))
        if left:
            raise NotLaid(f"{entry.name[:80]!r} ends too early")
    os.chmod(path, stat.S_IMODE(entry.mode) & 0o777 | 0o400)
    os.utime(path, (entry.mtime, entry.mtime))  # Python compares it with its compiled files


def tree_manifest(root: str) -> str:
    """Return a digest of names, kinds, modes, sizes and times in a directory. Contents are not
    read.
    """
    digest = hashlib.sha256()
    for where, directories, files in os.walk(root, onerror=_refuse):
        directories.sort()
        for name in sorted(directories + files):
            path = os.path.join(where, name)
            at = os.lstat(path)
            line = (os.path.relpath(path, root), at.st_mode, at.st_size, at.st_mtime_ns)
            digest.update(repr(line).encode(errors="surrogatepass"))
    return digest.hexdigest()
