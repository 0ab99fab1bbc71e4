"""The notes of a training while its size changed, and the length of its pauses. Reads only files.

Every process appends "TIME STEP SIZE" to steps-FRAGMENT.log when it has finished a step. A worker
of a pool appends "TIME TASK SIZE" when it has finished a task. Each start of training is a line in
begins.jsonl: rank, fragment, and the restarts that its agent has used.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

SETTLED = 5  # steps in a row at the new size: then the change has taken effect


class Step(NamedTuple):
    """A finished step, or task: its time in seconds since 1970, the number of members, and
    its number.
    """

    at: float
    size: int
    number: int


class Steps:
    """The finished steps of every fragment, read as they are written."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._read: dict[int, list[Step]] = {}
        self._offsets: dict[int, int] = {}

    def of(self, fragment: int, since: float) -> list[Step]:
        """A fragment's steps that finished after `since`, in order."""
        steps = self._read.setdefault(fragment, [])
        steps += self._news(fragment)
        return list(takewhile(lambda step: step.at > since, reversed(steps)))[::-1]

    def _news(self, fragment: int) -> list[Step]:
        """The new lines since the last reading. A line that is still being written waits."""
        text = b""
        with suppress(FileNotFoundError), open(self._work / f"steps-{fragment}.log", "rb") as file:
            file.seek(self._offsets.get(fragment, 0))
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offsets[fragment] = self._offsets.get(fragment, 0) + len(whole)
        rows = (line.split() for line in whole.splitlines())
        return [Step(float(at), int(size), int(number)) for at, number, size in rows]

    def arrival(self, fragments: Iterable[int], size: int, since: float) -> float | None:
        """The time when the last of these fragments had finished a step at `size` and at no later
        size.

        None if not all have finished such a step.
        """
        first = []
        for fragment in fragments:
            steps = self.of(fragment, since)
            if len(steps) < SETTLED or any(step.size != size for step in steps[-SETTLED:]):
                return None
            lasting = list(takewhile(lambda step: step.size == size, reversed(steps)))
            first.append(lasting[-1].at)
        return max(first)

    def again(self, fragments: Iterable[int], since: float) -> int:
        """The number of steps that these fragments finished twice. All do the same steps."""
        return max(_repeated([step.number for step in self.of(f, since)]) for f in fragments)

    def tasks_again(self, since: float) -> int:
        """Tasks of a pool that any workers finished more than once."""
        logs = self._work.glob("steps-*.log")
        fragments = [int(path.stem.removeprefix("steps-")) for path in logs]
        return _repeated([step.number for f in fragments for step in self.of(f, since)])

    def pause(self, fragments: Iterable[int], since: float) -> float:
        """The longest time that any of these fragments went without finishing a step, in
        seconds.
        """
        return max(_longest_gap([step.at for step in self.of(f, since)]) for f in fragments)


def _longest_gap(times: list[float]) -> float:
    return max((after - before for before, after in zip(times, times[1:])), default=0.0)


def _repeated(numbers: list[int]) -> int:
    return len(numbers) - len(set(numbers))


class Begins:
    """The starts of training: rank and fragment of each."""

    def __init__(self, work: Path) -> None:
        self._path = work / "begins.jsonl"

    def read(self) -> list[dict[str, int]]:
        """Every start so far, oldest first."""
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        return [json.loads(line) for line in lines]

    def count(self, fragments: Iterable[int]) -> dict[int, int]:
        """The number of starts of the training processes of these fragments."""
        begun = Counter(begin["fragment"] for begin in self.read())
        return {fragment: begun[fragment] for fragment in fragments}

    def restarts(self, fragments: Iterable[int]) -> int:
        """The restarts that the agents of these fragments have used up."""
        last = {begin["fragment"]: begin["restarts"] for begin in self.read()}
        return sum(last.get(fragment, 0) for fragment in fragments)


_BEGAN = re.compile(r"^malleable: round \d+ started, ([\d.]+) s after", re.MULTILINE)


def between(work: Path, fragments: Iterable[int]) -> float | None:
    """Seconds from the end of a round's command to the start of the next round's command.

    The slowest of these fragments counts, as its agent last reported. None without such commands.
    """
    logs = [work / f"fragment-{fragment}.log" for fragment in fragments]
    said = [_BEGAN.findall(log.read_text(errors="replace")) for log in logs if log.exists()]
    return max((float(moments[-1]) for moments in said if moments), default=None)


def starts(work: Path, fragments: Iterable[int]) -> list[float]:
    """The last start times of these fragments' batch scripts, as they wrote into starts.log."""
    path = work / "starts.log"
    rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    last = {int(fragment): float(at) for at, fragment in rows}
    return [last[fragment] for fragment in fragments if fragment in last]


def lost(work: Path) -> int:
    """Tasks that were begun and have not ended, and that no worker has or will take."""
    claims = set(os.listdir(work / "claims"))
    kept = set(os.listdir(work / "back")) | {path.stem for path in (work / "run").iterdir()}
    texts = [path.read_text() for path in work.glob("steps-*.log")]
    ended = {line.split()[1] for text in texts for line in text.splitlines()}
    return len(claims - kept - ended)
