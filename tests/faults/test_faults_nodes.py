"""slurmd dead, rebooted, drained, taken out of the configuration, back with a fragment running."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from faults.course import Course
from promises.bench import Bench, has, occupied
from slurm_hooks.sandbox import daemons
from slurm_hooks.sandbox.processes import Process, find_processes, stop
from waiting import wait_until

pytestmark = pytest.mark.slurm
long = pytest.mark.faults


def _one_of(course: Course) -> str:
    return min(course.bench.job(course.job).nodes)


def _stepd(course: Course, node: str) -> list[Process]:
    """The slurmstepd and the job's processes on a node."""
    layout = course.bench.box.record.layout
    found = find_processes(layout.dir, layout.conf)
    mine = []
    for process in found:
        try:
            environ = open(f"/proc/{process.pid}/environ", "rb").read().split(b"\0")
        except OSError:
            continue
        if f"SLURMD_NODENAME={node}".encode() in environ:
            mine.append(process)
    return mine


def test_slurmd_killed_and_started_again(course: Course) -> None:
    course.start()
    node = _one_of(course)
    course.signal(node, signal.SIGKILL)
    wait_until(lambda: node not in course.bench.box.running(), 10)
    course.tick()
    course.bench.box.start_node(node)
    course.settle(3)
