"""A core on a real Slurm: a job starts in a hole, and keeps the nodes that its user's queue gives
it.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from promises.bench import TRAINER, WITH_TORCHRUN, Bench, occupied
from slurm_hooks.model import Fragment, FragmentState, MalleableJob
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = pytest.mark.slurm
RUNNING, HELD, PENDING = FragmentState.RUNNING, FragmentState.HELD, FragmentState.PENDING
DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "train.py"
SLEEP = "exec sleep 600"
# The first one does in its first run, on request, what an agent does when its time ends.
LEAVES = """
if [ "$SLURM_ARRAY_TASK_ID$SLURM_RESTART_COUNT" = 0 ]; then
    until [ -e leave.$SLURM_ARRAY_JOB_ID ]; do sleep 0.2; done
    scontrol uhold "$SLURM_JOB_ID" && scontrol requeue "$SLURM_JOB_ID"
fi
exec sleep 600
"""


@pytest.fixture
def bench(sandbox: Sandbox) -> Iterator[Bench]:
    bench = Bench(sandbox, notice_s=3)
    bench.share_at_once()
    yield bench
    bench.cancel_all()


def rigid(bench: Bench, nodes: int, runs_s: int, limit_min: int, name: str = "rigid") -> int:
    """An ordinary job of another user, in the partition of ordinary jobs."""
    path = bench.box.work / f"{name}{time.monotonic_ns()}.sh"
    path.write_text(f"#!/bin/bash\nexec sleep {runs_s}\n")
    path.chmod(0o755)
    options = ["-p", "main", f"-N{nodes}", f"--time={limit_min}", f"--job-name={name}"]
    return int(bench.box.run(["sbatch", "--parsable", *options, str(path)]).stdout)


def state_of(bench: Bench, job: int) -> str:
    return bench.box.run(["squeue", "-h", "--states=all", f"--jobs={job}", "-o%T"]).stdout.strip()


def started(bench: Bench, job: str) -> str:
    """The start time of the job in Slurm."""
    said = bench.box.run(["scontrol", "-o", "show", "job", job]).stdout
    return next(word for word in said.split() if word.startswith("StartTime="))


def core(job: MalleableJob) -> Fragment:
    return job.fragments[0]


def others(job: MalleableJob) -> list[Fragment]:
    return [f for f in job.fragments[1:] if f.state is RUNNING]


def is_core_alone(job: MalleableJob) -> bool:
    return core(job).state is RUNNING and not others(job)


def end_soon(bench: Bench, job: int) -> None:
    """Let the core's time end in ten seconds. Slurm has no time limit below a minute."""
    soon = f"EndTime=uts{int(time.time()) + 10}"
    bench.box.run(["scontrol", "update", f"jobid={job}_0", soon])


def rounds(bench: Bench, job: int) -> list[int]:
    path = bench.directory(job) / "rounds.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["size"] for line in lines]


@pytest.mark.torch
def test_a_training_starts_in_a_hole_and_keeps_its_core(bench: Bench) -> None:
    """Three nodes are busy, and a job of four is planned for their end. The core does not fit
    before it, so it waits. The training starts in the hole at once."""
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    shutil.copy(DIGITS, bench.box.work / "train.py")
    first = rigid(bench, 3, 600, 4)
    wait_until(lambda: state_of(bench, first) == "RUNNING")
    second = rigid(bench, 4, 8, 4)
    wait_until(lambda: bool(bench.observe().planned))
    script = f"{WITH_TORCHRUN}\nexec torchrun train.py --steps=100000 --pace=0.05"
    options = ["-p", "main", "--time=30"]
    job = bench.submit(script, "1-4,core=1", TRAINER, options)

    bench.tick_until(job, lambda j: len(others(j)) == 1 and core(j).state is PENDING)
    wait_until(lambda: rounds(bench, job) == [1])
    explanation = bench.malleable("explain", str(job)).stdout
    assert "its core waits in the ordinary queue (" in explanation, explanation
    assert state_of(bench, second) == "PENDING"

    bench.box.run(["scancel", str(first)])
    # the planned job takes all four nodes; after it the core has its turn
    bench.tick_until(job, lambda j: core(j).state is RUNNING, 120)
    assert state_of(bench, second) == "COMPLETED"
    bench.tick_until(job, lambda j: len(others(j)) == 3)
    wait_until(lambda: 4 in rounds(bench, job))

    # another job takes all other nodes at once, and the training goes on with the core alone
    third = rigid(bench, 3, 8, 1)
    bench.until(job, is_core_alone)
    wait_until(lambda: state_of(bench, third) != "PENDING")
    wait_until(lambda: rounds(bench, job)[-1] == 1)
    assert core(bench.job(job)).restarts == 0
    bench.tick_until(job, lambda j: len(others(j)) == 3)
    wait_until(lambda: rounds(bench, job)[-1] == 4)


