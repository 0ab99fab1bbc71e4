"""Damaged tars, written as an environment is, and the Prolog's hook that reads a user's file."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import tempfile
from pathlib import Path

from slurm_hooks.hooks.preposition.content import (
    Digesting,
    NotLaid,
    Room,
    tar_entries,
    write_entries,
)
from slurm_hooks.hooks.preposition.eviction import remove

PLACE = tempfile.TemporaryDirectory()
MOST = 2**20
SPARSE = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "4096"}
FIELDS = {
    "type": (156, 1),
    "name": (0, 100),
    "link": (157, 100),
    "size": (124, 12),
    "mode": (100, 8),
    "mtime": (136, 12),
    "prefix": (345, 155),
}
MEMBERS = (
    "5\t.\t\t0\t755\t0\t\t\n0\ta/f\t\t3\t6755\t7777\tb\txyz\n2\ta/l\t../out\t0\t0\t0\t\t\n"
    "1\th\tb/a/f\t0\t0\t0\t\t\nL\tx\t\t7\t0\t0\t\ttmp/a/b\n0\tg\t\t1\t0\t0\t\tz",
    "x\tp\t\t13\t0\t0\t\t11 mtime=2\v\n0\tl/x\t\t1\t1\t1\t\ty\n2\tm\t/\t0\t0\t0\t\t",
)
OLD_SPARSE = {"GNU.sparse.map": "0,2,9,1", "GNU.sparse.size": "10", "mtime": "1.5"}


def sound(kind: int) -> str:
    """A small tar of that format, as text."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=kind) as archive:
        _add(archive, ".", tarfile.DIRTYPE)
        _add(archive, "a/file", tarfile.REGTYPE, content=b"x" * 700)
        _add(archive, "a/link", tarfile.SYMTYPE, "../out")
        _add(archive, "hard", tarfile.LNKTYPE, "a/file")
        _add(archive, "l" * 90 + "/" + "n" * 90, tarfile.REGTYPE, content=b"y")
        if kind == tarfile.PAX_FORMAT:
            text = b"1\n0\n1\n".ljust(512, b"\0") + b"z"
            _add(archive, "sparse", tarfile.REGTYPE, content=text, pax=SPARSE)
            _add(archive, "old", tarfile.REGTYPE, content=b"abc", pax=OLD_SPARSE)
    return written.getvalue().decode("utf-8", "surrogateescape")


def _add(
    archive: tarfile.TarFile,
    name: str,
    kind: bytes,
    target: str = "",
    *,
    content: bytes = b"",
    pax: dict[str, str] | None = None,
) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size, member.mode = kind, target, len(content), 0o6755
    member.pax_headers = pax or {}
    archive.addfile(member, io.BytesIO(content))


def read_bytes(damaged: str) -> None:
    """A tar with damage anywhere."""
    _write(_with_sums(damaged.encode("utf-8", "surrogateescape")))


def read_members(damaged: str) -> None:
    """A tar with a member for each line, of damaged fields in their places: FIELDS and the
    content.
    """
    lines = (line.split("\t") for line in damaged.split("\n"))
    members = (dict(zip((*FIELDS, "content"), line)) for line in lines)
    _write(b"".join(map(_member, members)) + bytes(1024))


def _member(fields: dict[str, str]) -> bytes:
    header = bytearray(512)
    header[257:265] = b"ustar\00000"
    for name, (start, length) in FIELDS.items():
        value = fields.get(name, "").encode("utf-8", "surrogateescape")[:length]
        header[start : start + len(value)] = value
    content = fields.get("content", "").replace("\v", "\n").encode("utf-8", "surrogateescape")
    return _with_sum(bytes(header)) + content + bytes(-len(content) % 512)


def _write(data: bytes) -> None:
    """No file is outside, no size is above the limit, and no owner changes."""
    part = Path(PLACE.name, str(os.getpid()), "part")  # many processes at a time
    part.parent.mkdir(exist_ok=True)
    remove(str(part))
    try:
        write_entries(tar_entries(Digesting(io.BytesIO(data))), str(part), Room(MOST, lambda: True))
    except Exception as error:  # the hook takes any for a damaged tar
        raise NotLaid(str(error)) from error
    finally:
        _look(part)


def _look(part: Path) -> None:
    assert set(os.listdir(part.parent)) <= {"part"}
    assert all(name.isdecimal() for name in os.listdir(PLACE.name))
    total = 0
    for at, directories, files in os.walk(part):
        for name in directories + files:
            seen = os.lstat(os.path.join(at, name))
            assert not seen.st_mode & 0o7000 & ~stat.S_ISVTX
            assert stat.S_IFMT(seen.st_mode) in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
            total += seen.st_size if stat.S_ISREG(seen.st_mode) and seen.st_nlink == 1 else 0
    assert total <= MOST


def _with_sums(data: bytes) -> bytes:
    """Add sound check sums. Without them most damage would be refused at once."""
    blocks = [data[at : at + 512] for at in range(0, len(data), 512)]
    return b"".join(map(_with_sum, blocks))


def _with_sum(block: bytes) -> bytes:
    if len(block) < 512 or block[257:262] != b"ustar":
        return block
    blank = block[:148] + b" " * 8 + block[156:]
    return block[:148] + b"%06o\0 " % sum(blank) + block[156:]
