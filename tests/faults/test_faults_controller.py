"""Restarted, stopped, refusing or outdated slurmctld, and a missing munge."""

from __future__ import annotations

import shutil
import signal
import socket
import threading
import time

import pytest

from faults.course import SLEEP, Course
from promises.bench import has
from slurm_hooks.errors import RetryLater
from slurm_hooks.model import Verb
from slurm_hooks.sandbox import daemons
from slurm_hooks.sandbox.daemons import CONTROLLER, MUNGED
from slurm_hooks.slurm.live import Live
from slurm_hooks.tick.reconcile import tick
from waiting import wait_until

pytestmark = pytest.mark.slurm
long = pytest.mark.faults


def test_slurmctld_restarted(course: Course) -> None:
    course.start()
    course.bench.box.restart_controller()
    course.bench.box.wait_ready()
    course.settle(3)


@long
def test_slurmctld_killed_right_after_a_tick_s_writes(course: Course) -> None:
    """slurmctld saves its state a few seconds late, so the tick's writes are lost."""
    course.job, course.count = course.bench.submit("exec sleep 600", "1-3"), 3
    course.bench.box.restart_controller()  # which saves the job itself
    course.bench.box.wait_ready()
    course.tick()
    course.began = time.monotonic()
    course.bench.box.kill_controller()
    course.bench.box.start_controller()
    course.bench.box.wait_ready()
    course.settle(3)


@long
def test_slurmctld_stopped_for_longer_than_the_time_out(course: Course) -> None:
    course.start()
    course.signal(CONTROLLER, signal.SIGSTOP)
    try:
        for _ in range(2):
            with pytest.raises(RetryLater):
                course.tick(timeout_s=1.0)
    finally:
        course.signal(CONTROLLER, signal.SIGCONT)
    course.settle(3)


@long
def test_slurmctld_stopped_in_mid_write(course: Course) -> None:
    """The writes time out, but slurmctld carries them out when it continues."""
    course.job, course.count = course.bench.submit("exec sleep 600", "1-3"), 3
    course.began = time.monotonic()
    port = course.bench.live
    port.timeout_s = 1.0
    try:
        with pytest.raises(RetryLater):
            tick(
                port,
                course.bench.settings,
                announce=lambda _: course.signal(CONTROLLER, signal.SIGSTOP),
            )
    finally:
        course.signal(CONTROLLER, signal.SIGCONT)
    course.settle(3)


@long
@pytest.mark.parametrize("answer", ["nothing", "noise", "refused"])
def test_rpcs_refused(course: Course, answer: str) -> None:
    """The listener hangs up, or answers something else, or there is no listener."""
    course.start()
    conf = course.bench.box.dir / "etc" / "slurm.conf"
    other = course.bench.box.work / "other.conf"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        text = conf.read_text()
        kept = [line for line in text.splitlines() if not line.startswith("SlurmctldPort")]
        other.write_text("\n".join([*kept, f"SlurmctldPort={port}"]) + "\n")
        if answer == "refused":
            server.close()
        else:
            threading.Thread(target=_hang_up, args=(server, answer), daemon=True).start()
        elsewhere = {**course.bench.live.environment, "SLURM_CONF": str(other)}
        with pytest.raises(RetryLater):
            tick(Live(timeout_s=2.0, environment=elsewhere), course.bench.settings)
    course.settle(3)


def _hang_up(server: socket.socket, answer: str) -> None:
    while True:
        try:
            peer, _ = server.accept()
        except OSError:
            return
        with peer:
            if answer == "noise":
                peer.sendall(b"\0\0\0\x10" + b"\xff" * 16)


def restore_old_state(course: Course) -> None:
    """Make slurmctld believe that all fragments wait, while their processes run."""
    box, layout = course.bench.box, course.bench.box.record.layout
    course.job, course.count = course.bench.submit("exec sleep 600", "1-3"), 3
    box.restart_controller()  # which saves
    old = layout.dir / "old-state"
    shutil.copytree(layout.state, old)
    try:
        course.tick()
        course.bench.tick_until(course.job, lambda j: len(j.active) == 3)
        course.began = time.monotonic()
        box.kill_controller()
        shutil.rmtree(layout.state)
        shutil.copytree(old, layout.state)
    finally:
        shutil.rmtree(old)
        box.start_controller()


@long
@pytest.mark.parametrize("pause_s", [0, 5], ids=["tick at once", "tick after the nodes told"])
def test_an_old_state_restored(course: Course, pause_s: int) -> None:
    """No fragment starts a second time while a node has not reported its running jobs."""
    restore_old_state(course)
    time.sleep(pause_s)
    course.settle(3, most_ticks=4)
    assert "on wrong node" not in course.bench.box.log("slurmctld")


@long
def test_a_node_that_slurmctld_has_not_heard_of(course: Course) -> None:
    """No fragment starts while the node is UNKNOWN. Once slurmctld has given it up, the
    others go on.
    """
    course.start(wanted=2)
    box = course.bench.box
    course.signal("n4", signal.SIGSTOP)
    try:
        box.restart_controller()
        other = course.bench.submit(SLEEP, "1-1")
        seen = [course.tick()]
        while seen[-1].snapshot.registering:
            assert not any(a.verb is Verb.GROW for a in seen[-1].plan.actions)
            assert time.monotonic() - course.began < 60
            time.sleep(0.5)
            seen.append(course.tick())
        assert "n4" in seen[0].snapshot.registering
        course.bench.tick_until(other, has(1))
        course.settle(2, {"n4": ""}, most_ticks=6)
    finally:
        course.signal("n4", signal.SIGCONT)
    box.wait_ready()


@long
def test_restarted_after_the_leases_have_ended(course: Course) -> None:
    course.start()
    course.end_leases(in_s=6)
    ends = max(element.end for element in course.look().elements)
    course.bench.box._stop(CONTROLLER, grace_s=30)  # which saves
    time.sleep(10)
    course.bench.box.start_controller()
    course.bench.box.wait_ready()
    is_back = time.time()
    wait_until(lambda: course.running() == 0, 45, every_s=1)
    course.settle(3, nobody_s=is_back - ends)


@long
def test_munge_dies(course: Course) -> None:
    course.start()
    box = course.bench.box
    course.signal(MUNGED, signal.SIGKILL)
    wait_until(lambda: MUNGED not in box.running())
    try:
        with pytest.raises(RetryLater):
            course.tick(timeout_s=15)
    finally:
        (box.record.layout.run / "munge.sock").unlink(missing_ok=True)
        box._remember({MUNGED: daemons.start_munged(box.record.slurm, box.record.layout)})
    box.wait_ready()
    course.settle(3)
