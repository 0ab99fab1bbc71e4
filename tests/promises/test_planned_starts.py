"""On a real Slurm: no job waits for a fragment that stays past a planned start.

A rigid job in the lane cannot preempt, so it waits for a lease at most.
"""

from __future__ import annotations

import time

import pytest

from promises.bench import Bench, has, occupied
from slurm_hooks.model import GRACE_CHECK, Verb
from waiting import wait_until

pytestmark = pytest.mark.slurm
SLEEP = "exec sleep 600"  # ends at SIGTERM, as agents do
ENOUGH = 8  # looks
LATE_S = 2.0  # whole seconds, and a busy host; KillWait would be five


def rigid(bench: Bench, nodes: str, script: str, *more: str) -> int:
    argv = ["sbatch", "--parsable", "-p", "main", f"-N{nodes}", "--time=1", *more]
    return int(bench.box.run([*argv, "--wrap", script]).stdout)


def tell_cheap_interruptions(bench: Bench, job: int) -> None:
    """Report, as its agents would, that an interruption costs a second's work."""
    for fragment in bench.job(job).fragments:
        name = f"jobid={fragment.id}"
        bench.box.run(
            ["scontrol", "update", name, f"comment=trained{{{fragment.restarts}}};h{{1}}"]
        )


def is_running(bench: Bench, job: int) -> bool:
    said = bench.box.run(["squeue", "-h", f"--jobs={job}", "--states=R"], check=False).stdout
    return bool(said)


def epoch(bench: Bench, job: int, field: str) -> float:
    """A moment of a job, in slurmctld's whole seconds."""
    said = bench.box.run(["squeue", "-h", "--states=all", f"--jobs={job}", f"-O{field}"]).stdout
    return time.mktime(time.strptime(said.strip(), "%Y-%m-%dT%H:%M:%S"))


def has_started(bench: Bench, job: int) -> bool:
    said = bench.box.run(["squeue", "-h", "--states=all", f"--jobs={job}", "-o%T"]).stdout
    return said.strip() in ("RUNNING", "COMPLETED", "COMPLETING")


def start_after(bench: Bench, first: int, second: int) -> float:
    """Seconds from the end of the first job to the start of the second."""
    wait_until(lambda: has_started(bench, second), every_s=0.2)
    return epoch(bench, second, "StartTime") - epoch(bench, first, "EndTime")


def empty_start(bench: Bench) -> float:
    """Measure the same start on nodes without fragments."""
    first = rigid(bench, "2", "sleep 4")
    second = rigid(bench, "4", "sleep 1")
    return start_after(bench, first, second)


def test_a_job_that_was_planned_starts_as_on_empty_nodes(bench: Bench) -> None:
    """Two of four nodes are busy, and a job that needs all four is planned for their end.

    Our fragments on the other two nodes stay until Slurm preempts them. No tick makes them leave.
    """
    empty_s = empty_start(bench)
    end = bench.box.work / "end"
    early, late = f"until [ -e {end} ]; do sleep 0.2; done", "sleep 59"  # about as its limit says
    for script in (early, late):
        first = rigid(bench, "2", script)
        wait_until(lambda first=first: is_running(bench, first), every_s=0.2)
        job = bench.submit(SLEEP, "1-2")
        bench.tick_until(job, has(2))
        tell_cheap_interruptions(bench, job)
        mine = occupied(bench.job(job))
        second = rigid(bench, "4", "sleep 1")
        wait_until(lambda: bool(bench.observe().planned))
        (planned,) = bench.observe().planned
        assert mine <= planned.nodes
        looks, actions, ends = [], [], []
        while is_running(bench, first):
            looks.append(occupied(bench.job(job)))
            actions += bench.tick().plan.actions
            ends += [f.end for f in bench.job(job).active if f.end]
            if len(looks) == ENOUGH:
                end.touch()
            time.sleep(1)
        before = looks[:-1]  # at the last one, the first job may have just ended
        assert before
        assert all(nodes == mine for nodes in before)
        late_s = start_after(bench, first, second) - empty_s
        print(f"{script}: {late_s:+g} s against empty nodes, which take {empty_s:g} s")
        assert late_s <= LATE_S
        assert not [a for a in actions if a.verb is Verb.NOTICE]
        assert max(ends) > planned.start  # it was never told to be gone by then
        bench.cancel_all()


def test_a_rigid_job_in_the_lane_waits_for_one_lease_at_most(bench: Bench) -> None:
    """It cannot preempt. So fragments leave before its planned start, though a hit costs little."""
    text = bench.box.settings.read_text()
    bench.box.settings.write_text(text.replace("length_s = 120", "length_s = 60"))
    job = bench.submit(SLEEP, "1-4")
    bench.tick_until(job, has(4))
    tell_cheap_interruptions(bench, job)
    second = rigid(bench, "2", "sleep 1", "--partition=malleable")
    wait_until(lambda: bool(bench.observe().planned))
    kill_s = bench.observe().slurm.kill_wait.total_seconds()
    most_s = bench.settings.lease.length_s + GRACE_CHECK.total_seconds() + kill_s

    def has_begun() -> bool:
        bench.tick()
        return has_started(bench, second)

    began = time.monotonic()
    wait_until(has_begun, most_s, lambda: bench.observe().planned, every_s=1)
    print(f"waited {time.monotonic() - began:.0f} s of {most_s:g} s")
