"""What a training told of its steps, and what a hit cost it; see steplog.py. And what slurmctld
wrote of the hit. Reads files only.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from pathlib import Path

SETTLED = 5  # steps in a row at one size


@dataclass(frozen=True)
class Line:
    """A step done by one process, or the samples that it takes for it; `at` is seconds since
    1970, `world` the number of processes."""

    at: float
    round: str
    world: int
    step: int
    samples: tuple[int, ...] = ()
    epoch: int = 0


@dataclass(frozen=True)
class Samples:
    """Of the steps that count: how many samples were seen, how many of them once more in the
    same epoch, and by how many epochs fall short of the fullest."""

    seen: int
    repeated: int
    lost: int


class HitLog:
    """The lines of every fragment, read as they are written."""

    def __init__(self, directory: Path, kind: str = "steps") -> None:
        self._directory, self._kind = directory, kind
        self._offsets: dict[Path, int] = {}
        self.lines: dict[str, list[Line]] = defaultdict(list)  # by fragment

    def read(self) -> HitLog:
        """Take in what is new; a line that is still being written waits."""
        for path in sorted(self._directory.glob(f"{self._kind}-*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._offsets[path] = self._offsets.get(path, 0) + len(whole)
            fragment = path.stem.partition("-")[2]
            self.lines[fragment] += [_line(row) for row in whole.splitlines()]
        return self

    def training(self, world: int, since: float) -> list[str]:
        """The fragments whose newest steps were all done by so many processes."""
        return [
            fragment
            for fragment, lines in self.lines.items()
            if len(lines) >= SETTLED
            and all(line.world == world and line.at > since for line in lines[-SETTLED:])
        ]

    def pause(self, fragments: Iterable[str], since: float, until: float) -> float:
        """The longest time that any of these went without finishing a step; seconds."""
        return max(_longest_gap([x.at for x in self.lines[f]], since, until) for f in fragments)

    def ordinary(self, fragment: str, since: float, until: float) -> float:
        """The median time between two steps of a fragment; seconds."""
        times = [line.at for line in self.lines[fragment] if since <= line.at <= until]
        gaps = sorted(after - before for before, after in zip(times, times[1:]))
        return gaps[len(gaps) // 2] if gaps else 0.0

    def again(self, since: float, until: float) -> int:
        """Steps that were done twice because of what happened in this time. Negative: steps
        that were left out."""
        rounds: dict[str, list[Line]] = defaultdict(list)
        for line in (x for lines in self.lines.values() for x in lines):
            if since - 60 < line.at <= until:
                rounds[line.round].append(line)
        lost = reached = 0
        for lines in sorted(rounds.values(), key=lambda lines: min(x.at for x in lines)):
            if reached and min(x.at for x in lines) > since:
                lost += reached - min(x.step for x in lines) + 1
            reached = max(x.step for x in lines)
        return lost


def samples(takes: HitLog, steps: HitLog) -> Samples:
    """What the training has seen in the end: of each step, the last round that did it. Where
    samples are told when a step is done, a process that was killed meanwhile could not: its part
    counts as seen."""
    of_step: dict[int, tuple[float, str]] = {}
    for lines in steps.lines.values():
        for line in lines:
            of_step[line.step] = max(of_step.get(line.step, (0.0, "")), (line.at, line.round))
    told = takes if takes.lines else steps
    seen: Counter[tuple[int, int]] = Counter()
    told_of: Counter[int] = Counter()
    for line in (line for lines in told.lines.values() for line in lines):
        if of_step.get(line.step, (0.0, ""))[1] == line.round:
            seen.update((line.epoch, sample) for sample in line.samples)
            told_of[line.step] += len(line.samples)
    if not seen:
        return Samples(0, 0, 0)
    repeated, missing = _compared(seen)
    batch = max(told_of.values())
    silent = sum(batch - count for count in told_of.values())
    return Samples(sum(seen.values()), repeated, max(0, missing - silent))


def freeing(log: str, job: str) -> float:
    """Seconds from slurmctld's first preemption after this job's submission until the job had its
    nodes, by slurmctld's log. Raises ValueError if that does not tell both."""
    _, _, after = log.partition(f"submit_batch_job: JobId={job} ")
    begun = re.search(r"^\[(\S+)\] .*\bpreempted JobId=", after, re.MULTILINE)
    had = re.search(rf"^\[(\S+)\] .*(?:Allocate|Started) JobId={job}\b", after, re.MULTILINE)
    if begun is None or had is None:
        raise ValueError(f"slurmctld's log does not say how job {job} came to its nodes")
    moments = [datetime.fromisoformat(found.group(1)) for found in (begun, had)]
    return (moments[1] - moments[0]).total_seconds()


def _compared(seen: Counter[tuple[int, int]]) -> tuple[int, int]:
    """Samples too often, and too seldom. Where epochs are told none has a sample twice, and all
    are as full as the fullest, but for the first and the last; in one stream, whose epoch is 0,
    each sample was seen as often as any other, or once more."""
    if {epoch for epoch, _ in seen} == {0}:
        least = sum(seen.values()) // len(seen)
        often = sum(max(0, count - least - 1) for count in seen.values())
        return often, sum(max(0, least - count) for count in seen.values())
    sizes = Counter(epoch for epoch, _ in seen)
    inner = [sizes[epoch] for epoch in sorted(sizes)[1:-1]]
    missing = sum(max(inner) - size for size in inner) if inner else 0
    return sum(count - 1 for count in seen.values()), missing


def _line(row: bytes) -> Line:
    """steplog.py's, or that of the trainings of tests/frameworks, which tell all when a step is
    done; a part of an epoch belongs to the one that it ends in."""
    words = json.loads(row)
    found = {name: words[name] for name in ("round", "world", "step")}
    samples = tuple(words.get("samples", ()))
    return Line(
        words.get("at", words.get("t")), **found, samples=samples, epoch=ceil(words.get("epoch", 0))
    )


def _longest_gap(times: list[float], since: float, until: float) -> float:
    inside = [at for at in times if since <= at <= until]
    return max((after - before for before, after in zip(inside, inside[1:])), default=0.0)
