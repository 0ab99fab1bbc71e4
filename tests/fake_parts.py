"""The records of the fake Slurm: array elements, actions of their scripts, others' jobs and
claims.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from slurm_hooks.model import Resources

START = 1_800_000_000
REQUEUE_WAIT_S = 121
MAIN = "main"  # where ordinary jobs run, above all lanes
LIMIT_CHECK_S = 30  # slurmctld checks time limits every half minute
FINISHED = frozenset({"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL"})
LIVE_STATES = frozenset({"RUNNING", "COMPLETING"})
# Slurm's own text, printed instead of the kind of hold until the element is released.
REQUEUED_HELD = "job requeued in held state"


@dataclass
class Run:
    """The truth about an element's present run, whether or not Slurm and the tick know it."""

    ran_s: int = 0
    late_s: int = 0  # beyond its lease
    said: str = ""  # the last word that Slurm took from its agent
    tried_s: int = 0  # for how long its agent has tried to say that training is finished
    left_at: Optional[int] = None  # when its agent has left the training, or will have


@dataclass
class Part:
    """An element's request on its single node, as a single task. `tres` is squeue's text.

    Slurm gives `gpus`, which only a text that it understands changes. It starts no element whose
    three counts of processors differ.
    """

    gpus: int = 0
    gpu: str = "gpu"  # or gpu:a100
    cpus: int = 1
    memory_mib: int = 1000
    cpus_per_task: int = 0
    min_cpus: int = 0
    tres: str = ""

    def __post_init__(self) -> None:
        self.cpus_per_task = self.cpus_per_task or self.cpus
        self.min_cpus = self.min_cpus or self.cpus
        self.tres = self.tres or (f"gres:{self.gpu}:{self.gpus}" if self.gpus else "")

    @property
    def is_whole(self) -> bool:
        """True if the counts agree."""
        return self.cpus == self.cpus_per_task == self.min_cpus

    @property
    def asks(self) -> Resources:
        return resources(self.cpus, self.memory_mib, self.gpus, self.gpu)


def resources(cpus: int, memory_mib: int, gpus: int = 0, gpu: str = "gpu") -> Resources:
    """GPUs of a type count as GPUs too."""
    names = sorted({"gpu", gpu}) if gpus else ()
    return Resources(cpus, memory_mib, tuple((name, gpus) for name in names))


@dataclass
class Element:
    """An array element as slurmctld keeps it. Times are epoch seconds.

    `hold` names the holder (empty, user, admin), `description` is printed instead. An element that
    was never touched since its submission is not `is_split`: it has no separate record yet. It
    takes whole nodes unless it asks for a `part` of a node.
    """

    job: int
    index: int
    admin_comment: str
    comment: str = ""
    user: str = "nobody"
    partition: str = "malleable"
    part: Optional[Part] = None
    state: str = "PENDING"
    hold: str = "user"
    description: str = ""
    is_split: bool = False
    count: int = 1  # of nodes
    limit_min: int = 10
    features: frozenset[str] = frozenset()  # asked for with --constraint
    is_unfit: bool = False  # Slurm found that the nodes asked for can never run it
    nodes: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()
    barred: frozenset[str] = frozenset()  # nodes that it is excluded from
    start: Optional[int] = None
    end: Optional[int] = None
    eligible: Optional[int] = None
    restarts: int = 0
    exit_code: int = 0
    signalled: Optional[int] = None
    gone_at: Optional[int] = None  # when the processes of a COMPLETING element are gone
    then: str = ""  # the state after COMPLETING
    run: Run = field(default_factory=Run)

    @property
    def name(self) -> str:
        return f"{self.job}_{self.index}"

    @property
    def is_held(self) -> bool:
        return self.hold != ""


@dataclass
class Script:
    """The actions of a job's batch script.

    With `joins` it trains under agents, which speak through the Comment and put themselves back
    when they leave. If it `ignores_notice`, its agents read neither notices nor their lease. If it
    `is_mute`, Slurm's commands do not work in it. When it `is_done`, all work is done: each
    fragment that trains, or starts later, finishes. Fragments take a few seconds more the higher
    their index.
    """

    joins: bool = True
    ignores_notice: bool = False
    is_mute: bool = False
    is_done: bool = False
    join_s: int = 5
    train_s: int = 40


@dataclass
class Job:
    """The facts of a whole array."""

    throttle: int = 0
    is_dependent: bool = False  # on a job that has not ended
    script: Script = field(default_factory=Script)


@dataclass
class Rigid:
    """A job of another user, in the queue from `seen`. It starts at `start`.

    If both are equal, it takes its nodes from preemptible elements, or the `part` of each that it
    needs.
    """

    job: int
    nodes: frozenset[str]
    seen: int
    start: int
    seconds: int
    state: str = "PENDING"
    part: Optional[Resources] = None


@dataclass
class Booking:
    """A reservation, visible from `seen`."""

    name: str
    nodes: frozenset[str]
    seen: int
    start: int
    end: int


@dataclass(frozen=True)
class Violation:
    """An element of ours that delays a job or reservation. `whose` names that, or is empty."""

    at: int
    element: str
    what: str
    whose: str = ""

    def __str__(self) -> str:
        return f"{self.at}: {self.element} {self.what} {self.whose}".rstrip()
