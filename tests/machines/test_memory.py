"""A worker needs more memory than its job may have, and the kernel ends it."""

from __future__ import annotations

import time

import pytest

from machines.course import Training
from machines.root import NODES
from waiting import wait_until

pytestmark = [pytest.mark.machines, pytest.mark.timeout(3600)]
WHY = "as the memory limit of the job was reached"


def test_the_limit_of_the_cgroup_ends_a_worker(training: Training) -> None:
    """Its user reads why, in the log and in `malleable explain`. The training goes on."""
    site = training.site
    _, node = training.last_rank()
    seen, began = len(training.rounds()), time.monotonic()
    site.ctl.run(f"touch {training.home}/eat.{node.name}", "ann")
    training.await_round(lambda one: len(training.rounds()) > seen)
    site.note("memory limit reached", "next round", time.monotonic() - began)
    assert "oom-kill:constraint=CONSTRAINT_MEMCG" in node.run("dmesg"), node.run("dmesg")
    wait_until(
        lambda: WHY in site.ctl.run(f"malleable explain {training.job}"),
        explain=training.evidence, every_s=2,
    )  # fmt: skip
    assert WHY in training.logs()
    training.await_size(len(NODES))
    training.await_steps()
    site.note("memory limit reached", "on all nodes, next checkpoint", time.monotonic() - began)
