"""What a target is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A parser, sound texts for it, and the exceptions with which it may refuse one."""

    sound: tuple[str, ...]
    read: Callable[[str], object]
    refuses: tuple[type[Exception], ...] = ()
