"""What the elements of a job leave for each other: small files in the job's shared directory.

A name has it all, but for the time in `resting`. Without a note about a leave or a failure the job
only loses time or tries more often, except where a method says so.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

OLD_S = 300.0  # a note about a leave is of no use after this
_FAILED, _LEFT, _AGAIN = "failed-", "left-", "again-"
_RESTING, _FINISHED, _GIVEN_UP = "resting", "finished", "given-up"


class Notes:
    """The notes in this directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    # -- the rest below MIN

    def rest(self, until: float) -> None:
        """No element is to run until then (epoch seconds)."""
        self._write(_RESTING, f"{until:.0f}")

    def rests_until(self) -> float:
        """Return the end of the rest, 0 without a rest."""
        with suppress(OSError, ValueError):
            return float((self._directory / _RESTING).read_text()[:20])
        return 0.0

    # -- leaves

    def come(self, fragment: int) -> None:
        """This fragment runs."""
        self._remove(f"{_LEFT}{fragment}")

    def leave(self, fragment: int) -> None:
        """This fragment has left its node."""
        self._write(f"{_LEFT}{fragment}")

    def left(self) -> frozenset[int]:
        """Return the fragments that have left a moment ago and that nobody has met since."""
        return frozenset(n for n in map(_number, self._with(_LEFT)) if n >= 0 and self._is_new(n))

    def meet(self, fragments: Collection[int]) -> None:
        """Slurm has these fragments in the queue, or they run, or they have ended."""
        for fragment in self.left() & frozenset(fragments):
            self._remove(f"{_LEFT}{fragment}")

    def _is_new(self, fragment: int) -> bool:
        with suppress(OSError):
            at = (self._directory / f"{_LEFT}{fragment}").stat().st_mtime
            return time.time() - at < OLD_S
        return False

    # -- the end

    def fail(self, fragment: int, run: int) -> int:
        """The script has failed in this run of the fragment. Return the number of its failures,
        which is large if it cannot be counted.
        """
        if not self._write(f"{_FAILED}{fragment}.{run}"):
            return 1000
        return self.failures(fragment)

    def failures(self, fragment: int) -> int:
        """Return the number of this fragment's failures."""
        return sum(word.startswith(f"{fragment}.") for word in self._with(_FAILED))

    def failed(self) -> frozenset[int]:
        """Return the fragments whose script has failed without progress since."""
        return frozenset(_number(word.partition(".")[0]) for word in self._with(_FAILED))

    def forget_failures(self) -> None:
        """The training has made progress."""
        for word in self._with(_FAILED):
            self._remove(_FAILED + word)

    def give_up(self) -> bool:
        """The job has failed. Tell whether this element is the first to say so."""
        return self._is_first(_GIVEN_UP)

    def finish(self) -> None:
        """The job has finished."""
        self._write(_FINISHED)

    def has_finished(self) -> bool:
        """Tell whether the job has finished."""
        return (self._directory / _FINISHED).exists()

    # -- elements that have ended and are wanted again

    def claim(self, fragment: int, ended: int) -> bool:
        """Tell whether this process is the first that wants the run of this fragment again that
        has ended then (epoch seconds).
        """
        return self._is_first(f"{_AGAIN}{fragment}.{ended}")

    def unclaim(self, fragment: int, ended: int) -> None:
        """Slurm does not start it again."""
        self._remove(f"{_AGAIN}{fragment}.{ended}")

    # -- files

    def _with(self, first: str) -> list[str]:
        with suppress(OSError):
            names = (path.name for path in self._directory.iterdir())
            return [name[len(first) :] for name in names if name.startswith(first)]
        return []

    def _write(self, name: str, text: str = "") -> bool:
        with suppress(OSError):
            (self._directory / name).write_text(text)
            return True
        return False

    def _is_first(self, name: str) -> bool:
        with suppress(OSError):
            (self._directory / name).touch(0o600, exist_ok=False)
            return True
        return False

    def _remove(self, name: str) -> None:
        with suppress(OSError):
            (self._directory / name).unlink()


def _number(word: str) -> int:
    return int(word) if word.isascii() and word.isdigit() else -1
