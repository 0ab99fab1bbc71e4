"""A worker of the pool that `benchmarks/rescale.py` disturbs: endless tasks of 30 ms.

A task is a number. The worker that makes claims/N has it, notes this in run/N.FRAGMENT, and notes
its end. At SIGTERM it moves the task to back/N, for the next worker. A worker without time for that
continues the task from run/ at its next start. Locks show how many workers run, because the kernel
ends them with their process. All fragments are on the same host here. Standard library only.
"""

import fcntl
import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from rescale_notes import STEP_S, is_over


class Worker:
    """A worker of a fragment, in the directory of the job."""

    def __init__(self, work: Path) -> None:
        self._name = os.environ["MALLEABLE_FRAGMENT"]
        places = [work / name for name in ("claims", "run", "back", "alive")]
        for place in places:
            place.mkdir(exist_ok=True)
        self._claims, self._run, self._back, self._alive = places
        self._next = len(os.listdir(self._claims))
        self._is_asked_to_go = False
        signal.signal(signal.SIGTERM, self._stop)
        for left in self._run.glob(f"*.{self._name}"):
            left.rename(self._back / left.stem)
        self._lock = open(self._alive / self._name, "w")  # noqa: SIM115
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        fragment = int(self._name)
        begin = {"rank": fragment, "fragment": fragment, "restarts": 0}
        with open(work / "begins.jsonl", "a") as file:
            file.write(json.dumps(begin) + "\n")
        self._log = open(work / f"steps-{fragment}.log", "a", buffering=1)  # noqa: SIM115

    def _stop(self, _number: int, _frame: object) -> None:
        self._is_asked_to_go = True

    def work(self) -> None:
        """Do task after task until SIGTERM."""
        while not self._is_asked_to_go and not is_over():
            mine = self._claim()
            time.sleep(STEP_S)
            if self._is_asked_to_go:
                mine.rename(self._back / mine.stem)
                return
            self._log.write(f"{time.time():.3f} {mine.stem} {self._workers()}\n")
            mine.unlink()

    def _claim(self) -> Path:
        for number in os.listdir(self._back):
            mine = self._run / f"{number}.{self._name}"
            with suppress(FileNotFoundError):
                (self._back / number).rename(mine)
                return mine
        while True:
            claim = self._claims / str(self._next)
            mine = self._run / f"{self._next}.{self._name}"
            self._next += 1
            with suppress(FileExistsError):
                claim.touch(exist_ok=False)
                mine.touch()
                return mine

    def _workers(self) -> int:
        return sum(is_locked(path) for path in self._alive.iterdir())


def is_locked(path: Path) -> bool:
    """Tell whether its worker is alive."""
    with open(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


if __name__ == "__main__":
    Worker(Path(sys.argv[1])).work()
