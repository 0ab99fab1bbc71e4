"""What the elements of a job leave for each other: empty files in the job's shared directory.

A name has it all. Errors of the file system are ignored: a note that is missing costs a delay.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_RESTING, _FAILED, _LEFT = "resting-", "failed-", "left-"
_ARRAY, _AGAIN = "array-", "again-"


class Notes:
    """The notes in this directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def rest(self, fragment: int) -> None:
        """This fragment is about to hold itself."""
        self._write(f"{_RESTING}{fragment}")

    def wake(self, fragment: int) -> None:
        """This fragment runs."""
        self._remove(f"{_RESTING}{fragment}")
        self._remove(f"{_LEFT}{fragment}")

    def leave(self, fragment: int) -> None:
        """This fragment has left its node."""
        self._write(f"{_LEFT}{fragment}")

    def left(self) -> frozenset[int]:
        """Return the fragments that have left and that nobody has met since."""
        return frozenset(int(word) for word in self._with(_LEFT) if word.isdigit())

    def meet(self, fragments: Collection[int]) -> None:
        """Slurm has these fragments in the queue, or they run."""
        for fragment in self.left() & frozenset(fragments):
            self._remove(f"{_LEFT}{fragment}")

    def resting(self) -> frozenset[int]:
        """Return the fragments that have held themselves."""
        return frozenset(int(word) for word in self._with(_RESTING) if word.isdigit())

    def fail(self, fragment: int, run: int) -> int:
        """The script has failed in this run of the fragment. Return the number of its failures."""
        self._write(f"{_FAILED}{fragment}.{run}")
        return sum(word.startswith(f"{fragment}.") for word in self._with(_FAILED))

    def failed(self) -> frozenset[int]:
        """Return the fragments whose script has failed without progress since."""
        first = (word.partition(".")[0] for word in self._with(_FAILED))
        return frozenset(int(word) for word in first if word.isdigit())

    def forget_failures(self) -> None:
        """The training has made progress."""
        for word in self._with(_FAILED):
            self._remove(_FAILED + word)

    def add_array(self, array: int) -> None:
        """This array belongs to the job as well."""
        self._write(f"{_ARRAY}{array}")

    def arrays(self) -> frozenset[int]:
        """Return the later arrays of the job."""
        return frozenset(int(word) for word in self._with(_ARRAY) if word.isdigit())

    def claim(self, array: int, fragment: int) -> bool:
        """Tell whether this process is the first that wants to submit this element again."""
        with suppress(OSError):
            (self._directory / f"{_AGAIN}{array}.{fragment}").touch(0o600, exist_ok=False)
            return True
        return False

    def _with(self, first: str) -> list[str]:
        with suppress(OSError):
            names = (path.name for path in self._directory.iterdir())
            return [name[len(first) :] for name in names if name.startswith(first)]
        return []

    def _write(self, name: str) -> None:
        with suppress(OSError):
            (self._directory / name).touch(0o600)

    def _remove(self, name: str) -> None:
        with suppress(OSError):
            (self._directory / name).unlink()
