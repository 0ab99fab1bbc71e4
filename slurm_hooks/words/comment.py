"""The Comment of a fragment, as one value. A job writes it, and the reconciler reads its beginning.

    trained{3};h{600};wish{8,1790000000};progress{...};the user's own text;remark{...}

The user may write anything there. An entry of another form belongs to the user's own text, which
stays. The reconciler acts on the entries at the beginning only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Optional

HEAD_WIDTH = 24  # characters of standing and loss
PROGRESS_WIDTH = 120  # characters of the whole entry
WIDTH = HEAD_WIDTH + 1 + PROGRESS_WIDTH  # the reconciler reads so many bytes
REMARK_WIDTH = 160
SIZES = 4  # rates in one `progress{...}`
MOST_LOSS_S = 99_999
MOST_NODES = 65_535  # in a wish
MOST_AHEAD_S = 60  # a wish from later than that does not count


class Standing(str, Enum):
    """Where a fragment stands in its run, in the order in which its agent reports it. A reconciler
    that inferred it from exit codes and times would take a leave for a finish."""

    STARTED = "started"  # there is an agent; it may give up before its first round
    WAITING = "waiting"  # it has found its job's directory, and has waited there for a minute
    JOINED = "joined"  # it is in its first round
    TRAINED = "trained"  # it has made progress
    LEAVING = "leaving"  # it has begun to leave
    APART = "apart"  # others of this job train in another directory, so it gives up
    FINISHED = "finished"  # the training has finished, not only the processes here


@dataclass(frozen=True)
class Loss:
    """What a lost node costs the training: so many `seconds` of its work. It `redoes` them after a
    planned change too if its script keeps nothing then."""

    seconds: int
    redoes: bool = False


class Wish(NamedTuple):
    """The job wants at most so many nodes, since `at` in epoch seconds."""

    nodes: int
    at: int

    @property
    def text(self) -> str:
        """As it is written."""
        return f"wish{{{self.nodes},{self.at}}}"

    def outdoes(self, other: Wish, now_s: float) -> bool:
        """Whether it counts beside the other: the newer does, and of one second the larger."""
        is_ahead = self.at - now_s > MOST_AHEAD_S
        return not is_ahead and (self.at, self.nodes) > (other.at, other.nodes)


_WORDS = "|".join(standing.value for standing in Standing)
_STANDING = rf"(?:{_WORDS})\{{[0-9]{{1,9}}\}}"
_HEAD = re.compile(rf"({_WORDS})\{{([0-9]{{1,9}})\}}(?:;h\{{([0-9]{{1,5}})\}}(r?))?;?")
_ENTRY = r"[a-z]{1,16}\{[^{};]*\}r?;"  # the r is of h{600}r
_WISH = re.compile(rf"((?:{_ENTRY})*?)wish\{{([0-9]{{1,5}}),([0-9]{{1,11}})\}}(?:;|\Z)")
_PROGRESS = re.compile(r"(progress\{[^{}]*\});?")
_REMARK = re.compile(r"remark\{([^{}]*)\}")
_ODD = re.compile(r"[^A-Za-z0-9 _.,:;/@%+='()-]")


@dataclass(frozen=True)
class Comment:
    """`run` is the restart count that the standing is about. `progress` is a whole entry. A
    fragment without a standing tells no loss and no progress. `rest` is the user's own text."""

    standing: Optional[Standing] = None
    run: int = 0
    loss: Optional[Loss] = None
    wish: Optional[Wish] = None
    progress: str = ""
    remark: str = ""
    rest: str = ""

    def says(self, standing: Standing, run: int) -> bool:
        """Whether it says this of this run."""
        return (self.standing, self.run) == (standing, run)

    @property
    def text(self) -> str:
        """As it is written. Each entry of ours is in it once."""
        parts = (
            self._head(),
            self.wish.text if self.wish else "",
            self.progress if self.standing else "",
            _tidy(_without(self._ours(), self.rest)),
            f"remark{{{self.remark}}}" if self.remark else "",
        )
        return ";".join(part for part in parts if part)

    def _head(self) -> str:
        """The loss is left out if the reconciler would not read that far."""
        if self.standing is None:
            return ""
        first = f"{self.standing.value}{{{self.run}}}"
        loss = self.loss
        both = f"{first};h{{{loss.seconds}}}{'r' if loss.redoes else ''}" if loss else first
        return both if len(both) <= HEAD_WIDTH else first

    def _ours(self) -> str:
        """A pattern for the entries that may not stay in the user's own text."""
        names = [name for name in ("wish", "progress") if getattr(self, name)]
        named = [rf"(?<![a-z]){name}\{{[^{{}}]*\}}" for name in names]
        return "|".join([_STANDING, _REMARK.pattern, *named])


def parse(text: str) -> Comment:
    """The value of a Comment, or of its beginning."""
    head = _HEAD.match(text)
    wish, rest = _wish_in(text[head.end() :] if head else text)
    progress = _PROGRESS.match(rest) if head else None
    rest = rest[progress.end() :] if progress else rest
    remarks = remarks_in(rest)
    return Comment(
        standing=Standing(head[1]) if head else None,
        run=int(head[2]) if head else 0,
        loss=Loss(int(head[3]), bool(head[4])) if head and head[3] else None,
        wish=wish,
        progress=progress[1] if progress else "",
        remark=remarks[-1] if remarks else "",
        rest=rest,
    )


def remarks_in(text: str) -> list[str]:
    """The texts of all remarks, as they are."""
    return _REMARK.findall(text)


def remark_text(text: str) -> str:
    """The text as it may stand in a remark: a few plain characters, bounded."""
    return _ODD.sub("?", text)[:REMARK_WIDTH].strip()


def _wish_in(entries: str) -> tuple[Optional[Wish], str]:
    """The first wish among the entries at the beginning, and everything else."""
    found = _WISH.match(entries)
    if not found or int(found[2]) > MOST_NODES:
        return None, entries
    return Wish(int(found[2]), int(found[3])), found[1] + entries[found.end() :]


def _without(pattern: str, text: str) -> str:
    """The text without any match. The text around a match may be another match."""
    while (shorter := re.sub(pattern, "", text)) != text:
        text = shorter
    return text


def _tidy(text: str) -> str:
    own = re.sub(r";{2,}", ";", text.strip(" ;"))
    return "" if own == "(null)" else own
