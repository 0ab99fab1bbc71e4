"""Network cables come out, and go in again: of a node, and of two at a switch."""

from __future__ import annotations

import time

import pytest

from machines.course import Training
from machines.root import NODES

pytestmark = [pytest.mark.machines, pytest.mark.timeout(3600)]
PROMISED_S = 20.0
CALM_S = 60.0  # in which a run that was ended twice would show it
SLACK_S = 3
BACK_S, REGISTERED_S = 200, 260


def test_three_seconds_cost_no_round(training: Training) -> None:
    before, (_, node) = training.rounds(), training.last_rank()
    node.unplug()
    time.sleep(3)
    node.plug()
    training.site.note("cable out for 3 s", "next checkpoint", training.await_steps())
    assert training.rounds() == before


def test_the_others_go_on_and_the_node_comes_back(training: Training) -> None:
    fragment, node = training.last_rank()
    site, fault = training.site, "cable out for 20 s"
    before = training.restarts()
    began = time.monotonic()
    node.unplug()
    training.await_round(lambda one: fragment not in one["fragments"])
    site.note(fault, "next round", time.monotonic() - began, PROMISED_S)
    time.sleep(max(0.0, began + 20 - time.monotonic()))
    node.plug()
    began = time.monotonic()
    training.await_size(len(NODES))
    site.note(fault, "on all nodes again, after the cable", time.monotonic() - began)
    assert training.restarts() == before


def test_a_switch_loses_two_nodes_of_three(training: Training) -> None:
    """The node that still reaches the file server goes on alone. The others form no round."""
    site, places, before = training.site, training.places(), training.restarts()
    fault = "two nodes of three cut off for 60 s"
    *lost, survivor = training.ranks()
    seen, nodes = len(training.rounds()), [site.machines[places[one]] for one in lost]
    began = time.monotonic()
    for node in nodes:
        node.unplug()
    training.await_size(1)
    site.note(fault, "next round", time.monotonic() - began, PROMISED_S)
    time.sleep(max(0.0, began + 60 - time.monotonic()))  # or Slurm gives both nodes up
    for node in nodes:
        node.plug()
    began = time.monotonic()
    training.await_size(len(NODES))
    site.note(fault, "on all nodes, after the cables", time.monotonic() - began)
    training.await_steps()
    assert all(survivor in one["fragments"] for one in training.rounds()[seen:])
    assert training.restarts() == before


def test_a_fragment_that_slurm_has_given_up_does_not_come_back(training: Training) -> None:
    """Its node counts as down after 120 s. Slurm requeues it, and then the cable is back. A restart
    of slurmd spares the test the quarter of an hour until it registers by itself.
    """
    fragment, node = training.last_rank()
    site = training.site
    runs, seen = training.restarts()[fragment], len(training.rounds())
    began = time.monotonic()
    node.unplug()
    training.await_round(lambda one: fragment not in one["fragments"])
    site.note("cable out for 200 s", "next round", time.monotonic() - began, PROMISED_S)
    watched: list[tuple[float, set[int]]] = []
    steps = [(BACK_S, node.plug), (REGISTERED_S, lambda: node.run("systemctl restart slurmd"))]
    while steps or fragment not in training.rounds()[-1]["fragments"]:
        watched.append((time.time(), set(training.places())))
        if steps and time.monotonic() - began > steps[0][0]:
            steps.pop(0)[1]()
        assert time.monotonic() - began < 1500, training.evidence()
        time.sleep(1)
    site.note("cable out for 200 s", "on all nodes again", time.monotonic() - began)
    for one in training.rounds()[seen:]:
        near = [run for t, run in watched if abs(t - one["t"]) <= SLACK_S]
        assert not near or set(one["fragments"]) <= set.union(*near), (one, near)
    time.sleep(CALM_S)
    assert training.restarts()[fragment] == runs + 1
    assert fragment in training.rounds()[-1]["fragments"]
