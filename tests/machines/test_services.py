"""Daemons of Slurm, munge and the file server are away for a while. Packets get lost."""

from __future__ import annotations

import re
import time

import pytest

from machines.course import LONG_S, Site, Training
from machines.root import NODES
from waiting import wait_until

pytestmark = [pytest.mark.machines, pytest.mark.timeout(3600)]
NETEM = "tc qdisc {} dev vec0 root netem loss 10% delay 100ms 50ms"
NFS = "systemctl {} nfs-server"
PROMISED_S = 20.0
BACK_S = 120.0
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
    """Its fragment trains until systemd ends it, and the others go on. systemd may end the agent
    while it holds the lock. The node is on again before the promise is checked, for later tests.
    """
    site, fault = training.site, "a node is booted again"
    fragment, node = training.last_rank()
    began = time.monotonic()
    node.tries("systemctl poweroff")
    training.await_round(lambda one: fragment not in one["fragments"])
    took_s = time.monotonic() - began
    node.await_off()
    node.start()
    node.await_up()
    training.await_size(len(NODES))
    site.note(fault, "on all nodes again", time.monotonic() - began)
    site.note(fault, "next round", took_s, PROMISED_S)
    assert training.lost_lines() == []


def test_leases_end_while_slurmctld_is_away(site: Site) -> None:
    """The fragments stop by themselves, and write their last step. They go on with it later."""
    fault, slurmctld = "slurmctld away while leases end", "systemctl {} slurmctld"
    with site.training("leases", "train_more.py", "--time=3") as training:
        training.await_steps()
        site.ctl.run(slurmctld.format("stop"))
        try:
            leave = "because its lease ends"
            wait_until(
                lambda: training.logs().count(leave) == len(NODES), LONG_S, training.logs, every_s=2
            )
        finally:
            site.ctl.run(slurmctld.format("start"))
        began, rounds = time.monotonic(), len(training.rounds())
        (kept,) = re.findall(r"step (\d+) is saved in", training.logs())
        training.await_round(lambda one: len(training.rounds()) > rounds)
        site.note(fault, "next round after its return", time.monotonic() - began, BACK_S)
        training.await_steps()
        site.note(fault, "next checkpoint", time.monotonic() - began)
        starts = re.findall(r"step (\d+) of", training.logs())
        assert int(starts[-1]) >= int(kept)
        assert "died" not in site.ctl.run(f"malleable explain {training.job}")
