"""The Comment of a fragment as a value. A job writes it, and the reconciler reads its beginning.

    trained{3};h{600};wish{8,1790000000};progress{...};the user's own text;remark{...}

The user may write any text there. An entry of another form belongs to the user's own text, which is
kept. The reconciler acts only on the entries at the beginning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Optional

HEAD_WIDTH = 24  # characters of standing and loss
PROGRESS_WIDTH = 120  # characters of the whole entry
WIDTH = HEAD_WIDTH + 1 + PROGRESS_WIDTH  # bytes that the reconciler reads
REMARK_WIDTH = 160
SIZES = 4  # rates in one `progress{...}`
MOST_LOSS_S = 99_999
MOST_NODES = 65_535  # in a wish
MOST_AHEAD_S = 60  # a wish from later than that does not count


class Standing(str, Enum):
    """The stages of a fragment's run, in the order in which its agent reports them. From exit codes
    and times alone, the reconciler would take a leave for a finish."""

    STARTED = "started"  # there is an agent, which may give up before its first round
    WAITING = "waiting"  # it has waited for a minute in its job's directory
    JOINED = "joined"  # it is in its first round
    TRAINED = "trained"  # it has made progress
    LEAVING = "leaving"  # it has begun to leave
    APART = "apart"  # others of this job train in another directory, so it gives up
    FINISHED = "finished"  # the training has finished, not only the processes here


@dataclass(frozen=True)
class Loss:
    """The cost of a lost node: `seconds` of the training's work. The training also `redoes` them
    after a planned change, if its script saves no state then."""

    seconds: int
    redoes: bool = False


class Wish(NamedTuple):
    """A job's wish for at most `nodes` nodes, made `at` this time in epoch seconds."""

    nodes: int
    at: int

    @property
    def text(self) -> str:
        """The written form."""
        return f"wish{{{self.nodes},{self.at}}}"

    def outdoes(self, other: Wish, now_s: float) -> bool:
        """Tell whether it replaces the other wish. The newer wins, within a second the larger."""
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
    """The parts of a Comment. `standing` is about the run with restart count `run`. `progress` is a
    whole entry. Without a standing there is no loss and no progress. `rest` is the user's text."""

    standing: Optional[Standing] = None
    run: int = 0
    loss: Optional[Loss] = None
    wish: Optional[Wish] = None
    progress: str = ""
    remark: str = ""
    rest: str = ""

    def says(self, standing: Standing, run: int) -> bool:
        """Tell whether it has this standing in this run."""
        return (self.standing, self.run) == (standing, run)

    @property
    def text(self) -> str:
        """The written form, with each of our entries once."""
        parts = (
            self._head(),
            self.wish.text if self.wish else "",
            self.progress if self.standing else "",
            _tidy(_without(self._ours(), self.rest)),
            f"remark{{{self.remark}}}" if self.remark else "",
        )
        return ";".join(part for part in parts if part)

    def _head(self) -> str:
        """Return standing and loss. Leave out the loss if the reconciler would not read that
        far."""
        if self.standing is None:
            return ""
        first = f"{self.standing.value}{{{self.run}}}"
        loss = self.loss
        both = f"{first};h{{{loss.seconds}}}{'r' if loss.redoes else ''}" if loss else first
        return both if len(both) <= HEAD_WIDTH else first

    def _ours(self) -> str:
        """Return a pattern for the entries to remove from the user's own text."""
        names = [name for name in ("wish", "progress") if getattr(self, name)]
        named = [rf"(?<![a-z]){name}\{{[^{{}}]*\}}" for name in names]
        return "|".join([_STANDING, _REMARK.pattern, *named])


def parse(text: str) -> Comment:
    """Return the value of a Comment, or of its beginning."""
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
    """Return the texts of all remarks, unchanged."""
    return _REMARK.findall(text)


def remark_text(text: str) -> str:
    """Return the text as a remark may hold it: plain characters, bounded."""
    return _ODD.sub("?", text)[:REMARK_WIDTH].strip()


def _wish_in(entries: str) -> tuple[Optional[Wish], str]:
    """Return the first wish among the entries at the beginning, and the rest."""
    match = _WISH.match(entries)
    if not match or int(match[2]) > MOST_NODES:
        return None, entries
    return Wish(int(match[2]), int(match[3])), match[1] + entries[match.end() :]


def _without(pattern: str, text: str) -> str:
    """Return the text without any match. The text around a match may be another match."""
    while (shorter := re.sub(pattern, "", text)) != text:
        text = shorter
    return text


def _tidy(text: str) -> str:
    own = re.sub(r";{2,}", ";", text.strip(" ;"))
    return "" if own == "(null)" else own
