"""The task farm of the examples: workers start, leave and die, and each task is done once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from programs import write_program

SCRIPT = Path(__file__).parents[2] / "examples" / "farm" / "worker.py"
TASKS = 24


class Farm:
    """Starts its workers as `malleable run` would, in its own directory."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.workers: list[subprocess.Popen[bytes]] = []
        command = work / "bin" / "malleable"
        command.parent.mkdir()
        write_program(command, 'echo "$@" >>told')

    def start(self, fragment: int, run: int = 0) -> subprocess.Popen[bytes]:
        path = f"{self.work / 'bin'}:{os.environ['PATH']}"
        variables = {"MALLEABLE_FRAGMENT": str(fragment), "SLURM_RESTART_COUNT": str(run)}
        words = [sys.executable, str(SCRIPT), f"--tasks={TASKS}", "--pace=0.1"]
        started = subprocess.Popen(
            words, cwd=self.work, env={**os.environ, **variables, "PATH": path}
        )
        self.workers.append(started)
        return started

    def wait_for(self, pattern: str) -> None:
        """Wait until the file exists."""
        while not list(self.work.glob(pattern)):
            time.sleep(0.02)

    @property
    def result(self) -> dict[str, Any]:
        return dict(json.loads((self.work / "result.json").read_text()))


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    pool = Farm(tmp_path)
    yield pool
    for worker in pool.workers:
        worker.kill()
        worker.wait()


def test_a_task_of_a_leaving_worker_is_done_by_another(farm: Farm) -> None:
    leaver, other = farm.start(0), farm.start(1)
    farm.wait_for("tasks/*.run.0")
    leaver.send_signal(signal.SIGTERM)
    assert leaver.wait(10) == 0
    assert not list(farm.work.glob("tasks/*.run.0"))
    assert other.wait(30) == 0
    result = farm.result
    assert (result["done"], result["lost"], result["repeated"]) == (TASKS, 0, 0)
    assert result["interrupted"] <= 1
    assert (farm.work / "told").read_text() == "finish\n"
    # A number below 24,000 with the longest chain.
    assert (result["longest_chain"], result["begins_at"]) == (282, 23529)


def test_a_killed_worker_gets_its_task_back_when_it_starts_again(farm: Farm) -> None:
    killed, other = farm.start(0), farm.start(1)
    farm.wait_for("tasks/*.run.0")
    time.sleep(0.03)  # a task takes longer, its first line in `history` does not
    killed.kill()
    killed.wait()
    farm.wait_for("tasks/*.run.1")
    left = [path.name for path in farm.work.glob("tasks/*.run.0")]
    again = farm.start(0, run=1)
    assert (again.wait(30), other.wait(30)) == (0, 0)
    result = farm.result
    assert (result["done"], result["lost"]) == (TASKS, 0)
    assert result["repeated"] == 0
    assert result["interrupted"] == len(left)


def test_a_worker_without_a_task_waits_while_others_work(farm: Farm) -> None:
    """A worker that ends with 0 reports that no work is left."""
    first = farm.start(0)
    farm.wait_for("tasks/*.run.0")
    first.send_signal(signal.SIGSTOP)
    other = farm.start(1)
    deadline = time.monotonic() + 30
    while len(list(farm.work.glob("tasks/*.done"))) < TASKS - 1:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)
    assert other.poll() is None
    first.send_signal(signal.SIGCONT)
    assert (first.wait(30), other.wait(30)) == (0, 0)
    assert farm.result["done"] == TASKS
