"""The type of a fuzz target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A parser, sound texts for it, and the exceptions with which it may refuse a text."""

    sound: tuple[str, ...]
    read: Callable[[str], object]
    refuses: tuple[type[Exception], ...] = ()
