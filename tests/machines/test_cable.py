"""The network cable of a node comes out, and goes in again."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from machines.course import Site, Training

pytestmark = [pytest.mark.machines, pytest.mark.timeout(3600)]
PROMISED_S = 20.0
CALM_S = 60.0  # in which a run that was ended twice would show it
SLACK_S = 3


@pytest.fixture(scope="module")
def training(site: Site) -> Iterator[Training]:
    with site.training("cable") as training:
        yield training


def victim(training: Training) -> tuple[int, str]:
    """The fragment of the last rank and its node."""
    fragment = training.ranks()[-1]
    return fragment, training.places()[fragment]


def test_a_fragment_that_slurm_has_given_up_does_not_come_back(training: Training) -> None:
    """Its node counts as down after 120 s. Slurm requeues it, and then the cable is back."""
    fragment, name = victim(training)
    site, node = training.site, training.site.machines[name]
    runs, seen = training.restarts()[fragment], len(training.rounds())
    began = time.monotonic()
    node.unplug()
    training.await_round(lambda one: fragment not in one["fragments"])
    site.note("cable out for 200 s", "next round", time.monotonic() - began, PROMISED_S)
    watched: list[tuple[float, set[int]]] = []
    is_out = True
    while is_out or fragment not in training.rounds()[-1]["fragments"]:
        watched.append((time.time(), set(training.places())))
        if is_out and time.monotonic() - began > 200:
            node.plug()
            is_out = False
        assert time.monotonic() - began < 1500, training.evidence()
        time.sleep(1)
    site.note("cable out for 200 s", "on all nodes again", time.monotonic() - began)
    for one in training.rounds()[seen:]:
        near = [run for t, run in watched if abs(t - one["t"]) <= SLACK_S]
        assert not near or set(one["fragments"]) <= set.union(*near), (one, near)
    time.sleep(CALM_S)
    assert training.restarts()[fragment] == runs + 1
    assert fragment in training.rounds()[-1]["fragments"]
