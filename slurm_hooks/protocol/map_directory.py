"""Make, count and read the directory of a map, for its submitter.

Workers write the directory. tasks.py explains the names.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from slurm_hooks.protocol.tasks import (
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
TURN_S, POLL_S = 60.0, 0.1


class MapError(ValueError):
    """This cannot be done with the directory. The message says why."""


@dataclass(frozen=True)
class Counts:
    """The number of tasks in each state. `interrupted` counts tries that are repeated."""

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

    @property
    def shown(self) -> str:
        """The progress in words."""
        again = f", {self.interrupted} interrupted" if self.interrupted else ""
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.done} of {self.total} done, {self.run} running{failed}{again}"


@contextmanager
def turn(place: Path) -> Iterator[None]:
    """Lock the directory, so that no other command makes, reads or submits this map. A directory
    that is new and gets no map is removed. Raises MapError, OSError."""
    path, is_new = place / LOCK, not place.exists()
    place.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("a") as file:
            _lock(file.fileno(), place)
            _refuse_others(place)
            yield
    finally:
        if not is_map(place):
            path.unlink(missing_ok=True)
            with suppress(OSError):  # it contains other files
                if is_new:
                    place.rmdir()


def _lock(file: int, place: Path) -> None:
    """Wait for the lock. It ends when the file is closed. Raises MapError, OSError."""
    deadline = time.monotonic() + TURN_S
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise MapError(f"another command uses {place}: {LOCK} is locked") from None
        time.sleep(POLL_S)


def _refuse_others(place: Path) -> None:
    """Refuse a directory with other files, which may have our names. Raises MapError, OSError."""
    names = set(os.listdir(place))
    if names - {LOCK} and names.isdisjoint({MAP, DRAFT}):
        raise MapError(f"{place} is not empty and has no map: name a new directory with --dir")


def is_map(place: Path) -> bool:
    """True if the directory has a map."""
    return (place / MAP).exists()


def prepare(
    place: Path,
    command: Sequence[str],
    inputs: Optional[Sequence[str]],
    file: Optional[str],
    retries: int,
    keep_going: bool,
) -> None:
    """Make the directory of the map if it is missing. The inputs are given, or lines of a file,
    which is standard input if it is named `-`. Raises MapError, OSError.
    """
    if is_map(place):
        known = read_order(place).command
        if command and tuple(command) != known:
            raise MapError(
                f"{place} has a map of another command: {' '.join(known)}; use another --dir"
            )
        return
    if not command:
        raise MapError("give the program behind --: malleable map --max 8 -- convert {} ::: *.png")
    make(place, command, _lines(file) if inputs is None else inputs, retries, keep_going)


def _lines(name: Optional[str]) -> list[str]:
    """Read the inputs. Raises MapError."""
    if name is None:
        raise MapError("give inputs: --inputs FILE, --inputs - or ::: INPUT... at the end")
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise MapError(f"cannot read inputs from {name}: {error}") from error
    lines = os.fsdecode(data).split("\n")  # names of files may be of any bytes
    return [line.rstrip("\r") for line in lines if line.strip()]


def make(
    place: Path, command: Sequence[str], inputs: Sequence[str], retries: int, keep_going: bool
) -> None:
    """Make the directory of a new map. The draft is written first, so that half a map is
    recognized, and map.json last. Raises MapError, OSError."""
    if not 0 < len(inputs) <= MOST_TASKS:
        raise MapError(f"a map has 1 to {MOST_TASKS} inputs, not {len(inputs)}")
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


@dataclass(frozen=True)
class Order:
    """The work for each of so many inputs. In the command, `{}` stands for the input."""

    command: tuple[str, ...]
    retries: int
    keep_going: bool
    tasks: int

    def words(self, text: str) -> list[str]:
        """Return the command for this input, which comes last without a `{}`."""
        if not any("{}" in word for word in self.command):
            return [*self.command, text]
        return [word.replace("{}", text) for word in self.command]


def read_order(place: Path) -> Order:
    """The content of map.json. Raises MapError."""
    try:
        data = json.loads((place / MAP).read_text(encoding="utf-8"))
        command, retries, keep_going, tasks = (data[name] for name in Order.__dataclass_fields__)
    except (OSError, ValueError, RecursionError) as error:
        raise MapError(f"cannot read the map in {place}: {error}") from error
    except (KeyError, TypeError) as error:
        raise MapError(f"{place}/{MAP} is not a file of `malleable map`") from error
    is_command = isinstance(command, list) and all(isinstance(word, str) for word in command)
    if not (is_command and isinstance(retries, int) and isinstance(tasks, int)):
        raise MapError(f"{place}/{MAP} is not a file of `malleable map`")
    return Order(tuple(command), retries, bool(keep_going), tasks)


def is_over(place: Path, counts: Counts) -> bool:
    """True if no worker has or will take a task: all tasks have ended, or the map is stopped. It
    counts again, since a listing may miss a file that is just renamed. Raises OSError."""

    def is_done(now: Counts) -> bool:
        return not now.left or (not now.run and (place / STOP).exists())

    return is_done(counts) and is_done(count(place))


def lost(place: Path, counts: Counts) -> int:
    """The number of tasks whose file is missing. Raises MapError."""
    return max(0, read_order(place).tasks - counts.total)


def put_back(place: Path) -> None:
    """Queue again the tasks that failed and the tasks of dead workers. Only call this when no job
    works on the map. Raises OSError."""
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
    """Count the tasks by state. Raises OSError."""
    tasks = tasks_in(place)
    states = Counter(task.state.value for task in tasks)
    return Counts(**states, interrupted=sum(task.interrupted for task in tasks))


def tasks_in(place: Path) -> list[Task]:
    """All tasks, by number. Raises OSError."""
    parsed = (parse(name) for name in os.listdir(place / TASKS))
    return sorted((task for task in parsed if task), key=lambda task: task.number)


def cut_off(place: Path) -> list[str]:
    """A line for each task that ran when its worker ended. Raises OSError."""
    return [
        f"task {task.number}: its worker ended while it ran "
        f"({task.interrupted} time{'' if task.interrupted == 1 else 's'} before): "
        f"{place}/{LOGS}/{task.number}.err.{task.owner}"
        for task in tasks_in(place)
        if task.state is State.RUN
    ]


def failures(place: Path) -> list[dict[str, Any]]:
    """The tasks that have failed: number, exit code, log. Raises OSError."""
    return [_failure(place, t.number) for t in tasks_in(place) if t.state is State.FAILED]


def _failure(place: Path, number: int) -> dict[str, Any]:
    try:
        result: Mapping[str, Any] = json.loads((place / RESULTS / f"{number}.json").read_text())
        code = result["exit_code"]
    except (OSError, ValueError, KeyError, TypeError):
        code = None
    return {"task": number, "exit_code": code, "log": str(place / LOGS / f"{number}.err")}


def jobs_of(place: Path) -> list[int]:
    """The jobs that have worked on the map, the latest last."""
    try:
        words = (place / "jobs").read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return []
    return [int(word) for word in words if word.isascii() and word.isdigit()]


def note_job(place: Path, job_id: int) -> None:
    """Remember a job that works on the map. Raises OSError."""
    with open(place / "jobs", "a", encoding="ascii") as file:
        file.write(f"{job_id}\n")
