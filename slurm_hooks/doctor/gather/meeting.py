"""Test that nodes see each other in a directory: `srun --nodes=4 malleable doctor --node`.

Each task of the step makes a file and waits for the files of the others.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path

LIMIT_S = 6.0
EVERY_S = 0.1
_NUMBERS = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")


def meet(path: Path, environ: Mapping[str, str]) -> tuple[int, int]:
    """Return the number of tasks of this step that were seen below `path`, with this task, and the
    number of all its tasks. (1, 1) outside a step. Raises OSError, also if another user made the
    meeting place.
    """
    values = [environ.get(name, "") for name in _NUMBERS]
    if not all(re.fullmatch(r"\d{1,10}", text, re.ASCII) for text in values):
        return 1, 1
    job, step, task, count = map(int, values)
    if count == 1:
        return 1, 1
    place = path / f".malleable-doctor-{job}.{step}"
    _make(place)
    (place / f"here.{task}").touch()
    seen = _wait(lambda: _count(place, "here"), count)
    (place / f"done.{task}").touch()
    if task == _first(place):
        _wait(lambda: _count(place, "done"), seen)
        shutil.rmtree(place, ignore_errors=True)
    return seen, count


def _make(place: Path) -> None:
    """Make the meeting place, unless another task of ours has made it. Other users cannot write."""
    try:
        place.mkdir(mode=0o700)
    except FileExistsError:
        status = place.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError(1, "made by another user", str(place)) from None


def _count(place: Path, word: str) -> int:
    """The number of files of a kind. A new listing asks an NFS server."""
    return sum(name.startswith(f"{word}.") for name in os.listdir(place))


def _first(place: Path) -> int:
    """The lowest task that was here, which cleans up, -1 if that is already done."""
    try:
        numbers = [name.rpartition(".")[2] for name in os.listdir(place)]
    except FileNotFoundError:
        return -1
    return min((int(number) for number in numbers if number.isdigit()), default=-1)


def _wait(look: Callable[[], int], count: int) -> int:
    """The result of `look` when it reaches `count`, or after the limit."""
    deadline = time.monotonic() + LIMIT_S
    while (seen := look()) < count and time.monotonic() < deadline:
        time.sleep(EVERY_S)
    return seen
