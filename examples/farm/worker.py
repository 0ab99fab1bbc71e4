"""Work in a pool, with only Python: do tasks of a directory until all are done.

Task N searches for the longest Collatz chain that begins in the N-th thousand of numbers. A task is
a file, tasks/N.todo. The worker that renames it to N.run.FRAGMENT does it, and touches it from time
to time. At SIGTERM the worker gives it back. A worker that is killed finds its task when Slurm
starts it again. Otherwise other workers see that it is silent. So a worker without a task stays
until all tasks have ended. `history` records which tasks each worker has begun and ended. The
worker that does the last task counts them, writes result.json and ends the pool.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Optional

THOUSAND = 1000
BEAT_S, LOST_S = 5.0, 60.0
# On parts of nodes a fragment has several workers.
ME = os.environ.get("MALLEABLE_WORKER") or os.environ["MALLEABLE_FRAGMENT"]
TASKS, HISTORY, RESULT = Path("tasks"), Path("history"), Path("result.json")


def make(count: int) -> None:
    """Make the tasks, if no other worker has: a directory that is not empty is never replaced."""
    HISTORY.mkdir(exist_ok=True)
    if TASKS.exists():
        return
    draft = Path(f"tasks.{ME}.{os.getpid()}")
    draft.mkdir()
    for number in range(count):
        (draft / f"{number}.todo").touch()
    try:
        draft.rename(TASKS)
    except OSError:
        for path in draft.iterdir():
            path.unlink()
        draft.rmdir()


def chain_length(start: int) -> int:
    """How many numbers there are from this to 1, both included."""
    length = 1
    while start > 1:
        start = start // 2 if start % 2 == 0 else 3 * start + 1
        length += 1
    return length


def solve(number: int, pace_s: float) -> tuple[int, int]:
    """The longest chain of this thousand and its beginning, after `pace_s` seconds more."""
    time.sleep(pace_s)
    first = THOUSAND * number + 1
    return max((chain_length(start), start) for start in range(first, first + THOUSAND))


def give_back(path: Path) -> None:
    """Let a task that was begun wait again."""
    with suppress(FileNotFoundError):  # somebody took its worker for lost
        path.rename(path.with_name(f"{path.name.split('.')[0]}.todo"))


def notes() -> list[list[str]]:
    """The notes of all workers."""
    return [line.split() for path in HISTORY.iterdir() for line in path.read_text().splitlines()]


def counted(total: int) -> dict[str, int]:
    """How many tasks were done, lost, repeated, and begun in vain, and the longest chain."""
    lines = notes()
    ends = Counter(words[1] for words in lines if words[0] == "end")
    begun = sum(words[0] == "begin" for words in lines)
    length, start = max((int(words[2]), int(words[3])) for words in lines if words[0] == "end")
    return {
        "tasks": total,
        "done": len(ends),
        "lost": total - len(ends),
        "repeated": sum(ends.values()) - len(ends),
        "interrupted": begun - sum(ends.values()),
        "longest_chain": length,
        "begins_at": start,
    }


def tell(total: int) -> None:
    """Print how far all workers are, and end the pool after the last task."""
    done = len(list(TASKS.glob("*.done")))
    print(f"task {done} of {total}: by worker {ME}", flush=True)
    if done == total:
        draft = RESULT.with_name(f"{RESULT.name}.{ME}")
        draft.write_text(json.dumps(counted(total)))
        draft.replace(RESULT)
        subprocess.run(["malleable", "finish"], check=False, timeout=60)


class Worker:
    """This run of a fragment."""

    def __init__(self, total: int, pace_s: float) -> None:
        self._total, self._pace_s = total, pace_s
        self._mine = f"run.{ME}"
        run = os.environ.get("SLURM_RESTART_COUNT", "0")
        self._history = open(HISTORY / f"{self._mine}.{run}", "a", buffering=1)  # noqa: SIM115
        self._task: Optional[Path] = None
        self._is_asked_to_go = False
        self._seen: dict[Path, tuple[float, float]] = {}
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        while True:
            with suppress(OSError):  # it is not ours any more, or the file server is away
                if (task := self._task) is not None:
                    os.utime(task)
            time.sleep(BEAT_S)

    def stop(self, _number: int, _frame: Optional[FrameType]) -> None:
        """Give back unfinished tasks at SIGTERM."""
        self._is_asked_to_go = True
        task, self._task = self._task, None
        if task is not None:
            give_back(task)
            sys.exit(0)

    def take_back(self) -> None:
        """Give back the tasks of the last run of this fragment. Slurm never starts two runs at a
        time."""
        for path in TASKS.glob(f"*.{self._mine}"):
            give_back(path)

    def work(self) -> None:
        """Do all tasks that no other worker takes, until all are done."""
        while not self._is_asked_to_go:
            if waiting := list(TASKS.glob("*.todo")):
                self._claim(random.choice(waiting))
            elif running := list(TASKS.glob("*.run.*")):
                self._take_over_lost(running)
                time.sleep(1)
            else:
                if not RESULT.exists():  # who did the last one was killed before it was counted
                    tell(self._total)
                return

    def _take_over_lost(self, running: list[Path]) -> None:
        """Take tasks whose worker has been silent for as long as this worker has watched."""
        for path in running:
            with suppress(FileNotFoundError):
                touched = path.stat().st_mtime
                before, since = self._seen.get(path, (0.0, 0.0))
                if before != touched:
                    self._seen[path] = (touched, time.monotonic())
                elif time.monotonic() - since > LOST_S:
                    give_back(path)

    def _claim(self, path: Path) -> None:
        name = path.name.split(".")[0]
        mine = path.with_name(f"{name}.{self._mine}")
        try:
            path.rename(mine)
        except FileNotFoundError:
            return
        if self._is_asked_to_go:
            give_back(mine)
            return
        self._history.write(f"begin {name}\n")
        self._task = mine
        length, start = solve(int(name), self._pace_s)
        self._task = None  # from here on it is done, even if we must leave
        self._history.write(f"end {name} {length} {start}\n")
        with suppress(FileNotFoundError):  # somebody took this worker for lost
            mine.rename(path.with_name(f"{name}.done"))
        tell(self._total)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--pace", type=float, default=0.0, help="seconds added to each task")
    options = parser.parse_args()
    make(options.tasks)
    worker = Worker(options.tasks, options.pace)
    signal.signal(signal.SIGTERM, worker.stop)
    worker.take_back()
    worker.work()


if __name__ == "__main__":
    main()
