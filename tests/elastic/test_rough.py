"""Real torchrun processes under rougher conditions: scripts that ignore SIGTERM, clocks that
disagree, and a slow shared directory.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from programs import write_programs
from slurm_hooks.elastic.engines.kin import find
from slurm_hooks.elastic.engines.torchrun.stubborn_workers import _end, end_stubborn, is_deaf
from waiting import wait_until

from .gang import Gang

LONG = 100_000
HERE = Path(__file__).parent
IGNORES = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True)"
live = [pytest.mark.torch]


def no_restarts(gang: Gang) -> bool:
    return not any(b["restarts"] for b in gang.begins())


def longest_pause(gang: Gang, since: float) -> float:
    times = [t for t, _, _ in gang.steps() if t > since - 1]
    return max(b - a for a, b in zip(times, times[1:]))


def repeated(gang: Gang) -> int:
    steps = [s for _, s, _ in gang.steps()]
    return len(steps) - len(set(steps))


@pytest.mark.parametrize(
    ("status", "is_so"),
    [
        ("SigIgn:\t0000000000004000", True),
        ("SigBlk:\t0000000000004000\nSigIgn:\t0000000001001000\nSigCgt:\t4000", False),
        ("Name:\tSigIgn: 4000\nSigIgn:\t0000000000000000", False),
        ("State:\tT (stopped)\nSigIgn:\t0000000000000000", True),
        ("State:\tt (tracing stop)\nSigIgn:\t0000000000000000", False),  # a user debugs it
        ("Name:\tState: T \nState:\tS (sleeping)", False),
        ("", False),
    ],
)
def test_the_workers_that_ignore_sigterm(status: str, is_so: bool) -> None:
    assert is_deaf(status) is is_so


def test_only_workers_that_ignore_sigterm_to_the_end_are_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)  # as with Linux before 5.3
    bodies = (
        f"{IGNORES}; time.sleep(60)",
        f"{IGNORES}; time.sleep(0.3)",  # ends by itself
        "import signal, time; signal.signal(signal.SIGTERM, lambda *a: 0); print(1, flush=True);"
        "time.sleep(60)",
        "import os, signal, time; print(1, flush=True); os.kill(os.getpid(), signal.SIGSTOP)",
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", body], stdout=subprocess.PIPE, start_new_session=True
        )
        for body in bodies
    ]
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
        child.stdout.close()
    wait_until(lambda: is_deaf(Path(f"/proc/{children[3].pid}/status").read_text()))
    end_stubborn(after_s=2.0)
    assert children[0].wait(20) == children[3].wait(20) == -signal.SIGKILL
    assert children[1].wait(20) == 0
    assert children[2].poll() is None
    children[2].kill()
    children[2].wait(20)


def test_a_later_process_with_the_number_of_a_deaf_worker_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as child:
        process = find(child.pid)
        assert process is not None
        _end([process._replace(born=process.born - 1)], after_s=0.0)
        time.sleep(0.2)
        assert child.poll() is None
        _end([process], after_s=0.0)
        assert child.wait(20) == -signal.SIGKILL


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.torch
def test_a_script_that_ignores_sigterm_is_not_waited_for_half_a_minute(gang: Gang) -> None:
    gang.script = HERE / "train_ignoring_sigterm.py"
    gang.extra["TRAIN_AS"] = "train_tiny.py"
    for fragment in (1, 2):
        gang.start(fragment, "1:3", LONG)
    gang.wait_world(2)
    came_at = time.time()
    gang.start(3, "1:3", LONG)
    grown_at = gang.wait_world(3, since=came_at)
    asked_at = gang.notify(1)  # rank 0
    shrunk_at = gang.wait_world(2, since=asked_at)
    assert gang.wait_exit(1) == [0]
    assert no_restarts(gang), gang.dump()
    assert [r["cause"] for r in gang.rounds()][-2:] == ["joined 3", "left 1"]
    assert repeated(gang) <= 2  # a step that was logged as the worker ended, if any
    print(f"grow {grown_at - came_at:.1f} s, shrink {shrunk_at - asked_at:.1f} s,", end=" ")
    print(f"longest pause {longest_pause(gang, came_at):.1f} s")
    assert shrunk_at - asked_at < 25


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.torch
def test_a_script_that_ignores_sigterm_is_stopped_at_its_step_boundary(gang: Gang) -> None:
    gang.script = HERE / "train_ignoring_sigterm.py"
    gang.extra["TRAIN_AS"] = "train_samples.py"
    gang.extra["TRAIN_STALL_S"] = (
        "300"  # a worker that has not stopped at a boundary would wait here
    )
    disturb(gang, TEST_STUBBORN_S="300")  # and would then delay the next round
    for fragment in (1, 2):
        gang.start(fragment, "1:3", LONG, str(LONG))
    gang.wait_world(2)
    came_at = time.time()
    gang.start(3, "1:3", LONG, str(LONG))
    gang.wait_world(3, since=came_at)
    asked_at = gang.notify(1)  # rank 0
    gang.wait_world(2, since=asked_at)
    assert gang.wait_exit(1) == [0]
    pause_s = longest_pause(gang, came_at)
    (gang.work / "enough").touch()
    assert gang.wait_exit(2, 3) == [0, 0]
    assert no_restarts(gang), gang.dump()
    assert json.loads((gang.work / "finished").read_text())["off"] == 0
    assert repeated(gang) == 0
    print(f"longest pause {pause_s:.1f} s")
    assert pause_s < 100


def disturb(gang: Gang, **how: str) -> None:
    gang.extra["PYTHONPATH"] = f"{HERE / 'disturbed'}:{gang.job_path}"
    gang.extra.update(how)


ELEMENTS = """#!/bin/sh
now=$(date +%s)
[ -e {place}/end.2 ] || echo $((now + 25)) > {place}/end.2
[ -e {place}/start.2 ] || echo $((now - 1)) > {place}/start.2
echo "1|RUNNING|9|1|$now|$((now + 900))|None|"
echo "2|RUNNING|9|1|$(cat {place}/start.2)|$(cat {place}/end.2)|None|"
"""
REQUEUE = """#!/bin/sh
[ "$*" != "requeue 77_2" ] || kill $PPID
"""


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.torch
def test_clocks_a_minute_apart_cost_no_time(gang: Gang) -> None:
    for fragment, skew_s in ((1, 60), (2, 0)):
        disturb(gang, TEST_SKEW_S=str(skew_s))
        gang.start(fragment, "1:3", LONG)
    gang.wait_world(2)
    came_at = time.time()
    disturb(gang, TEST_SKEW_S="-60")
    gang.start(3, "1:3", LONG)
    gang.wait_world(3, since=came_at)
    asked_at = gang.notify(1)
    gang.wait_world(2, since=asked_at)
    assert gang.wait_exit(1) == [0]
    killed_at = time.time()
    gang.cut_off(2, signal.SIGKILL)
    gang.wait_world(1, since=killed_at)
    (gang.work / "enough").touch()
    assert gang.wait_exit(3) == [0]
    assert [r["cause"] for r in gang.rounds()][-3:] == ["joined 3", "left 1", "lost 2"]
    times = [float(str(r["t"])) for r in gang.rounds()]
    assert max(times) - min(times) > 50  # their clocks were apart
    planned = [b for b in gang.begins() if b["t"] < killed_at]
    assert not any(b["restarts"] for b in planned), gang.dump()


@pytest.mark.slow
@pytest.mark.torch
def test_a_clock_that_is_behind_does_not_outstay_its_lease(gang: Gang) -> None:
    write_programs(gang.work, {"squeue": ELEMENTS, "scontrol": REQUEUE})
    gang.extra["PATH"] = f"{gang.work}:{os.environ['PATH']}"
    gang.extra["MALLEABLE_NOTICE_S"] = "12"
    for fragment, skew_s in ((1, 0), (2, -60)):
        job = {"SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": str(fragment)}
        disturb(gang, TEST_SKEW_S=str(skew_s), **job)
        gang.start(fragment, "1:2", LONG)
    gang.wait_world(2)
    assert gang.wait_exit(2) == [128 + signal.SIGTERM]
    assert time.time() < float((gang.work / "end.2").read_text())
    gang.wait_world(1)
    assert "because its lease ends" in gang.log(2)
    assert no_restarts(gang)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.torch
def test_a_directory_of_a_second_an_operation_costs_only_time(gang: Gang) -> None:
    disturb(gang, TEST_SLOW_DIR=str(gang.shared), TEST_SLOW_S="1")
    for fragment in (1, 2):
        gang.start(fragment, "1:3", LONG)
    gang.wait_world(2)
    came_at = time.time()
    gang.start(3, "1:3", LONG)
    gang.wait_world(3, since=came_at)
    grow_s = longest_pause(gang, came_at)
    asked_at = gang.notify(1)  # rank 0
    gang.wait_world(2, since=asked_at)
    assert gang.wait_exit(1) == [0]
    print(f"pause at growth {grow_s:.1f} s, at shrinking {longest_pause(gang, asked_at):.1f} s")
    assert no_restarts(gang), gang.dump()
    assert repeated(gang) <= 2
    assert [r["cause"] for r in gang.rounds()][-2:] == ["joined 3", "left 1"]


@pytest.mark.torch
def test_an_agent_that_cannot_reach_the_others_gives_up_and_they_go_on(gang: Gang) -> None:
    """A network in between gave 218 broken rounds in a minute, and two nodes waited in vain."""
    for fragment in (1, 2):
        gang.start(fragment, "1:3", LONG)
    gang.wait_world(2)
    disturb(gang, TEST_UNREACHED="127.0.0.1")
    gang.start(3, "1:3", LONG)
    assert gang.wait_exit(3) == [1]
    given_up = "malleable: giving up: cannot reach the store of the round at 127.0.0.1 port "
    assert given_up in gang.log(3)
    gang.wait_world(2, since=time.time())
    assert len(gang.rounds()) < 10, gang.rounds()
    assert [gang.agents[f].poll() for f in (1, 2)] == [None, None]
    assert no_restarts(gang)
