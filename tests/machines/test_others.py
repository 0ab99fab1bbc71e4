"""Other users' jobs and reservations take nodes from a training."""

from __future__ import annotations

import time

import pytest

from machines.course import Training
from machines.root import NODES
from waiting import wait_until

pytestmark = [pytest.mark.machines, pytest.mark.timeout(3600)]
PROMISED_S = 30.0
AHEAD_S = 240


def test_an_ordinary_job_takes_a_node(training: Training) -> None:
    site = training.site
    began = time.monotonic()
    command = "cd && sbatch --parsable --exclusive --output=/dev/null --wrap='sleep 600'"
    job = site.ctl.run(command, "bob").strip()
    wait_until(
        lambda: site.squeue("%T", f"-j {job}") == [["RUNNING"]], 300, training.evidence, every_s=0.5
    )
    site.note("an ordinary job", "it runs", time.monotonic() - began, PROMISED_S)
    training.await_size(len(NODES) - 1)
    site.note("an ordinary job", "next round", time.monotonic() - began)
    site.ctl.run(f"scancel {job}")
    began = time.monotonic()
    training.await_size(len(NODES))
    site.note("an ordinary job", "on all nodes again, after its end", time.monotonic() - began)


def test_a_fragment_leaves_before_a_reservation(training: Training) -> None:
    """Slurm accepts a reservation over a running job with this flag only."""
    site, node = training.site, "c3"
    fragment = next(one for one, name in training.places().items() if name == node)
    start = int(site.ctl.run("date +%s")) + AHEAD_S
    words = (
        f"reservation=service nodes={node} users=root duration=5 "
        f"starttime=$(date -d @{start} +%FT%T)"
    )
    refused = site.ctl.ssh(f"scontrol create {words}")
    assert "busy" in refused.stdout + refused.stderr
    site.ctl.run(f"scontrol create {words} flags=ignore_jobs")
    try:
        wait_until(lambda: fragment not in training.places(), AHEAD_S, training.evidence, every_s=1)
        left_s = start - int(site.ctl.run("date +%s"))
        site.note("a reservation", "seconds left when its node is free", left_s)
        assert left_s > 0
    finally:
        site.ctl.run("scontrol delete reservation=service")
    training.await_size(len(NODES))


def test_two_users_share_the_nodes(training: Training) -> None:
    """Both train. When one has ended, the other has all nodes again."""
    site, other = training.site, Training(training.site, "second", user="bob")
    began = time.monotonic()
    other.submit()
    try:
        other.await_round(lambda one: one["size"] >= 1)
        site.note("a second user's training", "its first round", time.monotonic() - began)
        other.await_steps()
        training.await_steps()
        places = training.places().values(), other.places().values()
        assert not set(places[0]) & set(places[1]), places
    finally:
        site.ctl.run(f"scancel {other.job}")
    training.await_size(len(NODES))
