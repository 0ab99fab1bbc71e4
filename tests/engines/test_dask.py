"""Dask workers as a pool: the computation is complete and right after any loss of workers."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engines.pools import beside, command, kill, preempt, submit, taken, tick_until
from promises.bench import Bench, occupied
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.engines, pytest.mark.filterwarnings("default")]
distributed = pytest.importorskip("distributed")


@pytest.fixture
def bench(sandbox: Sandbox) -> Iterator[Bench]:
    bench = Bench(sandbox, notice_s=10)
    yield bench
    bench.cancel_all()


def squares(notes: Path, seconds: float) -> Callable[[int], int]:
    """Make a task that writes a line into the notes at its end. Workers do not have this module."""

    def square(number: int) -> int:
        time.sleep(seconds)
        with notes.open("a") as file:
            file.write(f"{number}\n")
        return number * number

    return square


def counted(notes: Path) -> Counter[str]:
    return Counter(notes.read_text().split()) if notes.exists() else Counter()


@contextmanager
def scheduler(bench: Bench) -> Iterator[str]:
    """Dask's scheduler beside the cluster; its file."""
    where = str(bench.box.work / "scheduler.json")
    words = ("dask", "scheduler", "--scheduler-file", where, "--host", "127.0.0.1", "--port", "0")
    failures = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "20"}
    with beside(bench, *words, "--no-dashboard", **failures):
        wait_until(Path(where).exists)
        yield where


def test_results_outlive_the_workers(bench: Bench) -> None:
    notes = bench.box.work / "notes"
    with scheduler(bench) as where:
        job = submit(bench, "dask/workers.sh", "0-4,engine=pool", SCHEDULER_FILE=where)
        with distributed.Client(scheduler_file=where, set_as_default=False) as client:

            def workers() -> int:
                return len(client.scheduler_info(n_workers=-1)["workers"])

            tick_until(bench, lambda: workers() == 4)  # it grows
            first = client.map(squares(notes, 0.2), range(40), pure=False)
            wait_until(lambda: all(f.done() for f in first))
            with taken(bench, job):  # a planned leave: results move, and no task is repeated
                wait_until(lambda: workers() == 3)
                assert sum(client.gather(first)) == sum(n * n for n in range(40))
                assert set(counted(notes).values()) == {1}

            second = client.map(squares(notes, 0.5), range(40, 160), pure=False)
            kill("bin/dask worker", {"SLURM_ARRAY_JOB_ID": str(job)})
            tick_until(bench, lambda: sum(f.done() for f in second) > 30)
            preempt(bench, 4, 4)  # all nodes go at once
            tick_until(bench, lambda: all(f.done() for f in first + second))
            assert sum(client.gather(first + second)) == sum(n * n for n in range(160))
    assert set(counted(notes)) == {str(n) for n in range(160)}
    print(f"done again: {sum(counted(notes).values()) - 160}")


def test_the_pool_has_as_many_workers_as_there_is_work_for(bench: Bench, tmp_path: Path) -> None:
    """wish.py beside the scheduler: no worker without work, and workers again with new work."""
    env = {**bench.box.environment, "PATH": f"{command(tmp_path / 'bin')}:{os.environ['PATH']}"}
    with scheduler(bench) as where:
        job = submit(bench, "dask/workers.sh", "0-4,engine=pool", SCHEDULER_FILE=where)
        tick_until(bench, lambda: len(occupied(bench.job(job))) == 4)
        with (
            distributed.Client(scheduler_file=where, set_as_default=False) as client,
            beside(bench, "python", "wish.py", str(job), where, "0.5", **env),
        ):
            tick_until(bench, lambda: not occupied(bench.job(job)))
            work = client.map(squares(bench.box.work / "notes", 1.0), range(60), pure=False)
            tick_until(bench, lambda: len(occupied(bench.job(job))) >= 2)
            tick_until(bench, lambda: all(f.done() for f in work))
            assert sum(client.gather(work)) == sum(n * n for n in range(60))
            tick_until(bench, lambda: len(occupied(bench.job(job))) == 1)  # it holds the results
            for future in work:
                future.release()
            tick_until(bench, lambda: not occupied(bench.job(job)))