@pytest.mark.parametrize("script", [SLEEP, LEAVES])
def test_a_core_s_time_ends_and_the_job_goes_on_in_holes(bench: Bench, script: str) -> None:
    """Slurm ends the core, or its agent leaves first."""
    options = ["-p", "main", "--time=1"]
    job = bench.submit(script, "1-3,core=1,engine=pool", options=options)
    bench.tick_until(job, lambda j: core(j).lane == "main" and len(others(j)) == 2)
    if script == SLEEP:
        end_soon(bench, job)
    else:
        begun = bench.observe().now
        half = timedelta(seconds=31)  # a core that leaves earlier keeps its place in the queue
        wait_until(lambda: bench.observe().now - begun > half)
        (bench.box.work / f"leave.{job}").touch()
    bench.tick_until(job, lambda j: core(j).mark.is_spent, 150)
    bench.tick_until(job, lambda j: core(j).lane == "malleable" and core(j).state is RUNNING)
    assert core(bench.job(job)).restarts == 1  # its time is not given twice
    assert len(occupied(bench.job(job))) == 3


def test_a_job_ends_with_its_core(bench: Bench) -> None:
    options = ["-p", "main", "--time=1"]
    job = bench.submit(SLEEP, "1-3,core=1,core_end=finish,engine=pool", options=options)
    bench.tick_until(job, lambda j: core(j).state is RUNNING and len(others(j)) == 2)
    end_soon(bench, job)
    cancelled = FragmentState.CANCELLED
    bench.tick_until(job, lambda j: all(f.state is cancelled for f in j.fragments), 150)


@pytest.mark.torch
def test_a_training_ends_with_its_core(bench: Bench) -> None:
    """Its agent leaves a notice before the end of the core's time, and puts the core back held."""
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    shutil.copy(DIGITS, bench.box.work / "train.py")
    script = f"{WITH_TORCHRUN}\nexec torchrun train.py --steps=100000 --pace=0.05"
    options = ["-p", "main", "--time=1"]
    job = bench.submit(script, "1-2,core=1,core_end=finish", TRAINER, options)
    bench.tick_until(job, lambda j: core(j).state is RUNNING)
    cancelled = FragmentState.CANCELLED
    bench.tick_until(job, lambda j: all(f.state is cancelled for f in j.fragments), 150)
    assert all(f.restarts < 3 for f in bench.job(job).fragments)


def test_a_core_has_the_place_in_the_queue_of_an_ordinary_job(bench: Bench) -> None:
    """Nodes come free in turn, and jobs start in the order of their submission.

    The job in the middle of the queue may be a core or an ordinary job.
    """
    for is_core in (False, True):
        blockers = [rigid(bench, 1, 8 + 3 * i, 5) for i in range(4)]
        wait_until(lambda ids=blockers: all(state_of(bench, i) == "RUNNING" for i in ids))
        before = rigid(bench, 1, 60, 5, "before")
        if is_core:
            request = "1-3,core=1,engine=pool"
            middle = f"{bench.submit(SLEEP, request, options=['-p', 'main', '--time=5'])}_0"
            bench.tick()  # its submission calls for one
        else:
            middle = str(rigid(bench, 1, 60, 5, "middle"))
        after = rigid(bench, 1, 60, 5, "after")

        def ticked(job: int = after) -> bool:
            bench.tick()
            released = bench.box.run(["squeue", "-h", "-r", "-p", "main", "-o", "%i %p"]).stdout
            ours = [row for row in map(str.split, released.splitlines()) if "_" in row[0]]
            assert sum(float(priority) > 0 for _, priority in ours) <= 1, released
            return state_of(bench, job) == "RUNNING"

        wait_until(ticked, 60)
        moments = [started(bench, str(job)) for job in (before, middle, after)]
        assert moments == sorted(moments), moments
        assert len(set(moments)) == 3, moments
        bench.cancel_all()
