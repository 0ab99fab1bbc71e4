"""A node loses its power. The others go on, whatever its NFS client held."""

from __future__ import annotations

import time

import pytest

from machines.course import Training

pytestmark = [pytest.mark.machines, pytest.mark.timeout(3600)]
PROMISED_S = 20.0
OLD = 2  # revisions behind the newest


def hold(training: Training, node: str) -> list[str]:
    """Let the client of a node hold delegations on the lock and on an old revision, if the server
    grants them. Return the files for which it did."""
    revisions = training.site.ctl.run(f"cd {training.shared} && ls -v state.*").split()
    names = ["lock", revisions[-1 - OLD]]
    paths = " ".join(f"{training.shared}/{name}" for name in names)
    training.site.machines[node].run(f"for one in {paths}; do head -c 1 $one; done", "ann")
    locks = training.site.ctl.run("cat /proc/locks")
    numbers = training.site.ctl.run(f"stat -c %i {paths}").split()
    return [name for name, number in zip(names, numbers) if f":{number} " in locks]


@pytest.mark.parametrize("rank", [1, 0])
def test_a_power_cut(training: Training, rank: int) -> None:
    """Rank 0 also holds the lock at that moment."""
    site = training.site
    fragment = training.ranks()[rank]
    node = training.places()[fragment]
    held = hold(training, node)
    assert any(name.startswith("state") for name in held)
    if rank == 0:
        training.lock(node)
    began = time.monotonic()
    site.machines[node].cut()
    training.await_round(lambda one: fragment not in one["fragments"])
    took_s = time.monotonic() - began
    site.note(f"power cut of rank {rank}", " ".join(["next round", *held]), took_s, PROMISED_S)
    training.await_steps()
    site.note(f"power cut of rank {rank}", "next checkpoint", time.monotonic() - began)
    site.machines[node].start()
    site.machines[node].await_up()
    training.await_size(3)
    site.note(f"power cut of rank {rank}", "on all nodes again", time.monotonic() - began)
