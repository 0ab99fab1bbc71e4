"""The tick is killed at every write, has no room on disk or a wrong clock, is doubled or missed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from pathlib import Path

import pytest

from faults.course import SLEEP, Course, NewCourse, Row
from promises.bench import Bench, CutPort, Killed, has
from slurm_hooks.model import FragmentState
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.tick.reconcile import tick
from waiting import wait_until

pytestmark = pytest.mark.slurm
long = pytest.mark.faults
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
NewSandbox = Callable[..., Sandbox]
FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))


# -- killed at every write: each of these leads up to a tick that writes


def growing(course: Course) -> None:
    course.job, course.count = course.bench.submit(SLEEP, "1-2"), 2


def securing(course: Course) -> None:
    """The first tick after a start holds running fragments and notes the job's priority."""
    growing(course)
    course.tick()
    course.bench.until(course.job, has(2))


def renewing(course: Course) -> None:
    course.start(2)
    course.end_leases(in_s=40)


def noticing(course: Course) -> None:
    course.start(2)
    node = min(course.bench.job(course.job).nodes)
    course.bench.box.run(["scontrol", "update", f"nodename={node}", "state=drain", "reason=x"])


def putting_back(course: Course) -> None:
    """The time of the notice is over, because `sleep` has ignored it."""
    noticing(course)
    course.tick()
    time.sleep(course.bench.notice_s + 1)


def burying(course: Course) -> None:
    """A fragment's script was killed."""
    pids = course.bench.box.work
    course.start(2, "echo $$ >pid.$SLURM_ARRAY_JOB_ID.$SLURM_ARRAY_TASK_ID; exec sleep 600")
    pid_file = pids / f"pid.{course.job}.1"
    wait_until(lambda: pid_file.exists() and pid_file.read_text().strip())
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
    course.bench.until(course.job, has(1, FragmentState.FAILED))


def closing(course: Course) -> None:
    """A fragment has ended with 0, which is the end of a job without agents."""
    script = "[ $SLURM_ARRAY_TASK_ID = 0 ] && exec sleep 4; exec sleep 600"
    course.start(3, script, options=["--exclude=n3,n4"], is_strict=False)
    course.bench.until(course.job, has(2))
    course.tick()
    course.bench.until(course.job, has(1, FragmentState.DONE))


CASES: Mapping[str, tuple[Callable[[Course], None], int]] = {
    "grow": (growing, 2),
    "hold and mark": (securing, 2),
    "renew": (renewing, 2),
    "notice": (noticing, 2),
    "put back after notice": (putting_back, 2),
    "put back the dead": (burying, 2),
    "cancel": (closing, 1),
}


@long
@pytest.mark.parametrize("kind", CASES)
def test_killed_at_every_write(bench: Bench, new_course: NewCourse, kind: str) -> None:
    prepare, nodes = CASES[kind]
    rows: list[Row] = []
    writes, is_killed = 0, True
    while is_killed:
        course = Course(bench, f"tick killed at each write: {kind}", rows)
        is_killed = killed_after(course, prepare, writes)
        drained = {n.name: "drain" for n in course.look().nodes if n.reason == "x"}
        course.settle(nodes, drained, most_ticks=9, is_over=kind == "cancel")
        for name in drained:
            bench.box.run(["scontrol", "update", f"nodename={name}", "state=resume"])
        bench.cancel_all()
        writes += 1
    assert writes > 1, "nothing was written"
    whole = reduce(Row.joined, rows)
    new_course(bench, "").rows.append(replace(whole, fault=f"{whole.fault} ({writes - 1} kills)"))


def killed_after(course: Course, prepare: Callable[[Course], None], writes: int) -> bool:
    """True if the tick would have written more than so many lines."""
    prepare(course)
    course.began = time.monotonic()
    try:
        tick(CutPort(course.bench.live, writes), course.bench.settings)
    except Killed:
        return True
    return False


def test_a_growing_tick_killed_after_its_first_write(course: Course) -> None:
    assert killed_after(course, growing, 1)
    course.settle(2)


# -- no room on disk


