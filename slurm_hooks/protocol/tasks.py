"""The tasks of `malleable map` as names of files, and the names of its other files. Only values.

A task is a file, and the file's name has its whole state. So a task is always in exactly 1 state.
A rename() changes the state, and of several workers only the first succeeds:

    17.2.1.todo             waits; two tries were interrupted, one has failed
    17.2.1.run.OWNER        runs
    17.2.1.done             has ended with 0
    17.2.1.failed           has failed once more than it may

map_directory.py makes and counts these files on the host of submission.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import Optional

MAP = "map.json"  # the command, how often a failed task is tried again, how many tasks
INPUTS = "inputs"  # a line of JSON for each task
TASKS = "tasks"  # a directory with a file for each task
LOGS = "logs"  # 17.out, 17.err: the output of the last try of task 17
RESULTS = "results"  # 17.json: its exit code, seconds and host
STOP = "stop"  # while it exists, no task begins
WAIT = "wait."  # and the name of a worker that waits without a task, in the directory of tasks
_NAME = re.compile(
    r"([1-9][0-9]{0,8})\.([0-9]{1,6})\.([0-9]{1,6})\.(todo|run|done|failed)(?:\.([0-9a-f_.-]{1,80}))?"
)
_OWNER = re.compile(r"([0-9]{1,12})_([0-9]{1,6})-([0-9]{1,9})-[0-9a-f]{8}")


class State(str, Enum):
    """The state of a task."""

    TODO = "todo"
    RUN = "run"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class Task:
    """A task: its number (from 1), interrupted tries, failed tries, and the worker that runs it."""

    number: int
    interrupted: int = 0
    failed: int = 0
    state: State = State.TODO
    owner: str = ""

    @property
    def name(self) -> str:
        """The name of its file."""
        words = (self.number, self.interrupted, self.failed, self.state.value)
        return ".".join(str(word) for word in (*words, *([self.owner] if self.owner else [])))


@dataclass(frozen=True)
class Worker:
    """A run of an element of a job array, which owns tasks. Each run has a unique `token`."""

    job: int
    element: int
    run: int
    token: str

    @property
    def name(self) -> str:
        """The name in the names of files."""
        return f"{self.job}_{self.element}-{self.run}-{self.token}"


def parse(name: str) -> Optional[Task]:
    """Return the task of a file, or None for any other file."""
    match = _NAME.fullmatch(name)
    if not match:
        return None
    state, owner = State(match[4]), match[5] or ""
    if bool(owner) is not (state is State.RUN):
        return None
    return Task(int(match[1]), int(match[2]), int(match[3]), state, owner)


def claimed(task: Task, worker: Worker) -> Task:
    """Return the task as this worker runs it."""
    return replace(task, state=State.RUN, owner=worker.name)


def given_back(task: Task) -> Task:
    """Return the task after an interrupted try, which does not count as a failure."""
    return replace(task, interrupted=task.interrupted + 1, state=State.TODO, owner="")


def ended(task: Task, exit_code: int, retries: int) -> Task:
    """Return the task after a try that was not interrupted."""
    if exit_code == 0:
        return replace(task, state=State.DONE, owner="")
    if task.failed < retries:
        return replace(task, failed=task.failed + 1, state=State.TODO, owner="")
    return replace(task, state=State.FAILED, owner="")


def is_earlier_run(owner: str, worker: Worker) -> bool:
    """Tell whether `owner` is an earlier run of this worker's element. Slurm starts a run only
    after the last has ended, so that owner has ended."""
    match = _OWNER.fullmatch(owner)
    if not match:
        return False
    is_same = (int(match[1]), int(match[2])) == (worker.job, worker.element)
    return is_same and int(match[3]) < worker.run
