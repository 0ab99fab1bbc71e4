"""All processes learn of a change at the same call, at almost no cost for a step without a
change.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from functools import partial

import pytest

pytest.importorskip("torch")

from slurm_hooks.elastic.script.agreement import EVERY_S, MOST_CALLS, calls_between

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("step_s", "calls"),
    [(float("inf"), 1), (30.0, 1), (EVERY_S, 1), (0.1, 2), (0.03, 8), (0.001, MOST_CALLS), (0, 16)],
)
def test_the_processes_agree_a_few_times_a_second(step_s: float, calls: int) -> None:
    assert calls_between(step_s) == calls


# Two processes, the second slower. Each learns of the change at its own moment, or only one of
# them not at all. Prints the call at which it was told, and its share of the time.
PROGRAM = """
import os, sys, time
import torch.distributed as dist
from slurm_hooks.elastic.mailbox import PlannedChange
from slurm_hooks.elastic.script import step_boundary
from slurm_hooks.elastic import notice
step_s, calls, known_at = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
dist.init_process_group("gloo")
rank, call = dist.get_rank(), 0
class Reader:
    def read(self):
        return PlannedChange("grow", 9.0) if rank == 1 and call >= known_at else None
step_boundary._reader = Reader
spent_s, began = 0.0, time.thread_time()
for call in range(1, calls + 1):
    end = time.monotonic() + step_s
    while time.monotonic() < end: time.sleep(0.001)
    asked = time.thread_time()
    coming = notice()
    spent_s += time.thread_time() - asked
    if coming: break
print(call, coming, spent_s / call / step_s)
dist.destroy_process_group()
"""


def both(step_s: float, calls: int, known_at: int) -> list[list[str]]:
    """The output of two processes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    words = [sys.executable, "-c", PROGRAM, str(step_s), str(calls), str(known_at)]
    running = [
        subprocess.Popen(words, env={**env, "RANK": rank}, stdout=subprocess.PIPE, text=True)
        for rank in "01"
    ]
    outputs = [process.communicate(timeout=120)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    return [output.splitlines()[-1].rsplit(maxsplit=1) for output in outputs]


at_night = partial(pytest.param, marks=pytest.mark.nightly)


@pytest.mark.parametrize("step_s", [at_night(0.005), 0.1, at_night(1.2)])
def test_all_processes_learn_of_a_change_at_the_same_call(step_s: float) -> None:
    known_at = 4
    (first, _), (second, _) = both(step_s, 60, known_at)
    assert first == second
    call, coming = first.split(maxsplit=1)
    assert coming == "Coming(why='grow', left_s=9.0)"
    assert known_at <= int(call) <= known_at + 2 * calls_between(step_s)


def test_a_step_without_a_change_has_almost_no_cost() -> None:
    for words, share in both(0.05, 100, 10**9):
        assert words == "100 None"
        assert float(share) < 0.005
