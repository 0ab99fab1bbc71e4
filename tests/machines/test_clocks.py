"""The clock of a node is wrong."""

from __future__ import annotations

import time

import pytest

from machines.course import Site, Training
from machines.root import NODES

pytestmark = [pytest.mark.machines, pytest.mark.timeout(3600)]
AWAY_S = 60


@pytest.mark.parametrize("off_s", [-120, 120])
def test_doctor_sees_it(site: Site, off_s: int) -> None:
    """Doctor on the controller sees a clock that is ahead. On the node it sees both."""
    node = site.machines["c1"]
    with node.clock_off(off_s, "; systemctl restart slurmd"):
        on_node = node.ssh("malleable doctor --node clocks").stdout
        on_ctl = site.ctl.ssh("malleable doctor clocks").stdout
    assert "slurmctld's" in on_node, on_node
    assert ("c1" in on_ctl) == (off_s > 0), on_ctl
    site.await_nodes()


def test_an_hour_back_changes_nothing(training: Training) -> None:
    """Munge refuses that node meanwhile."""
    site, (_, node) = training.site, training.last_rank()
    before, rounds = training.restarts(), training.rounds()
    with node.clock_off(-3600):
        time.sleep(AWAY_S)
    site.note("clock back by an hour for 60 s", "next checkpoint", training.await_steps())
    site.await_nodes()
    assert (training.restarts(), training.rounds()) == (before, rounds)


def test_an_hour_ahead_sends_that_fragment_away(training: Training) -> None:
    """By the clock of its node its lease has ended."""
    site, (fragment, node) = training.site, training.last_rank()
    fault, began = "clock ahead by an hour for 60 s", time.monotonic()
    with node.clock_off(3600):
        training.await_round(lambda one: fragment not in one["fragments"])
        site.note(fault, "next round", time.monotonic() - began, 20)
        time.sleep(max(0.0, began + AWAY_S - time.monotonic()))
    training.await_size(len(NODES))
    site.note(fault, "on all nodes again", time.monotonic() - began)
