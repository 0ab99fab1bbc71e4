"""What is in an environment: members of a tar or names in a directory, and how they are written.

Reads and writes with the rights it has; it must not know of stores, locks or users.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Optional, cast

BLOCK = 2**20


class NotLaid(Exception):
    """The environment cannot be laid; the text says why."""


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


def checked_name(name: str) -> str:
    """`name` without `.` and empty parts. Raises NotLaid if it leads out of the environment."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts:
        raise NotLaid(f"{name[:80]!r} leads out of it")
    return "/".join(parts)


def tar_entries(source: Digesting) -> Iterator[Entry]:
    """The members of a tar, compressed or not, in order. Raises NotLaid for a device or a FIFO."""
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


def _refuse(error: OSError) -> None:
    raise error


def tree_entries(root: str) -> Iterator[Entry]:
    """The same of a directory, names in order, without what is neither file, directory nor link.

    Raises OSError for a directory that cannot be listed: a part is worse than nothing.
    """
    for where, directories, files in os.walk(root, onerror=_refuse):
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
    for where, directories, files in os.walk(root, onerror=_refuse):
        directories.sort()
        for name in sorted(directories + files):
            path = os.path.join(where, name)
            at = os.lstat(path)
            line = (os.path.relpath(path, root), at.st_mode, at.st_size, at.st_mtime_ns)
            found.update(repr(line).encode(errors="surrogatepass"))
    return found.hexdigest()
