"""The promises of the design on a real Slurm: killed, doubled, restarted, failing, cancelled."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest

from promises.bench import Bench, CutPort, Killed, has, occupied
from slurm_hooks.errors import RetryLater
from slurm_hooks.model import FragmentState, Verb
from slurm_hooks.tick.reconcile import tick
from waiting import wait_until

pytestmark = pytest.mark.slurm
RUNNING, HELD = FragmentState.RUNNING, FragmentState.HELD
SLEEP = "exec sleep 600"


def test_a_job_grows_into_free_nodes_with_leases(bench: Bench) -> None:
    job = bench.submit(SLEEP, "1-3")
    assert bench.states(job) == [HELD] * 3
    bench.tick()
    bench.until(job, has(3))
    fragments = bench.job(job).fragments
    assert len({n for f in fragments for n in f.nodes}) == 3
    assert all(f.limit == timedelta(minutes=2) for f in fragments)
    assert {p for a in bench.tick().plan.actions for p in a.parts} <= {"hold", "set mark"}
    assert not bench.tick().plan.actions


@pytest.mark.parametrize("writes", range(3))  # one line for the nodes of all, one that releases
def test_a_growing_tick_killed_between_any_two_writes_is_made_good(
    bench: Bench, writes: int
) -> None:
    job = bench.submit(SLEEP, "1-3")
    bench.box.run(["squeue"])
    cut = CutPort(bench.live, writes)
    if writes < 2:
        with pytest.raises(Killed):
            tick(cut, bench.settings)
    else:
        tick(cut, bench.settings)
    bench.tick_until(job, has(3))
    nodes = [n for f in bench.job(job).fragments for n in f.nodes]
    assert len(nodes) == len(set(nodes)) == 3


@pytest.mark.parametrize("writes", range(5))
def test_a_shrinking_tick_killed_between_any_two_writes_is_made_good(
    bench: Bench, writes: int
) -> None:
    job = bench.submit(SLEEP, "1-2")
    bench.tick()
    bench.until(job, has(2))
    lost = sorted(bench.job(job).nodes)
    for name in lost:
        bench.box.run(["scontrol", "update", f"nodename={name}", "state=drain", "reason=test"])
    try:
        cut = CutPort(bench.live, writes)
        with pytest.raises(Killed) if writes < 4 else contextlib.nullcontext():
            tick(cut, bench.settings)  # one line that holds, two marks, one signal
        # at the end both run on the two other nodes
        bench.tick_until(job, lambda j: has(2)(j) and not occupied(j) & set(lost))
    finally:
        for name in lost:
            bench.box.run(["scontrol", "update", f"nodename={name}", "state=resume"])


def test_a_reconciler_killed_by_signal_leaves_no_lock(bench: Bench) -> None:
    job = bench.submit(SLEEP, "1-3")
    code = (
        "import os, signal, sys; from slurm_hooks.tick.reconcile import tick;"
        "from slurm_hooks.settings.file import load; from slurm_hooks.slurm.live import Live;"
        "tick(Live(), load(), announce=lambda text: os.kill(os.getpid(), signal.SIGKILL))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **bench.box.environment},
        timeout=150,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    bench.tick()
    bench.until(job, has(3))


def test_a_second_reconciler_at_the_same_time_says_so_and_ends(bench: Bench) -> None:
    job = bench.submit(SLEEP, "1-3")
    inside, go_on = threading.Event(), threading.Event()

    def pause(_: str) -> None:
        inside.set()
        go_on.wait(20)

    first = threading.Thread(target=tick, args=(bench.live, bench.settings, False, pause))
    first.start()
    assert inside.wait(20)
    second = bench.malleable("reconcile")
    go_on.set()
    first.join()
    assert second.returncode == RetryLater.exit_code
    assert "another tick is running" in second.stderr
    assert len(second.stderr.strip().splitlines()) == 1
    bench.until(job, has(3))


def test_slurmctld_restarted_in_mid_tick(bench: Bench) -> None:
    job = bench.submit(SLEEP, "1-3")

    def pause(_: str) -> None:
        bench.box.run(["scontrol", "shutdown", "slurmctld"])
        wait_until(lambda: "slurmctld" not in bench.box.running())

    port = bench.live
    port.timeout_s = 3
    with pytest.raises(RetryLater):
        tick(port, bench.settings, announce=pause)
    bench.box.start_controller()
    bench.box.wait_ready()
    bench.tick_until(job, has(3))


def test_without_slurmctld_the_command_says_so_in_a_line(bench: Bench) -> None:
    bench.box.run(["squeue"])
    bench.box.settings.write_text(
        bench.box.settings.read_text().replace("[tick]", "[tick]\ncommand_timeout_s = 2")
    )
    time.sleep(7)  # slurmctld has saved by then the nodes that the test before left to it
    bench.box.kill_controller()
    try:
        done = bench.malleable("status")
    finally:
        bench.box.start_controller()
        bench.box.wait_ready()
    assert done.returncode == RetryLater.exit_code
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert "squeue" in done.stderr


def test_a_fragment_killed_by_sigkill_comes_back(bench: Bench) -> None:
    job = bench.submit("echo $$ >pid.$SLURM_ARRAY_TASK_ID; exec sleep 600", "2-2")
    bench.tick()
    bench.until(job, has(2))
    pid_file = bench.box.work / "pid.1"
    wait_until(pid_file.exists)
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
    bench.until(job, has(1, FragmentState.FAILED))
    bench.tick_until(job, has(2))
    assert bench.job(job).failures <= 1


def test_a_script_that_fails_at_once_is_stopped_after_three_failures(bench: Bench) -> None:
    job = bench.submit("exit 7", "1-2")
    bench.tick_until(job, lambda j: all(f.mark.stopped for f in j.fragments))
    status = bench.job(job)
    assert all(f.mark.stopped.startswith("failed-3-times:exit-7") for f in status.fragments)
    comment = bench.box.run(["scontrol", "show", "job", f"{job}_0"]).stdout
    assert "stop=failed-3-times:exit-7" in comment
    assert "failed-3-times:exit-7" in bench.malleable("explain", str(job)).stdout
    assert not [f for f in status.fragments if f.state in (HELD, RUNNING)]


def test_a_user_s_cancel_is_obeyed(bench: Bench) -> None:
    job = bench.submit(SLEEP, "1-3")
    bench.tick()
    bench.until(job, has(3))
    bench.box.run(["scancel", str(job)], user="nobody" if os.geteuid() == 0 else None)
    bench.until(job, has(3, FragmentState.CANCELLED))
    assert not bench.tick().plan.actions
    assert bench.states(job) == [FragmentState.CANCELLED] * 3


def test_a_fragment_that_exits_0_ends_the_job(bench: Bench) -> None:
    job = bench.submit("exec sleep 2", "2-4")
    bench.tick()
    bench.until(job, has(4, FragmentState.DONE))
    bench.tick()
    assert set(bench.states(job)) == {FragmentState.DONE}
    assert "ended with 0" in bench.malleable("explain", str(job)).stdout


def test_a_preempted_fragment_is_held_and_comes_back(bench: Bench) -> None:
    job = bench.submit(SLEEP, "1-4")
    bench.tick()
    bench.until(job, has(4))
    assert len([a for a in bench.tick().plan.actions if "hold" in a.parts]) == 4
    rigid = ["sbatch", "-p", "main", "-N1", "--time=1", "--parsable", "--wrap", "sleep 5"]
    number = bench.box.run(rigid).stdout.strip()
    asked = ["squeue", "-hj", number, "-o%T"]
    wait_until(lambda: bench.box.run(asked).stdout == "RUNNING\n", limit_s=15)  # without a tick
    bench.until(job, lambda j: has(3)(j) and has(1, HELD)(j))
    bench.tick_until(job, has(4))


def test_a_draining_node_is_given_back_and_stays_drained(bench: Bench) -> None:
    job = bench.submit(SLEEP, "1-2")
    bench.tick()
    bench.until(job, has(2))
    name = sorted(bench.job(job).nodes)[0]
    bench.box.run(["scontrol", "update", f"nodename={name}", "state=drain", "reason=test"])
    try:
        bench.tick_until(job, lambda j: has(2)(j) and name not in occupied(j))
        state = bench.box.run(["sinfo", "-h", "-n", name, "-p", "main", "-o", "%T"]).stdout.strip()
        assert state.startswith("drain")
    finally:
        bench.box.run(["scontrol", "update", f"nodename={name}", "state=resume"])


def test_a_reservation_cuts_the_lease_and_the_node_is_free_before(bench: Bench) -> None:
    job = bench.submit(SLEEP, "1-1")
    bench.tick()
    bench.until(job, has(1))
    (name,) = bench.job(job).nodes
    start = int(bench.observe().now.timestamp()) + 50
    bench.box.run(
        "scontrol create reservation reservationname=r1 starttime=now+50 duration=5 "
        f"users=root flags=ignore_jobs nodes={name}".split()
    )
    try:
        seen: list[object] = []

        def has_moved() -> bool:
            seen.extend(bench.tick().plan.actions)
            status = bench.job(job)
            return has(1)(status) and name not in occupied(status)

        wait_until(has_moved, every_s=0.5)
        assert int(bench.observe().now.timestamp()) < start
        assert any(a.verb is Verb.PUT_BACK for a in seen)
    finally:
        bench.box.run(["scontrol", "delete", "reservationname=r1"])


def test_with_the_reconciler_dead_a_lease_ends_on_time(bench: Bench) -> None:
    bench.box.settings.write_text(
        bench.box.settings.read_text().replace("length_s = 120", "length_s = 60")
    )
    try:
        job = bench.submit(SLEEP, "1-1")
        bench.tick()
        bench.until(job, has(1))
    finally:
        bench.box.settings.write_text(
            bench.box.settings.read_text().replace("length_s = 60", "length_s = 120")
        )
    bench.until(job, has(1, FragmentState.TIMED_OUT), 60 + 35 + 10)
    (fragment,) = bench.job(job).fragments
    assert fragment.end is not None
    assert fragment.start is not None
    overrun = fragment.end - fragment.start - timedelta(minutes=1)
    assert overrun <= timedelta(seconds=35)  # the purpose of lease.margin_s
    bench.tick_until(job, has(1))


def test_a_user_cannot_release_or_extend_a_fragment(bench: Bench) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: the sandbox's only user is its operator")
    job = bench.submit(SLEEP, "1-1")
    for words in (["release", f"{job}_0"], ["update", f"jobid={job}_0", "TimeLimit=99"]):
        done = bench.box.run(["scontrol", *words], user="nobody", check=False)
        assert done.returncode != 0, words
    assert bench.states(job) == [HELD]
