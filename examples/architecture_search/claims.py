"""Give numbered tasks to workers that come and go, in a shared directory.

Each task gets a single result. `link()` claims a task, and fails where the name is taken, on NFS
too. `3.claim-0` is the first claim on task 3. A worker that takes the task from a lost worker makes
`3.claim-1`, and so on. A worker touches its claim as long as it lives. `link()` makes `3.result`
too, so the first result stays. This file does not depend on the tasks.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional


@dataclass(frozen=True)
class Worker:
    """A run of a fragment: `name` stays when the fragment comes back, `run` does not."""

    name: str
    run: str


@dataclass(frozen=True)
class Claim:
    """The `attempt`-th claim on a task: its worker, its plan, and when it was touched (seconds of
    the file system's clock)."""

    task: int
    attempt: int
    worker: Worker
    plan: Any
    touched: float


def this_worker(env: Mapping[str, str] = os.environ) -> Worker:
    """The worker as Slurm names it. Outside of Slurm host and process name it."""
    if "MALLEABLE_JOB_ID" not in env:
        return Worker(f"{socket.gethostname()}-{os.getpid()}", "0")
    name = f"{env['MALLEABLE_JOB_ID']}-{env.get('MALLEABLE_FRAGMENT', '0')}"
    return Worker(name, env.get("SLURM_RESTART_COUNT", "0"))


def is_lost(claim: Claim, me: Worker, now: float, silence_s: float) -> bool:
    """Tell whether an earlier run of `me` made it, or the worker is silent for too long."""
    if claim.worker == me:
        return False
    return claim.worker.name == me.name or now - claim.touched > silence_s


@dataclass(frozen=True)
class Tasks:
    """`total` tasks in the directory `place`, as the worker `me` sees them."""

    place: Path
    total: int
    me: Worker
    silence_s: float

    def take(self, plan: Callable[[int], Any]) -> Optional[Claim]:
        """Return a task of a lost worker with its old plan, else a new task with a plan by `plan`.

        If there is neither, it returns `None`.
        """
        claims, now = self.claims(), self._now()
        for task in self.open():
            held = claims.get(task)
            if held and is_lost(held, self.me, now, self.silence_s):
                claimed = self._claim(task, held.attempt + 1, held.plan)
            elif not held:
                claimed = self._claim(task, 0, plan(task))
            else:
                continue
            if claimed:
                return claimed
        return None

    def open(self) -> list[int]:
        """The tasks without a result."""
        return [n for n in range(self.total) if not self._result(n).exists()]

    def claims(self) -> dict[int, Claim]:
        """The newest claim on each task that has a claim and no result."""
        newest: dict[int, Claim] = {}
        for path in self.place.glob("*.claim-*"):
            task, attempt = int(path.name.partition(".")[0]), int(path.name.rpartition("-")[2])
            if task not in newest or newest[task].attempt < attempt:
                with suppress(OSError):
                    newest[task] = self._read(task, attempt)
        return newest

    def results(self) -> list[dict[str, Any]]:
        """The results, the oldest first."""
        paths = [path for n in range(self.total) if (path := self._result(n)).exists()]
        return [json.loads(path.read_text()) for path in sorted(paths, key=_time_of)]

    def put_down(self, claim: Claim, result: Mapping[str, Any]) -> bool:
        """Record the task's result. Return False if it has a result already."""
        return self._make(self._result(claim.task), dict(result))

    def give_back(self, claim: Claim) -> None:
        """Let another worker take the task."""
        os.utime(self._file(claim), (0, 0))

    @contextmanager
    def held(self, claim: Claim) -> Iterator[None]:
        """Touch the claim until the end of the block."""
        over = threading.Event()
        thread = threading.Thread(target=self._touch, args=(claim, over), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _touch(self, claim: Claim, over: threading.Event) -> None:
        while not over.wait(self.silence_s / 10):
            with suppress(OSError):  # a file system in trouble: the next one
                self._file(claim).touch()

    def _claim(self, task: int, attempt: int, plan: Any) -> Optional[Claim]:
        content = {"name": self.me.name, "run": self.me.run, "plan": plan}
        if not self._make(self.place / f"{task}.claim-{attempt}", content):
            return None
        return Claim(task, attempt, self.me, plan, 0.0)

    def _read(self, task: int, attempt: int) -> Claim:
        path = self.place / f"{task}.claim-{attempt}"
        content = json.loads(path.read_text())
        worker = Worker(content["name"], content["run"])
        return Claim(task, attempt, worker, content["plan"], _time_of(path))

    def _make(self, path: Path, content: object) -> bool:
        """Make the file as a whole, unless it is there."""
        draft = self.place / f"draft-{self.me.name}-{self.me.run}"
        draft.write_text(json.dumps(content))
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        finally:
            draft.unlink()
        return True

    def _now(self) -> float:
        """The file system's clock, because the clocks of hosts may differ."""
        file = self.place / f"clock-{self.me.name}-{self.me.run}"
        file.touch()
        now = _time_of(file)
        file.unlink()
        return now

    def _file(self, claim: Claim) -> Path:
        return self.place / f"{claim.task}.claim-{claim.attempt}"

    def _result(self, task: int) -> Path:
        return self.place / f"{task}.result"


def _time_of(path: Path) -> float:
    return path.stat().st_mtime
