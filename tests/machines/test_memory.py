"""A worker needs more memory than its job may have, or a node swaps."""

from __future__ import annotations

import time

import pytest

from machines.course import Training
from machines.root import NODES
from waiting import wait_until

pytestmark = [pytest.mark.machines, pytest.mark.timeout(3600)]
SWAP = "dd if=/dev/zero of=/swap bs=1M count=1200 && mkswap /swap && swapon /swap"
# How much memory all jobs of a node may hold. The kernel swaps out what they have beyond.
HIGH = "echo {} | tee /sys/fs/cgroup/system.slice/*slurmstepd.scope/memory.high"
SWAPS_S = 90
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


def test_the_others_wait_for_a_node_that_swaps(training: Training) -> None:
    """No fragment ends, as its agent answers. Steps come late or not at all until it is over."""
    site, (_, node), fault = training.site, training.last_rank(), "a node swaps for 90 s"
    node.run(SWAP)
    training.await_steps()
    runs, rounds = training.restarts(), training.rounds()
    node.run(HIGH.format("150M"))
    try:
        time.sleep(SWAPS_S)
    finally:
        node.run(HIGH.format("max"))
    swapped = int(node.run("awk '/pswpin/ {print $2}' /proc/vmstat"))
    assert swapped > 1000, swapped  # pages
    site.note(fault, "next checkpoint afterwards", training.await_steps())
    assert (training.restarts(), training.rounds()) == (runs, rounds)
