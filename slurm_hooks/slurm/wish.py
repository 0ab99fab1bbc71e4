"""A wish in a Comment: how many nodes a job wants. The form is in words/comment.py.

Which wish of a job counts, and how much of it, is judged in model/wish.py.
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
    """The wish of a Comment; None if there is none."""
    if comment.wish is None:
        return None
    try:
        at = moment(comment.wish.at)
        return Wish(at, comment.wish.nodes)
    except (ValueError, OverflowError, OSError):
        return None


def parse_wish(text: str) -> Optional[Wish]:
    """The wish in the text of a Comment; None if there is none."""
    return wish_in(words.parse(text))


def with_wish(text: str, wish: Wish) -> str:
    """The Comment with this wish in the place of another; everything else in it stays."""
    told = words.Wish(wish.nodes, int(wish.at.timestamp()))
    return replace(words.parse(text), wish=told).text


def wish_commands(element: str) -> tuple[Command, Callable[[str], Command]]:
    """The question for the Comment of this element, and what writes another."""
    asked = Command(("squeue", "--noheader", f"--job={element}", "--format=%k"))

    def write(comment: str) -> Command:
        return Command(("scontrol", "update", f"JobId={element}", f"Comment={comment}"))

    return asked, write
