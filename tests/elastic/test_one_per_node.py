"""Several agents on a node: the first takes part, and the others wait for its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from slurm_hooks.elastic.agent import one_per_node
from slurm_hooks.elastic.agent.one_per_node import stand_by

from .processes import launch

AGENT = """
import os, sys, time
from slurm_hooks.elastic.agent import one_per_node
one_per_node.PATIENCE_S = float(sys.argv[1])
one_per_node.stand_by(os.environ, "torchrun")
print("takes part", flush=True)
time.sleep(60)
"""
STEP = {
    "SLURM_JOB_ID": f"9{os.getpid()}",
    "SLURM_STEP_ID": "0",
    "SLURM_NODEID": "0",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_NUM_TASKS": "2",
}


def start(place: int, patience_s: float = 60.0, **more: str) -> subprocess.Popen[str]:
    """The agent of the task with this SLURM_LOCALID."""
    env = {**os.environ, **STEP, "SLURM_LOCALID": str(place), **more}
    return launch([sys.executable, "-c", AGENT, str(patience_s)], env, stderr=subprocess.PIPE)


def said(agent: subprocess.Popen[str]) -> str:
    assert agent.stdout is not None
    return agent.stdout.readline()


def error_line(agent: subprocess.Popen[str]) -> str:
    assert agent.stderr is not None
    return agent.stderr.readline()


def test_the_second_waits_for_the_first_and_succeeds() -> None:
    second = start(1)  # whichever is faster
    first = start(0)
    assert said(first) == "takes part\n"
    assert "write --ntasks-per-node=1. This is number 2" in error_line(second)
    time.sleep(0.5)
    assert second.poll() is None
    first.terminate()
    assert second.wait(timeout=60) == 0
    assert said(second) == ""


def test_the_second_ends_when_the_first_is_killed_and_at_once_at_sigterm() -> None:
    first, second, third = start(0), start(1), start(2)
    for waiting in (second, third):
        assert "it waits" in error_line(waiting)
    third.terminate()
    assert third.wait(timeout=5) == -signal.SIGTERM
    first.kill()
    assert second.wait(timeout=60) == 0


def test_a_second_malleable_run_on_a_node_waits_as_well() -> None:
    first = start(0)
    assert said(first) == "takes part\n"
    words = [sys.executable, "-m", "slurm_hooks.elastic", "run", "--", "true"]
    gang = {"MALLEABLE_ENGINE": "command", "MALLEABLE_JOB_ID": "9", "SLURM_LOCALID": "1"}
    second = launch(words, {**os.environ, **STEP, **gang}, stderr=subprocess.PIPE)
    assert "started malleable run several times on one node" in error_line(second)
    first.terminate()
    assert second.wait(timeout=60) == 0


@pytest.mark.parametrize(
    "other",
    [{"SLURM_NODEID": "1"}, {"SLURM_STEP_ID": "1"}, {"SLURM_JOB_ID": "8"}],
    ids=lambda other: next(iter(other)),
)
def test_an_agent_without_a_first_on_its_own_node_takes_part(other: dict[str, str]) -> None:
    """As with srun --multi-prog, where the first task may be another program."""
    first = start(0)
    assert said(first) == "takes part\n"
    second = start(1, patience_s=0.5, **other)
    assert said(second) == "takes part\n"
    assert [agent.poll() for agent in (first, second)] == [None, None]


@pytest.mark.parametrize(
    "env",
    [{}, {"SLURM_LOCALID": "0"}, {**STEP, "SLURM_STEP_NUM_TASKS": "1", "SLURM_LOCALID": "0"}],
    ids=["no Slurm", "a batch script", "one task on each node"],
)
def test_an_agent_that_is_alone_takes_part_and_leaves_no_file(env: dict[str, str]) -> None:
    stand_by(env, "torchrun")
    assert not one_per_node._listening
