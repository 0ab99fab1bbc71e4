"""The job's log: the standard error of the batch script.

It uses plain lines, not `logging`, so that the logging of the user's script stays unchanged.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from types import TracebackType
from typing import Optional

DEBUG = "MALLEABLE_DEBUG"


def say(text: str) -> None:
    """Write a line to the job's log."""
    sys.stderr.write(f"malleable: {text}\n")
    sys.stderr.flush()


def say_if_possible(text: str) -> None:
    """As `say`, but does not raise if standard error is missing (`None`), closed or full."""
    with suppress(AttributeError, OSError, ValueError):
        say(text)


def debug(text: str, error: Optional[BaseException] = None) -> None:
    """As `say_if_possible`, with the time and an error that the caller ignores, if MALLEABLE_DEBUG
    is set.
    """
    if os.environ.get(DEBUG):
        cause = "" if error is None else f": {type(error).__name__}: {error}"
        say_if_possible(f"{time.strftime('%H:%M:%S')} pid {os.getpid()} {text}{cause}")


class suppressed(suppress):
    """As contextlib.suppress, but the error leaves a debug line. `doing` names the action that was
    tried: `with suppressed(OSError, doing="reading the lease")`.
    """

    def __init__(self, *errors: type[BaseException], doing: str) -> None:
        super().__init__(*errors)
        self._doing = doing

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> bool:
        is_suppressed = bool(super().__exit__(kind, error, trace))
        if is_suppressed:
            self._note(error)
        return is_suppressed

    def _note(self, error: Optional[BaseException]) -> None:
        debug(self._doing, error)


class endured(suppressed):
    """As `suppressed` for any Exception, in the loop of a thread that must go on. The first error
    is said in the log.
    """

    def __init__(self, doing: str) -> None:
        super().__init__(Exception, doing=doing)
        self._has_said = False

    def _note(self, error: Optional[BaseException]) -> None:
        if not self._has_said and error is not None:
            self._has_said = True
            say_if_possible(f"{self._doing} failed; retrying: {type(error).__name__}: {error}")
        super()._note(error)
