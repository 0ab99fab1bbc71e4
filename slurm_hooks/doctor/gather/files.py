"""Read files and directories of this host, with limits on size and time."""

from __future__ import annotations

import os
import pwd
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Optional, TypeVar, Union

from slurm_hooks.doctor.facts import FileSeen, Line, Unread
from slurm_hooks.errors import MalleableError
from slurm_hooks.model.moments import moment

T = TypeVar("T")
MOST_BYTES = 1 << 20
PATIENCE_S = 15.0
DEEPEST_INCLUDE = 3


def attempt(read: Callable[[], T], commands_s: float = 0.0) -> Union[T, Unread]:
    """Return the result of `read`, or its fault: within seconds, whatever a file system does.

    `commands_s` is the time for the commands of `read`, which have separate limits.
    """
    answer: list[Union[T, Unread]] = []

    def work() -> None:
        try:
            answer.append(read())
        except MalleableError as error:
            answer.append(Unread(str(error).replace("\n", " ")))
        except OSError as error:
            answer.append(Unread(f"{error.filename or 'this host'}: {error.strerror or error}"))
        except Exception as error:  # an answer of a new kind
            answer.append(Unread(f"it cannot be read: {type(error).__name__}: {error}"))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    patience_s = PATIENCE_S + commands_s
    thread.join(patience_s)
    return answer[0] if answer else Unread(f"no answer within {patience_s:.0f} s")


def read_text(path: Path) -> str:
    """The beginning of a plain file. Raises OSError, also for other kinds of files."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(0, "not a plain file", str(path))
        return file.read(MOST_BYTES).decode("utf-8", "replace")


def text_or_none(path: Path) -> Optional[str]:
    """The text, or None if the file is missing or not readable."""
    try:
        return read_text(path)
    except OSError:
        return None


def see(path: Path) -> Optional[FileSeen]:
    """The state of a file or directory, None if it does not exist. Raises OSError if unknown."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    kind = "directory" if stat.S_ISDIR(status.st_mode) else "file"
    return FileSeen(
        kind=kind,
        mode=stat.S_IMODE(status.st_mode),
        uid=status.st_uid,
        owner=user_name(status.st_uid),
        changed=moment(status.st_mtime),
        is_reachable=all(parent.stat().st_mode & 0o001 for parent in path.resolve().parents),
    )


def user_name(uid: int) -> str:
    """The name of a user, or the number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def configuration(path: Path, depth: int = 0) -> tuple[Line, ...]:
    """The logical lines of a file of Slurm's and of its included files. Raises OSError."""
    lines: list[Line] = []
    for line in _logical(path):
        words = line.text.split(None, 1)
        if words[0].lower() != "include":
            lines.append(line)
        elif len(words) == 2 and depth < DEEPEST_INCLUDE:
            for other in _included(path, words[1]):
                lines += configuration(other, depth + 1)
    return tuple(lines)


def _included(path: Path, pattern: str) -> list[Path]:
    where = Path(pattern.strip())
    base = Path("/") if where.is_absolute() else path.parent
    return sorted(base.glob(str(where).lstrip("/")))


def _logical(path: Path) -> Iterator[Line]:
    pending, began = "", 0
    for number, raw in enumerate(read_text(path).splitlines(), start=1):
        text = raw.split("#", 1)[0].rstrip()
        began = began if pending else number
        if text.endswith("\\"):
            pending += text[:-1] + " "
            continue
        whole = (pending + text).strip()
        pending = ""
        if whole:
            yield Line(str(path), began, whole, number - began + 1)
