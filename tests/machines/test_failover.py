"""A second slurmctld waits on another host, with our packages, and takes over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from machines.course import LONG_S, Site, Training
from machines.guest import Guest
from machines.pages import APT_LIMIT_S, Administrator, block, on_all
from machines.root import SPARE
from waiting import wait_until

pytestmark = [pytest.mark.machines, pytest.mark.timeout(3600)]
PROMISED_S = 30 + 60.0  # SlurmctldTimeout and a minute
STATE = "/shared/slurmctld"
DROP_IN = "/etc/systemd/system/slurm-malleable.service.d/active.conf"
PAIR = f"SlurmctldHost={SPARE}\\nSlurmctldHost=ctl\\nSlurmctldTimeout=30"
FILES = "etc/slurm etc/slurm-malleable etc/tmpfiles.d/slurm-malleable.conf"


@pytest.fixture(scope="module")
def first(site: Site, debs: list[Path]) -> Iterator[Guest]:
    """The first controller, which is no file server. `ctl` is the second from now on."""
    first, second = site.machines[SPARE], site.ctl
    site.end_lasting()
    first.start()
    first.await_up()
    first.receive(debs)
    first.run("cd /root/debs && apt install -y ./*.deb", limit_s=APT_LIMIT_S)
    edit = f"s|^SlurmctldHost=.*|{PAIR}|; s|^StateSaveLocation=.*|StateSaveLocation={STATE}|"
    on_all([second, *site.nodes], f"cd /etc/slurm && sed -i.old '{edit}' slurm.conf")
    second.run(f"systemctl stop slurmctld && cp -a /var/lib/slurm/slurmctld {STATE}")
    second.run(f"tar -C / -czf /shared/site.tgz {FILES}")
    first.run("tar -C / -xzf /shared/site.tgz")
    Administrator({**site.machines, "ctl": first}).run_as_slurm_user()
    condition = block("operations.md", "active slurmctld run the tick:")
    for guest in (first, second):
        guest.write(DROP_IN, "\n".join(condition) + "\n")
        guest.run("systemctl enable slurmctld && systemctl restart slurmctld")
        guest.run(f"until scontrol ping | grep '{guest.name} is UP'; do sleep 1; done")
    on_all(site.nodes, "systemctl restart slurmd")
    first.run("systemctl enable --now slurm-malleable.timer")
    site.await_nodes()
    yield first
    first.run("systemctl disable --now slurmctld slurm-malleable.timer && sync")
    first.cut()
    on_all([second, *site.nodes], "cd /etc/slurm && mv slurm.conf.old slurm.conf")
    second.run(f"rm {DROP_IN} && systemctl daemon-reload && systemctl restart slurmctld")
    on_all(site.nodes, "systemctl restart slurmd")
    site.await_nodes()


@pytest.fixture(scope="module")
def training(first: Guest, site: Site) -> Iterator[Training]:
    """A training whose leases are renewed every two minutes."""
    with site.training("pair", options="--time=4") as training:
        yield training


def ticks(guest: Guest) -> list[float]:
    """The times of its ticks since its boot."""
    said = guest.run("journalctl -q -b -o short-unix -t slurm-malleable | grep 'tick at' || true")
    return [float(line.split()[0]) for line in said.splitlines()]


def test_ticks_go_on_after_a_power_cut(first: Guest, training: Training) -> None:
    """The second host skips its ticks, and says so. Its slurmctld takes over, and it ticks."""
    site, second, fault = training.site, training.site.ctl, "power cut of the first controller"
    lease_ends = partial(site.squeue, "%K %e", f"-j {training.job}", "-t R")
    runs, rounds, before, seen = training.restarts(), training.rounds(), lease_ends(), ticks(second)
    assert seen[-1] < ticks(first)[0]
    assert "exec-condition" in second.run("journalctl -u slurm-malleable -n 20")
    began = time.monotonic()
    first.cut()
    wait_until(lambda: len(ticks(second)) > len(seen), LONG_S, training.evidence, every_s=0.5)
    site.note(fault, "a tick on the second", time.monotonic() - began, PROMISED_S)
    wait_until(
        lambda: all(row not in before for row in lease_ends()), LONG_S, training.evidence, every_s=2
    )
    site.note(fault, "all leases are renewed", time.monotonic() - began)
    training.await_steps()
    assert (training.restarts(), training.rounds()) == (runs, rounds)


def test_ticks_return_to_the_first(first: Guest, training: Training) -> None:
    """Its slurmctld takes over again. For a moment both hosts may tick, and no fragment ends."""
    site, fault = training.site, "the first controller is back"
    runs, rounds, began = training.restarts(), training.rounds(), time.monotonic()
    first.start()
    first.await_up()
    wait_until(lambda: ticks(first), LONG_S, training.evidence, every_s=1)
    site.note(fault, "a tick on it", time.monotonic() - began)
    wait_until(lambda: len(ticks(first)) >= 6, LONG_S, training.evidence, every_s=2)
    overlap_s = ticks(site.ctl)[-1] - ticks(first)[0]
    site.note(fault, "both ticked for", max(0.0, overlap_s), 30)
    training.await_steps()
    assert (training.restarts(), training.rounds()) == (runs, rounds)
