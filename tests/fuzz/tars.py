"""Damaged tars, written as an environment is: what the Prolog's hook does with a user's file."""

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


def read(found: str) -> None:
    """Nothing is written outside, nothing is more than allowed, nobody becomes somebody else."""
    data = _with_sums(found.encode("utf-8", "surrogateescape"))
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
    """With sound check sums, or most damage would end there."""
    blocks = [data[at : at + 512] for at in range(0, len(data), 512)]
    return b"".join(map(_with_sum, blocks))


def _with_sum(block: bytes) -> bytes:
    if len(block) < 512 or block[257:262] != b"ustar":
        return block
    blank = block[:148] + b" " * 8 + block[156:]
    return block[:148] + b"%06o\0 " % sum(blank) + block[156:]
