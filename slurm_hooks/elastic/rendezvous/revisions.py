"""Numbered revisions of a text in a directory that many nodes share: compare-and-set without trust
in locks or clocks.

A revision is published when link() gives a finished draft its name. The call fails if that name is
taken. A writer that died leaves no lock behind, and a late writer notices that it is late.

Two traps remain, with the same remedy. The call may do its work and still report an error (NFS,
when an answer is lost). A very late call may use a name that was taken and has been removed since.
So every revision carries the random names of the revisions from which it grew. A writer checks
whether the newest revision grew from its own.

Readers list the directory. A fresh open makes an NFS client ask the server. A probe for names would
instead read the client's memory of missing names.
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

KEPT = 8  # revisions that stay, so that a just listed revision can be read
MOST = 256  # revisions that stay though their time has not come
REST_S = 300.0  # how long a revision stays after the next was written
LINEAGE = 256  # writers that a revision remembers
MAX_BYTES = 1 << 20

_STATE = re.compile(r"state\.([0-9]{1,15})\Z")
_NUMBERED = re.compile(r"(?:state|draft)\.([0-9]{1,15})(?:\.[0-9a-f]{8})?\Z")
_NAMES = re.compile(r"[0-9a-f]{8}(?: [0-9a-f]{8})*\Z")
_TRIES = 20
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


class RevisionError(ValueError):
    """The file is not a whole revision."""


@dataclass(frozen=True)
class Revision:
    """A revision. Number 0 is the empty start. `names`: its own name, then the names of the
    revisions before it, the latest first.
    """

    number: int = 0
    text: str = ""
    names: tuple[str, ...] = ()

    def grew_from(self, number: int, name: str) -> bool:
        """Tell whether this is the revision `number` called `name`, or follows it."""
        age = self.number - number
        return 0 <= age < len(self.names) and self.names[age] == name


def find_newest(directory: Path, known: Revision) -> Revision:
    """Return the newest revision. It is read only if it is not `known`. Raises RevisionError,
    OSError, DirectoryError.
    """
    with entered(directory) as handle:
        return _newest(handle, known)


def publish(directory: Path, base: Revision, text: str) -> Revision | None:
    """Make `text` (a single line) the revision after `base`. Return `None` if another writer was
    faster.

    A writer that is held up while LINEAGE others write may get `None` in spite of success. If it
    raises OSError or DirectoryError, the text was not published.
    """
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
            return new
    if failure is None or failure.errno in (errno.EEXIST, errno.ENOENT, errno.ESTALE):
        return None  # ENOENT: so late that the draft was tidied away
    raise failure


def tidy(directory: Path) -> None:
    """Remove revisions that are no longer needed, and files of dead writers. Raises OSError,
    DirectoryError.

    On NFSv4 it can hang for 90 s if a dead node has read a revision. The directory would be locked
    on this node meanwhile, also for threads that only list it. A living client gives a file back
    within two minutes of its last use, and a dead client's lease ends after 90 s. So a revision
    rests for REST_S after readers have gone on to the next.
    """
    with entered(directory) as handle:
        names = os.listdir(handle)
        oldest = _first_needed(handle, sorted(_numbers(_STATE, names)))
        for name in sorted(names):  # drafts first, so that late writers have no draft to link
            if any(number < oldest for number in _numbers(_NUMBERED, [name])):
                _discard(handle, name)


def _first_needed(handle: int, numbers: list[int]) -> int:
    """Return the number of the oldest revision that stays. The file server's clock counts."""
    newest = max(numbers, default=0)
    for number, following in zip(numbers, numbers[1 : 1 - KEPT]):
        rested_s = _written_at(handle, newest) - _written_at(handle, following)
        if rested_s < REST_S and number > newest - MOST:
            return number
    return newest + 1 - KEPT


def _written_at(handle: int, number: int) -> float:
    try:
        return os.stat(f"state.{number}", dir_fd=handle).st_mtime
    except FileNotFoundError:  # another agent has removed it meanwhile, as no longer needed
        return 0.0


def has_links(handle: int) -> bool:
    """Tell whether files in the directory can have a second name. Raises OSError."""
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
    raise RevisionError("revisions change too quickly to be read")


def _numbers(pattern: re.Pattern[str], names: Iterable[str]) -> list[int]:
    return [int(match[1]) for match in map(pattern.match, names) if match]


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
    """Return the error that link() reports, if any. It need not be true."""
    try:
        os.link(name, second, src_dir_fd=handle, dst_dir_fd=handle, follow_symlinks=False)
    except OSError as error:
        return error
    return None


def _discard(handle: int, name: str) -> None:
    with suppressed(OSError, doing=f"removing {name}"), suppress(FileNotFoundError):
        os.unlink(name, dir_fd=handle)
