"""Describe the malleable job of the demo, a row for each engine. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from demo.scenario import PLAIN, SHARED, WHOLE, Scenario


@dataclass(frozen=True)
class Goal:
    """A number in `result.json` at the end: its key, and its limits."""

    what: str
    key: str
    least: float = float("-inf")
    most: float = float("inf")

    def is_met(self, result: Mapping[str, Any]) -> bool:
        """Tell whether the result meets it."""
        value = result.get(self.key)
        return isinstance(value, (int, float)) and self.least <= value <= self.most


@dataclass(frozen=True)
class Work:
    """A batch script of the examples, its arguments, and the result that it must have.

    `files` are the script and its other files, all in `folder`. A Python must be able to import
    `modules`, and `programs` must be in PATH. The script finds `variables` in its environment,
    where {work} stands for its directory. `job` is its name, which its log has too. The demo shows
    `goal`, and `others` must be met too. Its log and its result count `unit`. The demo calls it
    `name`.
    """

    engine: str
    folder: str
    files: tuple[str, ...]
    arguments: tuple[str, ...]
    goal: Goal
    job: str
    modules: tuple[str, ...] = ()
    least_nodes: int = 1
    others: tuple[Goal, ...] = ()
    unit: str = "step"
    name: str = "training"
    programs: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def script(self) -> str:
        """The name of the script for sbatch."""
        return self.files[0]

    def request(self, scenario: Scenario) -> tuple[str, ...]:
        """The options for sbatch, or for `malleable submit`."""
        unit = ",unit=gpu" if scenario.gpus else ""
        size = f"{self.least_nodes}-{scenario.most}{unit}"
        if scenario.is_plain:  # a lease longer than the demo
            return ("--partition=preempt", f"--malleable={size}", "--time=30:00")
        return (f"--malleable={size},engine={self.engine}", "--time=2", "--time-min=1")


_TRAINING = ("--steps=600", "--pace=0.85", "--every=10")
_TASKS = 360
_OPEN_MPI = {
    "TMPDIR": "{work}",  # some hosts do not let users write into /tmp
    # All nodes are this host, which may be without a network, and the user may be root.
    "OMPI_MCA_btl_tcp_if_include": "lo",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
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
        Work(
            "pool",
            folder="farm",
            files=("farm.sh", "worker.py"),
            arguments=(f"--tasks={_TASKS}", "--pace=2"),
            goal=Goal("every task was done", "done", least=_TASKS),
            job="farm",
            least_nodes=0,
            others=(
                Goal("no task was lost", "lost", most=0),
                Goal("no task was done twice", "repeated", most=0),
            ),
            unit="task",
            name="task farm",
        ),
        Work(
            "mpi",
            folder="mpi",
            files=("train.sh", "train.py"),
            arguments=_TRAINING,
            goal=Goal("accuracy of 0.93 or better", "accuracy", 0.93),  # a linear model
            job="mpi",
            modules=("numpy", "sklearn", "mpi4py"),
            programs=("mpirun",),
            variables=_OPEN_MPI,
        ),
    )
}
# On shared nodes one engine will do. A step is as long with 7 GPUs as with 4 nodes.
ON_GPUS = replace(
    WORKS["torchrun"],
    files=("train_gpus.sh", "train.py"),
    arguments=("--steps=480", "--pace=1.5", "--every=10"),
)
ON_PLAIN = replace(WORKS["torchrun"], arguments=("--steps=900", "--pace=0.85", "--every=10"))
WORKS_OF = {
    WHOLE: WORKS,
    SHARED: {ON_GPUS.engine: ON_GPUS},
    PLAIN: {ON_PLAIN.engine: ON_PLAIN},
}
