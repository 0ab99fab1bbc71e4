"""A wish in a Comment: how many nodes a job wants. The form is in words/comment.py.

model/state.py judges which wish of a job counts, and how much of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Optional

from slurm_hooks.model import Wish
from slurm_hooks.model.moments import moment
from slurm_hooks.slurm.text import Command
from slurm_hooks.words import comment as words


def wish_in(comment: words.Comment) -> Optional[Wish]:
    """Return the wish of a Comment, or None without a wish."""
    if comment.wish is None:
        return None
    try:
        at = moment(comment.wish.at)
        return Wish(at, comment.wish.nodes)
    except (ValueError, OverflowError, OSError):
        return None


def parse_wish(text: str) -> Optional[Wish]:
    """Return the wish in the text of a Comment, or None without a wish."""
    return wish_in(words.parse(text))


def with_wish(text: str, wish: Wish) -> str:
    """Return the Comment with this wish in place of the old wish, and the rest unchanged."""
    wanted = words.Wish(wish.nodes, int(wish.at.timestamp()))
    return replace(words.parse(text), wish=wanted).text


def wish_commands(element: str) -> tuple[Command, Callable[[str], Command]]:
    """Return the question for the Comment of this element, and a function that writes another."""
    asked = Command(("squeue", "--noheader", f"--job={element}", "--format=%k"))

    def write(comment: str) -> Command:
        return Command(("scontrol", "update", f"JobId={element}", f"Comment={comment}"))

    return asked, write
