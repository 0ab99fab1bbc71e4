"""Pools on a real Slurm: workers without an agent come and go, wish, find no work, fail, finish."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from promises.bench import Bench, has, occupied
from slurm_hooks.model import FragmentState, MalleableJob
from waiting import wait_until

pytestmark = pytest.mark.slurm
RUNNING, HELD = FragmentState.RUNNING, FragmentState.HELD
USER = "nobody" if os.geteuid() == 0 else None
# A worker runs until there is a file for it, or one for all workers, and then finds no work.
WORKER = """
until [ -e {dir}/end.$SLURM_ARRAY_TASK_ID ] || [ -e {dir}/end.all ]; do sleep 0.2; done
"""


@pytest.fixture
def ends(bench: Bench, tmp_path: Path) -> Path:
    """The directory in which a test says whose work is done. The job's user can read it."""
    directory = bench.box.work / tmp_path.name
    directory.mkdir()
    directory.chmod(0o755)
    return directory


def submit(bench: Bench, directory: Path, most: int = 4) -> int:
    return bench.submit(WORKER.format(dir=directory), f"1-{most},engine=pool")


def wish(bench: Bench, job: int, index: int, nodes: int) -> None:
    """Set the wish as a user without a better tool does."""
    text = f"wish{{{nodes},{int(time.time())}}}"
    argv = ["scontrol", "update", f"jobid={job}_{index}", f"Comment={text}"]
    bench.box.run(argv, user=USER)


def runs_of(job: MalleableJob) -> dict[int, int]:
    return {f.id.index: f.restarts for f in job.fragments}


def test_workers_end_in_turn_and_the_last_ends_the_array(bench: Bench, ends: Path) -> None:
    job = submit(bench, ends)
    bench.tick_until(job, has(4))
    (ends / "end.2").touch()
    bench.until(job, has(1, FragmentState.DONE))
    bench.tick_until(job, lambda j: has(3)(j) and has(1, HELD)(j))
    time.sleep(4)  # longer than a fragment that was put back rests
    for _ in range(3):
        bench.tick()
    assert has(3)(bench.job(job))  # it found no work, so it is not started again
    (idle,) = (f for f in bench.job(job).fragments if f.state is HELD)
    assert (idle.id.index, idle.mark.idle is not None, idle.mark.failures) == (2, True, 0)
    assert "1 worker found no work left" in bench.malleable("explain", str(job)).stdout
    (ends / "end.all").touch()
    bench.tick_until(job, lambda j: not [f for f in j.fragments if f.state in (HELD, RUNNING)])
    said = bench.malleable("explain", str(job)).stdout
    assert "all work is done" in said
    assert not bench.tick().plan.actions


def test_a_preempted_worker_comes_back_although_another_found_no_work(
    bench: Bench, ends: Path
) -> None:
    """The ordinary job that took its node did not wait for it either."""
    job = submit(bench, ends)
    bench.tick_until(job, has(4))
    bench.tick()  # holds them in case of a requeue
    (ends / "end.0").touch()
    bench.until(job, has(1, FragmentState.DONE))
    rigid = ["sbatch", "-p", "main", "-N2", "--time=1", "--parsable", "--wrap", "sleep 5"]
    number = bench.box.run(rigid).stdout.strip()
    is_running = lambda: bench.box.run(["squeue", "-hj", number, "-o%T"]).stdout == "RUNNING\n"  # noqa: E731
    wait_until(is_running, 60)  # a lease ends later
    bench.tick_until(job, has(3))
    status = bench.job(job)
    assert {index for index, count in runs_of(status).items() if count} >= {0}
    assert status.failures == 0
    assert next(f for f in status.fragments if f.id.index == 0).state is HELD


def test_the_size_follows_the_wish(bench: Bench, ends: Path) -> None:
    job = submit(bench, ends)
    bench.tick_until(job, has(4))
    wish(bench, job, 1, 2)
    bench.tick_until(job, has(2))
    kept = {f.id.index for f in bench.job(job).fragments if f.state is RUNNING}
    assert len(kept) == 2
    for _ in range(2):
        bench.tick()
    assert has(2)(bench.job(job))
    table = bench.malleable("status").stdout
    assert "1-4, wish 2" in table
    time.sleep(1.1)  # a newer notice
    wish(bench, job, 3, 0)
    bench.tick_until(job, lambda j: not occupied(j))
    time.sleep(4)
    assert not [a for a in bench.tick().plan.actions if a.parts != ("set mark",)]
    assert "wishes for no nodes now" in bench.malleable("explain", str(job)).stdout
    wish(bench, job, 0, 3)
    bench.tick_until(job, has(3))


def test_a_pool_of_failing_workers_is_tried_with_a_single_worker_and_stopped(bench: Bench) -> None:
    job = bench.submit("exit 5", "0-4,engine=pool")
    bench.tick_until(job, lambda j: any(f.mark.stopped for f in j.fragments))
    status = bench.job(job)
    assert all(f.mark.stopped.startswith("failed-3-times:exit-5:0-on-") for f in status.fragments)
    assert sum(runs_of(status).values()) <= 4 + 2


def test_a_worker_that_reports_the_work_as_done_goes_on_and_the_others_end(
    bench: Bench, ends: Path
) -> None:
    job = submit(bench, ends)
    bench.tick_until(job, has(4))
    argv = ["scontrol", "update", f"jobid={job}_1", "Comment=finished{0}"]
    bench.box.run(argv, user=USER)
    bench.tick()
    bench.until(job, lambda j: has(1)(j) and has(3, FragmentState.CANCELLED)(j))
    (ends / "end.1").touch()
    bench.until(job, has(1, FragmentState.DONE))
    assert not bench.tick().plan.actions
    assert "a worker reported that all work is done" in bench.malleable("explain", str(job)).stdout


def test_a_preempted_worker_with_a_nonzero_exit_code_is_no_failure(bench: Bench) -> None:
    script = "trap 'exit 3' TERM; for i in {1..600}; do sleep 0.2; done"
    job = bench.submit(script, "0-4,engine=pool")
    bench.tick_until(job, has(4))
    bench.tick()
    bench.box.run(["sbatch", "-p", "main", "-N1", "--time=1", "--wrap", "sleep 3"])
    bench.until(job, lambda j: has(3)(j) and has(1, HELD)(j))
    bench.tick_until(job, has(4))
    assert bench.job(job).failures == 0
