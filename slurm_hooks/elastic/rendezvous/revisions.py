"""Numbered revisions of one text in a directory that many nodes share: compare-and-set without
trust in locks or clocks.

A revision is published by giving a finished draft its name by link(), which fails if that
name is taken. There is nothing to take over from a writer that died, and a writer that is
late finds out. Two traps remain, and one answer serves both: link() may do its work and
still report an error (NFS, when an answer is lost), and a very late one may use a name that was
taken and has been tidied away since. So every revision carries the random names of those it
grew from, and a writer checks whether the newest one grew from its own.

Readers list the directory. Opening it anew makes an NFS client ask the server; to probe for
names instead would read the client's memory of names that were not there.
"""

from __future__ import annotations

import errno
import os
import random
import re
import secrets
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from slurm_hooks.elastic.log import suppressed
from slurm_hooks.elastic.private_directory import entered

KEPT = 8  # revisions that stay, so that one that was just listed can be read
LINEAGE = 256  # writers that a revision remembers
MAX_BYTES = 1 << 20

_STATE = re.compile(r"state\.([0-9]{1,15})\Z")
_NUMBERED = re.compile(r"(?:state|draft)\.([0-9]{1,15})(?:\.[0-9a-f]{8})?\Z")
_NAMES = re.compile(r"[0-9a-f]{8}(?: [0-9a-f]{8})*\Z")
_TRIES = 20
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


class RevisionError(ValueError):
    """What is there is no whole revision."""


@dataclass(frozen=True)
class Revision:
    """Number 0 is the nothing before the first one. `names`: its own name, then those of the
    revisions before it, the latest first."""

    number: int = 0
    text: str = ""
    names: tuple[str, ...] = ()

    def grew_from(self, number: int, name: str) -> bool:
        """Whether this is the revision `number` called `name`, or one that follows it."""
        age = self.number - number
        return 0 <= age < len(self.names) and self.names[age] == name


def find_newest(directory: Path, known: Revision) -> Revision:
    """The newest revision, read only if it is not `known`. Raises RevisionError, OSError,
    DirectoryError."""
    with entered(directory) as handle:
        return _newest(handle, known)


def publish(directory: Path, base: Revision, text: str) -> Revision | None:
    """Make `text` (one line) the revision after `base`; None if somebody else was faster.
    A writer held up until LINEAGE others had written may get None in spite of success.
    Raises OSError, DirectoryError; then nothing was published."""
    name = secrets.token_hex(4)
    names = (name, *base.names[: LINEAGE - 1])
    new = Revision(base.number + 1, text, names)
    draft = f"draft.{new.number}.{name}"
    with entered(directory) as handle:
        try:
            _write(handle, draft, f"{text.strip()}\n{' '.join(names)}\n")
            failure = _link(handle, draft, f"state.{new.number}")
            is_ours = _newest(handle, new if failure is None else base).grew_from(new.number, name)
        finally:
            _discard(handle, draft)
        if is_ours:
            _tidy(handle, new.number)
            return new
    if failure is None or failure.errno in (errno.EEXIST, errno.ENOENT, errno.ESTALE):
        return None  # ENOENT: so late that the draft was tidied away
    raise failure


def has_links(handle: int) -> bool:
    """Whether files in the directory can have a second name. Raises OSError."""
    name = f"probe.{secrets.token_hex(8)}"
    try:
        _write(handle, name, "x" * 4096)
        failure = _link(handle, name, f"{name}.link")
    finally:
        _discard(handle, name)
        _discard(handle, f"{name}.link")
    if failure is None or failure.errno == errno.EEXIST:  # the name is ours alone, so it was made
        return True
    if failure.errno in _NO_LINKS:
        return False
    raise failure


def _newest(handle: int, known: Revision) -> Revision:
    for _ in range(_TRIES):
        number = max(_numbers(_STATE, os.listdir(handle)), default=0)
        if number == known.number:
            return known
        with suppress(FileNotFoundError):  # overtaken by KEPT others since it was listed
            return _read(handle, number)
        time.sleep(random.uniform(0.001, 0.01))
    raise RevisionError("revisions come and go too quickly to be read")


def _numbers(pattern: re.Pattern[str], names: Iterable[str]) -> list[int]:
    return [int(found[1]) for found in map(pattern.match, names) if found]


def _read(handle: int, number: int) -> Revision:
    if number == 0:
        return Revision()
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # opening a FIFO waits
    with open(os.open(f"state.{number}", flags, dir_fd=handle), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise RevisionError(f"state.{number} is not a plain file")
        data = file.read(MAX_BYTES + 9 * LINEAGE + 1).decode("ascii", "replace")
    text, _, rest = data.partition("\n")
    names, end, more = rest.partition("\n")
    if not end or more or not _NAMES.match(names):
        raise RevisionError(f"state.{number} is not whole")
    return Revision(number, text + "\n", tuple(names.split()[:LINEAGE]))


def _write(handle: int, name: str, text: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(os.open(name, flags, 0o600, dir_fd=handle), "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _link(handle: int, name: str, second: str) -> OSError | None:
    """The error that link() reports, if any; it need not be true."""
    try:
        os.link(name, second, src_dir_fd=handle, dst_dir_fd=handle, follow_symlinks=False)
    except OSError as error:
        return error
    return None


def _tidy(handle: int, newest: int) -> None:
    """Remove what nobody can need any more; now and then also what dead writers have left. Drafts
    go first, so that late writers find none to link."""
    oldest = newest - KEPT
    _discard(handle, f"state.{oldest}")
    if newest % KEPT == 0:
        for name in sorted(os.listdir(handle)):
            if any(number < oldest for number in _numbers(_NUMBERED, [name])):
                _discard(handle, name)


def _discard(handle: int, name: str) -> None:
    with suppressed(OSError, doing=f"removing {name}"), suppress(FileNotFoundError):
        os.unlink(name, dir_fd=handle)
