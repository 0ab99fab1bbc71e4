"""The tasks of `malleable map` as names of files, and the names of its other files; only values.

A task is one file, and the name of that file is all that is known of it, so at every moment each
task is in exactly one state. It changes by rename(), which only one of several workers can do:

    17.2.1.todo             waits; two tries were interrupted, one has failed
    17.2.1.run.OWNER        runs
    17.2.1.done             has ended with 0
    17.2.1.failed           has failed once more than it may

slurm_hooks/commands/map_directory.py makes and counts these files on the host of submission.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import Optional

MAP = "map.json"  # the command, how often a failed task is tried again, how many tasks
INPUTS = "inputs"  # one JSON text for each task, a line each
TASKS = "tasks"  # a directory with one file for each task
LOGS = "logs"  # 17.out, 17.err: the words that the last try of task 17 has printed
RESULTS = "results"  # 17.json: its exit code, seconds and host
STOP = "stop"  # if it is there, no more tasks are begun
WAIT = "wait."  # and the name of a worker that stays without a task, among the tasks
_NAME = re.compile(
    r"([1-9][0-9]{0,8})\.([0-9]{1,6})\.([0-9]{1,6})\.(todo|run|done|failed)(?:\.([0-9a-f_.-]{1,80}))?"
)
_OWNER = re.compile(r"([0-9]{1,12})_([0-9]{1,6})-([0-9]{1,9})-[0-9a-f]{8}")


class State(str, Enum):
    """Of a task."""

    TODO = "todo"
    RUN = "run"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class Task:
    """Its number (from 1), how many tries were interrupted and how many failed, and who runs it."""

    number: int
    interrupted: int = 0
    failed: int = 0
    state: State = State.TODO
    owner: str = ""

    @property
    def name(self) -> str:
        """Of its file."""
        words = (self.number, self.interrupted, self.failed, self.state.value)
        return ".".join(str(word) for word in (*words, *([self.owner] if self.owner else [])))


@dataclass(frozen=True)
class Worker:
    """A run of an element of a job array, which owns tasks; no two have the same `token`."""

    job: int
    element: int
    run: int
    token: str

    @property
    def name(self) -> str:
        """As in the names of the files."""
        return f"{self.job}_{self.element}-{self.run}-{self.token}"


def parse(name: str) -> Optional[Task]:
    """The task of a file; None for a file that is none."""
    found = _NAME.fullmatch(name)
    if not found:
        return None
    state, owner = State(found[4]), found[5] or ""
    if bool(owner) is not (state is State.RUN):
        return None
    return Task(int(found[1]), int(found[2]), int(found[3]), state, owner)


def claimed(task: Task, worker: Worker) -> Task:
    """The task as this worker runs it."""
    return replace(task, state=State.RUN, owner=worker.name)


def given_back(task: Task) -> Task:
    """After a try that was interrupted, which is nobody's fault."""
    return replace(task, interrupted=task.interrupted + 1, state=State.TODO, owner="")


def ended(task: Task, exit_code: int, retries: int) -> Task:
    """After a try that has ended by itself."""
    if exit_code == 0:
        return replace(task, state=State.DONE, owner="")
    if task.failed < retries:
        return replace(task, failed=task.failed + 1, state=State.TODO, owner="")
    return replace(task, state=State.FAILED, owner="")


def is_of_earlier_run(task: Task, worker: Worker) -> bool:
    """Whether an earlier run of the same element owns it: Slurm starts none before the last has
    ended, so that owner is gone."""
    return is_earlier_run(task.owner, worker)


def is_earlier_run(owner: str, worker: Worker) -> bool:
    """Whether that is the name of an earlier run of this worker's element."""
    found = _OWNER.fullmatch(owner)
    if not found:
        return False
    is_same = (int(found[1]), int(found[2])) == (worker.job, worker.element)
    return is_same and int(found[3]) < worker.run
