"""A node loses its power. The others go on, whatever its NFS client held."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from machines.course import Site, Training
from waiting import wait_until

pytestmark = [pytest.mark.machines, pytest.mark.timeout(3600)]
PROMISED_S = 20.0
OLD = 2  # revisions behind the newest


@pytest.fixture(scope="module")
def training(site: Site) -> Iterator[Training]:
    with site.training("power") as training:
        yield training


def hold(training: Training, node: str) -> list[str]:
    """Let the client of a node hold delegations on the lock and on an old revision, if the server
    grants them. Return the files for which it did."""
    names = ["lock", training.old_revision(OLD)]
    paths = " ".join(f"{training.shared}/{name}" for name in names)
    training.site.machines[node].run(f"for one in {paths}; do head -c 1 $one; done", "ann")
    locks = training.site.ctl.run("cat /proc/locks")
    numbers = training.site.ctl.run(f"stat -c %i {paths}").split()
    return [name for name, number in zip(names, numbers) if f":{number} " in locks]


def lock(training: Training, node: str) -> None:
    """Let a process there hold the agents' lock, which the server keeps for 90 s after its loss."""
    guest, file = training.site.machines[node], f"{training.shared}/lock"
    guest.run(f"setsid flock {file} sleep 900 >/dev/null 2>&1 &", "ann")
    wait_until(lambda: not guest.tries(f"flock -n {file} true", "ann"), every_s=0.5)


@pytest.mark.parametrize("rank", [1, 0])
def test_a_power_cut(training: Training, rank: int) -> None:
    """Rank 0 also holds the lock at that moment."""
    site = training.site
    fragment = training.ranks()[rank]
    node = training.places()[fragment]
    held = hold(training, node)
    assert any(name.startswith("state") for name in held)
    if rank == 0:
        lock(training, node)
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