@needs_root
@long
@pytest.mark.parametrize("is_first", [True, False], ids=["from the first tick on", "later"])
def test_no_room_for_lock_and_books(course: Course, is_first: bool) -> None:
    """A full file system holds the lock, the ledger, and the learned curves."""
    bench = course.bench
    place = bench.box.dir / "full"
    place.mkdir()
    place.chmod(0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "x", place], check=True)
    before = bench.box.settings.read_text()
    try:
        run = str(bench.box.record.layout.run)
        bench.box.settings.write_text(before.replace(f'"{run}', f'"{place}'))
        course.job, course.count = bench.submit(SLEEP, "1-3"), 3
        course.began = time.monotonic()
        if not is_first:
            assert bench.malleable("reconcile").returncode == 0
        fill(place / "others")
        for _ in range(4):
            done = bench.malleable("reconcile")
            assert done.returncode == 0, done.stderr
            time.sleep(1.5)
        assert "Traceback" not in done.stderr
        course.settle(3)
    finally:
        bench.box.settings.write_text(before)
        subprocess.run(["umount", "-l", place], check=True)
        place.rmdir()


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass


# -- the clock


@long
@pytest.mark.skipif(not FAKETIME, reason="apt-get install libfaketime")
@pytest.mark.parametrize("step", ["+3600", "-3600"])
def test_the_clock_of_the_tick_s_host_stepped(course: Course, step: str) -> None:
    course.start(2)
    names = {"LD_PRELOAD": str(FAKETIME[0]), "FAKETIME": step}
    for environment in ({}, names, names, {}):
        done = subprocess.run(
            [sys.executable, "-m", "slurm_hooks.cli", "reconcile"],
            env={**os.environ, **course.bench.box.environment, **environment},
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert not done.stderr
        course.look()
    course.settle(2)


# -- two reconcilers, and no reconciler


@long
def test_two_on_two_hosts(course: Course, tmp_path: Path) -> None:
    """Each reconciler has its own lock. The first has read before the second job arrived.

    It writes after the other has given the same nodes to that job.
    """
    bench = course.bench
    here = bench.settings
    there = replace(
        here, tick=replace(here.tick, lock=str(tmp_path / "lock"), state_dir=str(tmp_path))
    )
    tmp_path.chmod(0o700)
    course.job, course.count = bench.submit(SLEEP, "1-2"), 2
    course.began = time.monotonic()
    looked, go_on = threading.Event(), threading.Event()

    def pause(_: str) -> None:
        looked.set()
        go_on.wait(20)

    first = threading.Thread(target=tick, args=(bench.live, there, False, pause))
    first.start()
    assert looked.wait(20)
    other = bench.submit(SLEEP, "1-2")
    tick(bench.live, here)
    go_on.set()
    first.join()
    for settings in (here, there, here, there):
        tick(bench.live, settings)
        time.sleep(0.5)
    course.settle(2, limit_s=60)
    bench.tick_until(other, has(2))


@pytest.fixture
def forgetful_bench(fresh_sandbox: NewSandbox) -> Bench:
    """A bench whose slurmctld forgets ended jobs as soon as it can."""
    return Bench(fresh_sandbox(nodes=4, extra_conf="MinJobAge=5")).patient()


@long
def test_no_tick_until_the_leases_have_ended(course: Course) -> None:
    """As after ten minutes without a tick: all fragments have ended by then."""
    course.start(3)
    course.end_leases(in_s=5)
    wait_until(lambda: course.running() == 0, 60, every_s=1)
    course.settle(3)


# As an agent does shortly before its lease ends, without a renewal.
LEAVE = (
    "sleep 10; me=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID; scontrol uhold $me; "
    "scontrol requeue $me; exec sleep 600"
)


@long
def test_no_tick_for_longer_than_slurmctld_remembers(
    forgetful_bench: Bench, new_course: NewCourse
) -> None:
    """Fragments put themselves back before their leases end, and still exist."""
    course = new_course(forgetful_bench, "no tick for longer than MinJobAge, with agents")
    course.start(3, LEAVE)
    rigid = ["sbatch", "--parsable", "-p", "main", "-N1", "--wrap", "true"]
    ended = forgetful_bench.box.run(rigid).stdout.strip()
    wait_until(lambda: course.running() == 0, 60, every_s=1)
    wait_until(lambda: is_forgotten(course, ended), 150, every_s=2)
    course.settle(3)


def is_forgotten(course: Course, job: str) -> bool:
    said = course.bench.box.run(["squeue", "-h", "-t", "all", "-o", "%i"]).stdout
    return job not in said.split()


@long
@pytest.mark.xfail(
    strict=True, reason="what ended is forgotten after MinJobAge: docs/admins/limits.md"
)
def test_no_tick_for_longer_than_slurmctld_remembers_without_agents(
    forgetful_bench: Bench, new_course: NewCourse
) -> None:
    course = new_course(forgetful_bench, "no tick for longer than MinJobAge, without agents")
    course.start(3)
    course.end_leases(in_s=5)
    wait_until(lambda: not course.look().elements, 150, every_s=2)
    course.settle(0)
