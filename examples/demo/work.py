"""What the malleable job does in the demo, one row per engine. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MOST_NODES = 6


@dataclass(frozen=True)
class Goal:
    """What `result.json` has to say at the end: at least so much under this key."""

    what: str
    key: str
    least: float

    def is_met(self, result: Mapping[str, Any]) -> bool:
        """Whether it says so."""
        found = result.get(self.key)
        return isinstance(found, (int, float)) and found >= self.least


@dataclass(frozen=True)
class Work:
    """A batch script of the examples, what it is given, and what must come of it.

    `files` are the script and what it needs, all in `folder`; the Python that runs the demo must be
    able to import `modules`. `job` is its name, which its log has too.
    """

    engine: str
    folder: str
    files: tuple[str, ...]
    arguments: tuple[str, ...]
    goal: Goal
    job: str
    modules: tuple[str, ...]
    least_nodes: int = 1

    @property
    def script(self) -> str:
        """What sbatch is given."""
        return self.files[0]

    @property
    def request(self) -> tuple[str, ...]:
        """How sbatch is asked."""
        size = f"{self.least_nodes}-{MOST_NODES}"
        return (f"--malleable={size},engine={self.engine}", "--time=2", "--time-min=1")


_TRAINING = ("--steps=480", "--pace=0.85", "--every=10")
_ACCURACY = Goal("accuracy of 0.95 or better", "accuracy", 0.95)

WORKS = {
    row.engine: row
    for row in (
        Work(
            "torchrun",
            folder="digits",
            files=("train.sh", "train.py"),
            arguments=_TRAINING,
            goal=_ACCURACY,
            job="digits",
            modules=("torch", "sklearn"),
        ),
        Work(
            "torchft",
            folder="digits",
            files=("train_torchft.sh", "train_torchft.py", "train.py"),
            arguments=_TRAINING,
            goal=_ACCURACY,
            job="digits",
            modules=("torch", "torchft", "sklearn"),
        ),
    )
}
