"""The Comment of this job, which its user may write. It holds entries of ours and what the
user wrote: `remark{...}` for `malleable explain`, and first of all, since the reconciler reads no
further, where the fragment stands, what it costs to lose it (`h{600}r` if a planned change costs
as much), how many nodes it wants, and how fast it trains:
`trained{3};h{600};wish{8,1790000000};progress{...}`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Optional

from slurm_hooks.elastic.observed import Loss

EVERY_S = 60.0  # slurmctld is asked for no more than one change of a job in so many seconds
TIMEOUT_S = 10.0
_STANDING = re.compile(r"(?:started|waiting|joined|trained|leaving|apart|finished)\{[0-9]{1,9}\}")
_HIT = re.compile(_STANDING.pattern + r";h\{([0-9]{1,5})\}(r?)")
_WISH = re.compile(r";wish\{[0-9,]{1,17}\}")
_TIME = re.compile(r"(?<![^; ])wish\{[0-9]{1,5},([0-9]{1,11})\}")
_PROGRESS = re.compile(r"(?<![^; ])progress\{[^{}]*\}")
READ = 24  # characters that the reconciler reads of the first two
_TURN = threading.Lock()  # several threads of an agent write
_seen: dict[str, tuple[float, str]] = {}  # when a Comment was asked for last, and what it was


def standing(comment: str) -> str:
    """The entry at the beginning that says where the fragment stands, or an empty string."""
    found = _STANDING.match(comment)
    return found.group() if found else ""


def merged(comment: str, entry: str) -> str:
    """The comment with our entry in it, which replaces the one of the same name. What says
    where the fragment stands comes first, whoever writes."""
    is_first = bool(_STANDING.fullmatch(entry))
    first = entry if is_first else standing(comment)
    ours = _STANDING if is_first else re.compile(f"{_STANDING.pattern}|{_named(entry)}")
    rest = _removed(ours, comment)
    return ";".join(part for part in (first, _tidy(rest), "" if is_first else entry) if part)


def without(comment: str, name: str) -> str:
    """The comment without our entry of this name."""
    return _tidy(_removed(re.compile(_named(name)), comment))


def _named(entry: str) -> str:
    """A pattern for entries of the same name."""
    return entry.partition("{")[0] + r"\{[^{}]*\}"


def _removed(pattern: re.Pattern[str], text: str) -> str:
    """The text without any match: what is left around one may be another."""
    while (shorter := pattern.sub("", text)) != text:
        text = shorter
    return text


def without_entry(comment: str, entry: str) -> str:
    """The comment without this very entry."""
    return _tidy(comment.replace(entry, ""))


def with_loss(comment: str, loss: Optional[Loss]) -> str:
    """The comment with what a hit costs behind where the fragment stands, or without it (None); as
    it is if it does not say where, or the reconciler would not read that far. A reconciler of an
    older version reads the first of the two, as ever."""
    first = standing(comment)
    both = f"{first};h{{{loss.seconds}}}{'r' if loss.redoes else ''}" if loss else first
    if not first or len(both) > READ:
        return comment
    known = _HIT.match(comment)
    rest = comment[known.end() if known else len(first) :]
    return ";".join(part for part in (both, _tidy(rest)) if part)


def loss_of(comment: str) -> Optional[Loss]:
    """What a hit costs by this comment."""
    found = _HIT.match(comment)
    return Loss(int(found.group(1)), bool(found.group(2))) if found else None


def with_progress(comment: str, progress: str) -> str:
    """The comment with this `progress{...}` behind the entries that the reconciler reads; as it
    is if it does not begin with where the fragment stands."""
    first = _head(comment)
    if not first:
        return comment
    rest = _tidy(_PROGRESS.sub("", comment[len(first) :]))
    return ";".join(part for part in (first, progress, rest) if part)


def has_progress(comment: str, progress: str) -> bool:
    """Whether the comment tells it where the reconciler reads."""
    first = _head(comment)
    return bool(first) and comment[len(first) :].startswith(f";{progress}")


def _head(comment: str) -> str:
    """The short entries that come before all others; empty if it does not say where the fragment
    stands."""
    found = _HIT.match(comment) or _STANDING.match(comment)
    if not found:
        return ""
    wish = _WISH.match(comment, found.end())
    return comment[: wish.end() if wish else found.end()]


def with_wish(comment: str, wish: str) -> str:
    """The comment with this `wish{...}` behind where the fragment stands and what a hit costs."""
    found = _HIT.match(comment) or _STANDING.match(comment)
    first = found.group() if found else ""
    return ";".join(p for p in (first, wish, without(comment[len(first) :], "wish")) if p)


def wished_at(comment: str) -> int:
    """When the wish in the comment was told, in epoch seconds; 0 if there is none."""
    found = _TIME.search(comment)
    return int(found.group(1)) if found else 0


def _tidy(comment: str) -> str:
    own = re.sub(r";{2,}", ";", comment.strip(" ;"))
    return "" if own == "(null)" else own


def change(
    job: str,
    edit: Callable[[str], Optional[str]],
    limit_s: float = 2 * TIMEOUT_S,
    before: Optional[str] = None,
) -> None:
    """Replace the Comment by what `edit` makes of it; None leaves it as it is. `before` is what was
    read a moment ago, if it was. Raises OSError or SubprocessError. Processes do not exclude each
    other: a caller whose entry must not get lost reads again."""
    with _TURN:
        until = time.monotonic() + limit_s
        before = read(job, limit_s) if before is None else before
        after = edit(before)
        if after is not None and after != before:
            text = after.replace("\0", "")  # no argument of a command can have one
            words = ["scontrol", "update", f"JobId={job}", f"Comment={text}"]
            _ask(words, until - time.monotonic())


def missing_commands() -> list[str]:
    """Those of Slurm's commands that are needed here and cannot be found."""
    return [name for name in ("squeue", "scontrol") if shutil.which(name) is None]


def read(job: str, limit_s: float = TIMEOUT_S) -> str:
    """The Comment. Raises OSError or SubprocessError."""
    asked_at = time.monotonic()
    text = _ask(["squeue", "--noheader", f"--job={job}", "--format=%k"], limit_s)
    _seen[job] = asked_at, text
    return text


def read_since(job: str, moment: float) -> str:
    """The Comment as it was at that moment (time.monotonic()) or later: what another thread has
    read will do. Raises OSError or SubprocessError."""
    asked_at, text = _seen.get(job, (float("-inf"), ""))
    return text if asked_at >= moment else read(job)


def _ask(words: list[str], limit_s: float) -> str:
    answer = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=max(0.1, min(TIMEOUT_S, limit_s)),
        check=True,
    )
    return answer.stdout.strip()
