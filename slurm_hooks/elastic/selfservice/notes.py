"""What the elements of a job leave for each other: small files in the job's shared directory.

A name has it all, so nobody opens a file that others write (an NFSv4 server may then make them
wait). Without a note about a leave or a failure the job only loses time or tries more often, except
where a method says so. Times are epoch seconds.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

OLD_S = 300.0  # a note about a leave is of no use after this
CLAIM_S = 120.0  # who has claimed an element and died keeps it for so long from the others
_FAILED, _LEFT, _AGAIN, _LOOKED, _RESTING = "failed-", "left-", "again-", "looked-", "resting-"
_LATE, _FINISHED, _GIVEN_UP = "late-", "finished", "given-up"
_NOTE = re.compile(r"(failed|left|again|looked|resting|late)-|(finished|given-up)\Z")


class Notes:
    """The notes in this directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def forget_older(self, submitted: float) -> None:
        """Remove notes of an earlier job with the same number: older than the submission."""
        for name in self._with(""):
            path = self._directory / name
            with suppress(OSError):
                if _NOTE.match(name) and path.stat().st_mtime < submitted:
                    path.unlink()

    # -- times

    def rest(self, until: float) -> None:
        """Below MIN no element is to run until then."""
        self._note_time(_RESTING, until)

    def rests_until(self) -> float:
        """Return the end of the rest, 0 without a rest."""
        return self._time(_RESTING)

    def look(self, now: float) -> None:
        """An element asks Slurm about all of them now."""
        self._note_time(_LOOKED, now)

    def looked_at(self) -> float:
        """Return when an element has last asked, 0 if none has."""
        return self._time(_LOOKED)

    def put_off(self, fragment: int, until: float) -> None:
        """This fragment is not to run until then."""
        self._note_time(f"{_LATE}{fragment}.", until)

    def late(self, now: float) -> frozenset[int]:
        """Return the fragments that are put off."""
        words = (word.split(".") for word in self._with(_LATE))
        return frozenset(_number(n) for n, until in words if _number(until) > now)

    def _note_time(self, first: str, time_: float) -> None:
        old = self._with(first)
        self._write(f"{first}{time_:.0f}")
        for word in old:
            if word != f"{time_:.0f}":
                self._remove(first + word)

    def _time(self, first: str) -> float:
        return max((0.0, *map(_number, self._with(first))))

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

    def forget_failures(self, fragment: int) -> None:
        """The training has made progress there."""
        for word in self._with(f"{_FAILED}{fragment}."):
            self._remove(f"{_FAILED}{fragment}.{word}")

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

    def claim(self, fragment: int, ended: int, now: float) -> bool:
        """Tell whether this process is the first that wants the run of this fragment again that
        has ended then. Later another may.
        """
        for word in self._with(f"{_AGAIN}{fragment}."):
            if not word.startswith(f"{ended}."):
                self._remove(f"{_AGAIN}{fragment}.{word}")
        return self._is_first(f"{_AGAIN}{fragment}.{ended}.{now // CLAIM_S:.0f}")

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
