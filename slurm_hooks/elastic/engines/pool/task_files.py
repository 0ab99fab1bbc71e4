"""The files of a map, in a directory that all nodes share. Tasks are claimed, given back and ended
there. The names are in protocol/tasks.py.

Only rename() decides. An NFS client may report a rename as failed although it has worked. So after
a failure we check whether the new name exists. No two workers ever rename to the same name.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from slurm_hooks.protocol.map_directory import tasks_in
from slurm_hooks.protocol.tasks import (
    INPUTS,
    LOGS,
    RESULTS,
    STOP,
    TASKS,
    WAIT,
    Task,
    Worker,
    claimed,
    is_earlier_run,
)


def read_inputs(place: Path) -> list[str]:
    """Return the inputs, beginning with the input of task 1. Raises OSError, ValueError."""
    with open(place / INPUTS, encoding="utf-8") as file:
        return [str(json.loads(line)) for line in file]


class TaskFiles:
    """The tasks of a map, for a single worker. Methods raise OSError."""

    def __init__(self, place: Path, worker: Worker) -> None:
        self.place = place
        self._tasks = place / TASKS
        self._worker = worker

    def all(self) -> list[Task]:
        """Return every task, by number."""
        return tasks_in(self.place)

    def claim(self, task: Task) -> Task | None:
        """Claim a waiting task. Return `None` if another worker was faster."""
        mine = claimed(task, self._worker)
        if not self.move(task, mine):
            return None
        return mine if self.beat(mine) else None  # until then its time is that of the last change

    def move(self, task: Task, after: Task) -> bool:
        """Change the task to `after`. Tell whether it was as we believe."""
        target = self._tasks / after.name
        try:
            os.rename(self._tasks / task.name, target)
        except FileNotFoundError:
            return after.owner in ("", self._worker.name) and target.exists()
        return True

    def beat(self, task: Task) -> bool:
        """Show that its worker lives, and tell whether the task is still ours."""
        try:
            os.utime(self._tasks / task.name)
        except FileNotFoundError:
            return False
        return True

    def age_mark(self, task: Task) -> int:
        """Return a number that changes with each beat, 0 if the task no longer runs."""
        try:
            return (self._tasks / task.name).stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    def draft(self, task: Task, kind: str) -> Path:
        """Return where a try writes. Others may believe the try lost, and run the same task."""
        return self.place / LOGS / f"{task.number}.{kind}.{self._worker.name}"

    def publish(self, task: Task, result: dict[str, object]) -> None:
        """Put the output of a try, and its result, at their final names."""
        for kind in ("out", "err"):
            self.draft(task, kind).replace(self.place / LOGS / f"{task.number}.{kind}")
        draft = self.place / RESULTS / f"{task.number}.json.{self._worker.name}"
        draft.write_text(json.dumps(result) + "\n", encoding="utf-8")
        draft.replace(self.place / RESULTS / f"{task.number}.json")

    def discard(self, task: Task) -> None:
        """Remove the output of an interrupted try."""
        for kind in ("out", "err"):
            with suppress(FileNotFoundError):
                self.draft(task, kind).unlink()

    @property
    def is_stopped(self) -> bool:
        """True if no more tasks are to begin."""
        return (self.place / STOP).exists()

    def stop(self) -> None:
        """Let no more tasks begin."""
        (self.place / STOP).touch()

    def is_first(self, name: str) -> bool:
        """Tell whether this is the first of all workers to do the thing with this name."""
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
        try:
            os.close(os.open(self.place / name, flags, 0o600))
        except FileExistsError:
            return False
        return True

    def is_guard(self) -> bool:
        """Tell whether this worker is the guard: the worker without a task that stays until all
        tasks have ended.
        """
        own = f"{WAIT}{self._worker.name}"
        with suppress(FileExistsError):
            os.close(os.open(self._tasks / own, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        waiting = [name for name in os.listdir(self._tasks) if name.startswith(WAIT)]
        return min(waiting, default=own) == own

    def forget_earlier_runs(self) -> None:
        """Remove the files of earlier runs of this element. A guard that was killed would keep
        every other worker from being the guard.
        """
        for name in os.listdir(self._tasks):
            if name.startswith(WAIT) and is_earlier_run(name[len(WAIT) :], self._worker):
                with suppress(FileNotFoundError):
                    (self._tasks / name).unlink()

    def leave(self) -> None:
        """Wait no more."""
        with suppress(FileNotFoundError):
            (self._tasks / f"{WAIT}{self._worker.name}").unlink()
