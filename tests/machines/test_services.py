"""Daemons of Slurm, munge and the file server are away for a while. Packets get lost."""

from __future__ import annotations

import time

import pytest

from machines.course import Training
from machines.root import NODES

pytestmark = [pytest.mark.machines, pytest.mark.timeout(3600)]
NETEM = "tc qdisc {} dev vec0 root netem loss 10% delay 100ms 50ms"
NFS = "systemctl {} nfs-server"
# where, what begins it, what ends it, after how many seconds
CASES = {
    "slurmctld away for 60 s": ("ctl", "systemctl stop slurmctld", "systemctl start slurmctld", 60),
    "slurmd restarted": ("c2", "systemctl restart slurmd", "true", 0),
    "munge of a node away for 60 s": ("c2", "systemctl stop munge", "systemctl start munge", 60),
    "a packet of ten lost, 100 ms late, 60 s": ("c2", NETEM.format("add"), NETEM.format("del"), 60),
    "the file server away for 60 s": ("ctl", NFS.format("stop"), NFS.format("start"), 60),
}


@pytest.mark.parametrize("fault", CASES)
def test_a_training_outlives_it(training: Training, fault: str) -> None:
    """No fragment ends, no round is lost, and the training goes on."""
    site = training.site
    name, begin, end, away_s = CASES[fault]
    runs, rounds = training.restarts(), training.rounds()
    site.machines[name].run(begin, limit_s=300)
    try:
        time.sleep(away_s)
    finally:
        site.machines[name].run(end, limit_s=300)
    began = time.monotonic()
    training.await_steps()
    site.note(fault, "next checkpoint", time.monotonic() - began)
    site.await_nodes()
    assert (training.restarts(), training.rounds()) == (runs, rounds)
    assert len(training.places()) == len(NODES)


def test_a_node_is_booted_again(training: Training) -> None:
    """Its fragment trains until systemd ends it, and the others go on."""
    site, fault = training.site, "a node is booted again"
    fragment, node = training.last_rank()
    began = time.monotonic()
    node.tries("systemctl poweroff")
    training.await_round(lambda one: fragment not in one["fragments"])
    site.note(fault, "next round", time.monotonic() - began)
    node.await_off()
    node.start()
    node.await_up()
    training.await_size(len(NODES))
    site.note(fault, "on all nodes again", time.monotonic() - began)
    assert training.lost_lines() == []
