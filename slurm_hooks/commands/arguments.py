"""The parser of all command lines. It raises its faults as errors of this package."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from slurm_hooks.errors import UsageError, nearest
from slurm_hooks.model.moments import read_span


class Parser(argparse.ArgumentParser):
    """A parser without abbreviated options: it would accept --verb and ignore it.

    It raises UsageError for wrong words, with the nearest right words. With `has_others` it leaves
    unknown options to another program.
    """

    def __init__(self, has_others: bool = False, **words: Any) -> None:
        super().__init__(allow_abbrev=False, **words)
        self._has_others = has_others

    def error(self, message: str) -> NoReturn:
        """Raises UsageError."""
        raise UsageError(f"{message}\nsee `{self.prog} --help`")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse as argparse does. Each command reports its own unknown words."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown and not self._has_others:
            word = unknown[0].split("=", 1)[0]
            known = self._option_string_actions if word.startswith("-") else ()
            self.error(f"there is no {word!r} here{nearest(word, known)}")
        return parsed, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        close = nearest(str(value), known)
        listed = close or (f": give one of {', '.join(known)}" if len(known) < 9 else "")
        raise argparse.ArgumentError(action, f"there is no {value!r}{listed}")


def seconds_between(low: float, high: float) -> Callable[[str], float]:
    """Return a reader of an option's duration, for argparse. It raises ArgumentTypeError."""

    def seconds(text: str) -> float:
        try:
            value = read_span(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(
                f"must be from {low:g} to {high:g} seconds, not {text[:20]!r}"
            )
        return value

    return seconds


def whole_between(low: int, high: int) -> Callable[[str], int]:
    """Return a reader of an option's whole number, for argparse. It raises ArgumentTypeError."""

    def whole(text: str) -> int:
        is_number = text.isascii() and text.isdigit() and len(text) < 10
        if not (is_number and low <= int(text) <= high):
            raise argparse.ArgumentTypeError(f"must be from {low} to {high}, not {text[:20]!r}")
        return int(text)

    return whole
