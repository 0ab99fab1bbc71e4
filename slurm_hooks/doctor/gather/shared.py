"""Try hard links in a directory, and name its file system."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from slurm_hooks.doctor.facts import SharedDirectory
from slurm_hooks.doctor.gather.meeting import meet
from slurm_hooks.errors import UsageError
from slurm_hooks.owned import open_above

WRITERS = 8
MOUNTS = Path("/proc/self/mountinfo")


def job_directory(named: str, current: Path) -> Path:
    """The part of dir= that is the same for all jobs. %w is the current directory."""
    head = named.split("%", 1)[0]
    return Path(head).parent if head and not head.endswith("/") else Path(head or current)


def try_links(path: Path) -> SharedDirectory:
    """Let several writers link to the same name in a new directory below `path`.

    Raises OSError. As root it raises UsageError in another user's directory, which may have links.
    """
    if os.geteuid() == 0:
        _refuse_strange(path)
    kind, options = file_system(path, MOUNTS.read_text(errors="replace").splitlines())
    with tempfile.TemporaryDirectory(prefix=".malleable-doctor-", dir=path) as name:
        trouble, winners = _race(Path(name))
        no_locks = _lock(Path(name) / "lock")
    met, of = meet(path, os.environ)
    return SharedDirectory(str(path), kind, options, trouble, winners, no_locks, met, of)


def _refuse_strange(path: Path) -> None:
    """Raises UsageError if a user other than root could replace a new file in `path`."""
    part = open_above(path.resolve() / "new", (0,))
    if part is not None:
        raise UsageError(
            f"{path} is not root's (see {part}): try it as the user whose jobs run there"
        )


def _race(place: Path) -> tuple[str, int]:
    drafts = [place / f"draft.{number}" for number in range(WRITERS)]
    target = place / "state.1"
    for draft in drafts:
        draft.write_text(draft.name)
    try:
        with ThreadPoolExecutor(WRITERS) as pool:
            won = sum(pool.map(lambda draft: _link(draft, target), drafts))
        names = os.stat(target).st_nlink
    except OSError as error:
        return f"link: {error.strerror}", 0
    return ("" if names == 2 else f"the linked file has {names} names, not 2"), won


def _lock(path: Path) -> str:
    """The reason why the file system has no locks, empty if it has them."""
    with path.open("w") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.strerror or "refused"
    return ""


def _link(draft: Path, target: Path) -> bool:
    try:
        os.link(draft, target)
    except FileExistsError:
        return False
    return True


def file_system(path: Path, mounts: Sequence[str]) -> tuple[str, str]:
    """Type and options of the file system at a path, from the lines of mountinfo."""
    where = str(path.resolve())
    best, kind = -1, ("unknown", "")
    for line in mounts:
        words = line.split()
        if "-" not in words:
            continue
        tail = words[words.index("-") + 1 :]
        point = words[4].encode().decode("unicode_escape")
        is_above = where == point or where.startswith(point.rstrip("/") + "/")
        if is_above and len(point) >= best:
            best, kind = len(point), (tail[0], ",".join([words[5], *tail[2:3]]))
    return kind
