"""The directory of a map as its submitter sees it: made, counted, read once it has ended.

Workers write it. words/tasks.py explains the names.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from slurm_hooks.errors import UsageError
from slurm_hooks.model.plural import plural
from slurm_hooks.words.tasks import (
    INPUTS,
    LOGS,
    MAP,
    RESULTS,
    STOP,
    TASKS,
    WAIT,
    State,
    Task,
    parse,
)

DRAFT, LOCK = f"{MAP}.draft", "map.lock"
MOST_TASKS = 1_000_000
TURN_S = 60.0


@dataclass(frozen=True)
class Counts:
    """How many tasks are in each state; `interrupted`: tries that were, and are done again."""

    todo: int = 0
    run: int = 0
    done: int = 0
    failed: int = 0
    interrupted: int = 0

    @property
    def left(self) -> int:
        """Tasks that have not ended."""
        return self.todo + self.run

    @property
    def total(self) -> int:
        """All tasks."""
        return self.left + self.done + self.failed


@contextmanager
def turn(place: Path) -> Iterator[None]:
    """Alone of all that make, look at or submit this map now; a directory that is made and gets no
    map goes again. Raises UsageError, OSError."""
    path, is_new = place / LOCK, not place.exists()
    place.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path, timeout=TURN_S):
            _refuse_others(place)
            yield
    except Timeout:
        raise UsageError(f"somebody else is at {place}: {path} is locked") from None
    finally:
        if not is_map(place):
            path.unlink(missing_ok=True)
            with suppress(OSError):  # something else is in it
                if is_new:
                    place.rmdir()


def _refuse_others(place: Path) -> None:
    """Files that lie there may have the names of ours. Raises UsageError, OSError."""
    found = set(os.listdir(place))
    if found - {LOCK} and found.isdisjoint({MAP, DRAFT}):
        raise UsageError(f"{place} is no map and not empty: name a new directory with --dir")


def is_map(place: Path) -> bool:
    """Whether there is one."""
    return (place / MAP).exists()


def make(
    place: Path, command: Sequence[str], inputs: Sequence[str], retries: int, keep_going: bool
) -> None:
    """Make the directory of a new map; its draft comes first, so that half of one is known, and
    map.json last. Raises UsageError, OSError."""
    if not 0 < len(inputs) <= MOST_TASKS:
        raise UsageError(f"{len(inputs)} inputs: a map has 1 to {MOST_TASKS}")
    order = {"command": list(command), "retries": retries, "keep_going": keep_going}
    draft = place / DRAFT
    draft.write_text(json.dumps({**order, "tasks": len(inputs)}) + "\n", encoding="utf-8")
    for name in (TASKS, LOGS, RESULTS):
        (place / name).mkdir(parents=True, exist_ok=True)
    (place / INPUTS).write_text(
        "".join(f"{json.dumps(text)}\n" for text in inputs), encoding="utf-8"
    )
    for number in range(1, len(inputs) + 1):
        (place / TASKS / Task(number).name).touch()
    draft.replace(place / MAP)


def read_order(place: Path) -> dict[str, Any]:
    """What map.json says. Raises UsageError."""
    try:
        found = json.loads((place / MAP).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{place} has no map that can be read: {error}") from error
    known = found if isinstance(found, dict) else {}
    command, tasks = known.get("command"), known.get("tasks")
    is_command = isinstance(command, list) and all(isinstance(word, str) for word in command)
    if not (is_command and isinstance(tasks, int)):
        raise UsageError(f"{place}/{MAP} is not one of `malleable map`")
    return known


def is_over(place: Path, found: Counts) -> bool:
    """Whether no worker has a task or will take one: all have ended, or it is stopped. Looks again,
    as a file that is renamed while a directory is listed may be missing. Raises OSError."""

    def says(counts: Counts) -> bool:
        return not counts.left or (not counts.run and (place / STOP).exists())

    return says(found) and says(count(place))


def lost(place: Path, found: Counts) -> int:
    """How many tasks have no file any more. Raises UsageError."""
    return max(0, int(read_order(place)["tasks"]) - found.total)


def put_back(place: Path) -> None:
    """Have what runs nowhere any more and what has failed tried again. Only once no job works on
    it. Raises OSError."""
    tasks = place / TASKS
    for name in os.listdir(tasks):
        if name.startswith(WAIT):
            (tasks / name).unlink()
        task = parse(name)
        if task and task.state in (State.RUN, State.FAILED):
            interrupted = task.interrupted + (task.state is State.RUN)
            (tasks / name).rename(tasks / Task(task.number, interrupted).name)
    (place / STOP).unlink(missing_ok=True)


def count(place: Path) -> Counts:
    """How far it is. Raises OSError."""
    found = _tasks(place)
    states = Counter(task.state.value for task in found)
    return Counts(**states, interrupted=sum(task.interrupted for task in found))


def _tasks(place: Path) -> list[Task]:
    """All tasks, by number."""
    found = (parse(name) for name in os.listdir(place / TASKS))
    return sorted((task for task in found if task), key=lambda task: task.number)


def cut_off(place: Path) -> list[str]:
    """A line on each task that ran when its worker ended. Raises OSError."""
    return [
        f"task {task.number}: its worker ended while it ran "
        f"({plural(task.interrupted, 'time')} before): "
        f"{place}/{LOGS}/{task.number}.err.{task.owner}"
        for task in _tasks(place)
        if task.state is State.RUN
    ]


def failures(place: Path) -> list[dict[str, Any]]:
    """The tasks that have failed: number, exit code, log. Raises OSError."""
    return [_failure(place, t.number) for t in _tasks(place) if t.state is State.FAILED]


def _failure(place: Path, number: int) -> dict[str, Any]:
    try:
        said: Mapping[str, Any] = json.loads((place / RESULTS / f"{number}.json").read_text())
        code = said["exit_code"]
    except (OSError, ValueError, KeyError, TypeError):
        code = None
    return {"task": number, "exit_code": code, "log": str(place / LOGS / f"{number}.err")}


def jobs_of(place: Path) -> list[int]:
    """The jobs that have worked on it, the last one last."""
    try:
        words = (place / "jobs").read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return []
    return [int(word) for word in words if word.isascii() and word.isdigit()]


def note_job(place: Path, job_id: int) -> None:
    """Remember who works on it. Raises OSError."""
    with open(place / "jobs", "a", encoding="ascii") as file:
        file.write(f"{job_id}\n")
