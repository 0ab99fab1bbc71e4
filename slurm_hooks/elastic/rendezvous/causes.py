"""The causes of a new round: a fragment joined, left or was lost, or another event. Pure.

Logs and rounds.jsonl show these texts, and they stand in the shared state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

SHOWN = 16  # causes of a round, at most


class CauseKind(str, Enum):
    """The kind of event."""

    START = "start"
    JOINED = "joined"
    LEFT = "left"  # as planned
    LOST = "lost"
    FAILED = "workers failed"
    ASKED = "asked again"
    OTHER = "other"  # a kind that only a later version knows


_OF_A_FRAGMENT = {CauseKind.JOINED.value, CauseKind.LEFT.value, CauseKind.LOST.value}


@dataclass(frozen=True)
class Cause:
    """A cause. `fragment` is the fragment that joined, left or was lost, else `None`."""

    kind: CauseKind
    fragment: int | None = None

    def __str__(self) -> str:
        """`lost 3`."""
        return self.kind.value if self.fragment is None else f"{self.kind.value} {self.fragment}"


def joined(fragment: int) -> Cause:
    """This fragment is new."""
    return Cause(CauseKind.JOINED, fragment)


def left(fragment: int) -> Cause:
    """This fragment has left as planned."""
    return Cause(CauseKind.LEFT, fragment)


def lost(fragment: int) -> Cause:
    """This fragment was lost."""
    return Cause(CauseKind.LOST, fragment)


def is_loss(causes: Iterable[Cause]) -> bool:
    """Tell whether a cause is a loss."""
    return any(cause.kind is CauseKind.LOST for cause in causes)


def text_of(causes: Iterable[Cause]) -> str:
    """`lost 2, joined 5`."""
    return ", ".join(str(cause) for cause in causes)


def causes_in(text: str) -> tuple[Cause, ...]:
    """Return the causes in a text of `text_of`, at most SHOWN."""
    return tuple(cause_in(word) for word in text.split(", ") if word)[:SHOWN]


def cause_in(text: str) -> Cause:
    """Return the cause with this text, or OTHER."""
    for kind in CauseKind:
        if text == kind.value:
            return Cause(kind)
    word, _, digits = text.partition(" ")
    is_count = digits.isascii() and digits.isdigit() and len(digits) <= 16
    if is_count and word in _OF_A_FRAGMENT:
        return Cause(CauseKind(word), int(digits))
    return Cause(CauseKind.OTHER)
