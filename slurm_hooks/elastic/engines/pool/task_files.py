"""The files of a map, in a directory that all nodes share: tasks are claimed, given back and ended.
The names are in words/tasks.py.

Only rename() decides. An NFS client may be told that a rename failed that has worked, so whoever is
told so looks whether the new name is there; no two workers ever rename to the same name.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from slurm_hooks.words.tasks import (
    INPUTS,
    LOGS,
    MAP,
    RESULTS,
    STOP,
    TASKS,
    WAIT,
    Task,
    Worker,
    claimed,
    is_earlier_run,
    parse,
)


@dataclass(frozen=True)
class Order:
    """What is done with each input: `{}` in the command stands for it."""

    command: tuple[str, ...]
    retries: int
    keep_going: bool

    def words(self, text: str) -> list[str]:
        """The command for this input, which comes last if there is no `{}`."""
        if not any("{}" in word for word in self.command):
            return [*self.command, text]
        return [word.replace("{}", text) for word in self.command]


def read_order(place: Path) -> Order:
    """Raises OSError; ValueError if it is no map."""
    text = (place / MAP).read_text(encoding="utf-8")
    try:
        found = json.loads(text)
        command = tuple(str(word) for word in found["command"])
        return Order(command, int(found["retries"]), bool(found["keep_going"]))
    except (KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{place}/{MAP}: {error}") from None


def read_inputs(place: Path) -> list[str]:
    """The inputs; the first is of task 1. Raises OSError, ValueError."""
    with open(place / INPUTS, encoding="utf-8") as file:
        return [str(json.loads(line)) for line in file]


class TaskFiles:
    """The tasks of one map, for one worker. Methods raise OSError."""

    def __init__(self, place: Path, worker: Worker) -> None:
        self.place = place
        self._tasks = place / TASKS
        self._worker = worker

    def all(self) -> list[Task]:
        """Every task, by number."""
        found = (parse(name) for name in os.listdir(self._tasks))
        return sorted((task for task in found if task), key=lambda task: task.number)

    def claim(self, task: Task) -> Task | None:
        """Make a waiting task ours; None if somebody else was faster."""
        mine = claimed(task, self._worker)
        if not self.move(task, mine):
            return None
        return mine if self.beat(mine) else None  # until then its time is that of the last change

    def move(self, task: Task, after: Task) -> bool:
        """Whether the task was as we believe; then it is now as `after` says."""
        target = self._tasks / after.name
        try:
            os.rename(self._tasks / task.name, target)
        except FileNotFoundError:
            return after.owner in ("", self._worker.name) and target.exists()
        return True

    def beat(self, task: Task) -> bool:
        """Show that its worker lives; whether it is still ours."""
        try:
            os.utime(self._tasks / task.name)
        except FileNotFoundError:
            return False
        return True

    def age_mark(self, task: Task) -> int:
        """Something that changes with each beat, 0 if it does not run any more."""
        try:
            return (self._tasks / task.name).stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def draft(self, task: Task, kind: str) -> Path:
        """Where a try writes; others may believe it lost, and try the same task."""
        return self.place / LOGS / f"{task.number}.{kind}.{self._worker.name}"

    def publish(self, task: Task, result: dict[str, object]) -> None:
        """Put what a try has printed, and its result, where people look."""
        for kind in ("out", "err"):
            self.draft(task, kind).replace(self.place / LOGS / f"{task.number}.{kind}")
        draft = self.place / RESULTS / f"{task.number}.json.{self._worker.name}"
        draft.write_text(json.dumps(result) + "\n", encoding="utf-8")
        draft.replace(self.place / RESULTS / f"{task.number}.json")

    def discard(self, task: Task) -> None:
        """Remove what an interrupted try has printed."""
        for kind in ("out", "err"):
            with suppress(FileNotFoundError):
                self.draft(task, kind).unlink()

    @property
    def is_stopped(self) -> bool:
        """Whether no more tasks are to be begun."""
        return (self.place / STOP).exists()

    def stop(self) -> None:
        """Have no more tasks begun."""
        (self.place / STOP).touch()

    def is_first(self, name: str) -> bool:
        """Whether we are the first of all workers to do what this name stands for."""
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
        try:
            os.close(os.open(self.place / name, flags, 0o600))
        except FileExistsError:
            return False
        return True

    def is_guard(self) -> bool:
        """Whether this worker is the one without a task that stays until all tasks have ended."""
        own = f"{WAIT}{self._worker.name}"
        with suppress(FileExistsError):
            os.close(os.open(self._tasks / own, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        waiting = [name for name in os.listdir(self._tasks) if name.startswith(WAIT)]
        return min(waiting, default=own) == own

    def forget_earlier_runs(self) -> None:
        """Of this element: one that was killed while it stayed keeps all others from that."""
        for name in os.listdir(self._tasks):
            if name.startswith(WAIT) and is_earlier_run(name[len(WAIT) :], self._worker):
                with suppress(FileNotFoundError):
                    (self._tasks / name).unlink()

    def leave(self) -> None:
        """This worker does not wait any more."""
        with suppress(FileNotFoundError):
            (self._tasks / f"{WAIT}{self._worker.name}").unlink()
