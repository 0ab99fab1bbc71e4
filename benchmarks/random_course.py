"""What every random course of changes has: how it is travelled, and what counts at its end.

Where the changes come from is a Course's own business: random_here.py makes them by hand on this
host, random_slurm.py lets Slurm and the tick make them.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from slurm_hooks.elastic import ElasticBatches

ROOT = Path(__file__).resolve().parents[1]
TRAININGS = ROOT / "tests" / "elastic"  # the scripts that are trained
SMALLEST, LARGEST = 2, 5
STEPS_TO_A_FILE = 50
MANY_STEPS = 10**9  # more than there will be
SAMPLES, BATCH, PRIME = 997, 24, 2**31 - 1  # as in the scripts


class LostError(Exception):
    """The training did not go on."""


@dataclass(frozen=True)
class Outcome:
    """What a training has in its model at the end: after `step` steps so many samples were learnt
    too seldom and too often, the weight, and the chain of all batches."""

    step: int
    lost: int
    twice: int
    weight: float
    chain: int

    @property
    def off(self) -> int:
        """Samples that were not learnt as often as they should."""
        return self.lost + self.twice


class Course(Protocol):
    """One training, and the changes that it goes through. Each method raises LostError if the
    training does not go on."""

    told: Counter[str]  # changes so far, by kind

    def begin(self) -> None:
        """Start it; returns once it trains."""

    def change(self) -> str:
        """Bring one change about, whatever became of the one before; gives its kind."""

    def rest(self, must_step: bool) -> None:
        """Between two changes; `must_step`: until the training goes on."""

    def step(self) -> int:
        """The newest step."""

    def end(self) -> None:
        """Let the training end."""

    def outcome(self) -> Outcome:
        """What it ended with."""

    def steps_again(self) -> int:
        """Steps that were done more than once."""

    def evidence(self) -> str:
        """The end of every log."""


def travel(course: Course, changes: int, until: float) -> Iterator[tuple[int, str]]:
    """All of it; gives after each change how many there were, and its kind. No change is made
    after `until` (monotonic seconds). Raises LostError."""
    course.begin()
    for number in range(1, changes + 1):
        if time.monotonic() > until:
            break
        kind = course.change()
        course.rest(must_step=number % 3 == 0)
        yield number, kind
    course.rest(must_step=True)
    course.end()


def undisturbed(steps: int) -> Outcome:
    """What one process alone ends with after so many steps, by the arithmetic of the scripts."""
    weight, chain = torch.zeros(1), 0
    target = torch.linspace(-1, 1, SAMPLES)
    for batch in _batches(steps):
        learnt = torch.bincount(torch.tensor(batch), minlength=SAMPLES).float()
        weight -= 0.05 * (((weight - target) * learnt).sum() / BATCH)
        chain = (chain * 31 + sum(batch)) % PRIME
    return Outcome(steps, 0, 0, float(weight), chain)


def undisturbed_counts(steps: int) -> list[int]:
    """How often each sample is learnt in so many steps."""
    counts = [0] * SAMPLES
    for batch in _batches(steps):
        for index in batch:
            counts[index] += 1
    return counts


def _batches(steps: int) -> Iterator[list[int]]:
    whole = ElasticBatches(SAMPLES, BATCH, steps, rank=0, world=1)
    return (whole.batch_of(step) for step in range(steps))


def verdict(found: Outcome) -> dict[str, object]:
    """What the training ended with against an undisturbed run of as many steps."""
    wanted = undisturbed(found.step)
    return {
        "steps": found.step,
        "samples_lost": found.lost,
        "samples_twice": found.twice,
        "same_batches_in_the_same_order": found.chain == wanted.chain,
        "weight": found.weight,
        "weight_off": abs(found.weight - wanted.weight),
    }


def is_whole(told: dict[str, object]) -> bool:
    """Whether a verdict has nothing to complain of."""
    return bool(
        told["samples_lost"] == told["samples_twice"] == 0
        and told["same_batches_in_the_same_order"]
    )


def worst_finish(work: Path) -> Outcome:
    """What the worst of those that told of the end found in its model. Raises LostError."""
    rows = [json.loads(path.read_text()) for path in work.glob("finished*")]
    if not rows:
        raise LostError("no process told of the end of the training")
    names = Outcome.__dataclass_fields__
    found = [Outcome(**{name: row[name] for name in names}) for row in rows]
    return max(found, key=lambda outcome: (outcome.off, outcome.step))


@dataclass(frozen=True, order=True)
class Step:
    """A step that somebody finished: when, in seconds since 1970, and of how many processes."""

    at: float
    number: int
    world: int


class StepLog:
    """The finished steps of all processes that tell of them, read as they are written."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._offsets: dict[Path, int] = {}
        self.steps: list[Step] = []

    def read(self) -> StepLog:
        """Take in what is new; a line that is still being written waits."""
        new: list[Step] = []
        for path in sorted(self._work.glob("steps*.log")):
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._offsets[path] = self._offsets.get(path, 0) + len(whole)
            rows = (line.split() for line in whole.splitlines())
            new += [Step(float(at), int(number), int(world)) for at, number, world in rows]
        self.steps += sorted(new)
        return self

    def newest(self) -> int:
        """The newest step; 0 if there is none."""
        return self.steps[-1].number if self.steps else 0


def again(steps: Iterable[Step], tellers: int) -> int:
    """How many steps were done more than once: all those that a training had done beyond the one
    at which it goes on. Where several `tellers` tell of the same step, one that is late by a step
    has done nothing twice."""
    slack, reached = 2 if tellers > 1 else 0, 0
    found: set[int] = set()
    for step in sorted(steps):
        if step.number <= reached - slack:
            found.update(range(step.number, reached + 1))
            reached = step.number
        reached = max(reached, step.number)
    return len(found)


def tail(path: Path, lines: int = 25) -> str:
    """The end of a log under its name."""
    text = path.read_text(errors="replace") if path.exists() else ""
    return "\n".join((f"--- {path.name}", *text.splitlines()[-lines:]))


def await_until(look: Callable[[], bool], limit_s: float, what: str) -> None:
    """Until it is so. Raises LostError."""
    deadline = time.monotonic() + limit_s
    while not look():
        if time.monotonic() > deadline:
            raise LostError(f"{what}: not within {limit_s:.0f} s")
        time.sleep(0.2)
