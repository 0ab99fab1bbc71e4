"""The first day: the installation by the pages, doctor, a user's first training."""

from __future__ import annotations

import json
import time

import pytest

from machines.course import Site, Training
from machines.root import NODES
from waiting import wait_until

pytestmark = [pytest.mark.machines, pytest.mark.timeout(3600)]
STEPS = 60


def test_doctor_has_no_finding(site: Site) -> None:
    said = json.loads(site.ctl.run("malleable doctor --json"))
    assert not [one for one in said["checks"] if one["result"] in ("error", "warning")]


def test_cgroup_v2_and_systemd_are_real(site: Site) -> None:
    node = site.machines["c1"]
    assert node.run("stat -f -c %T /sys/fs/cgroup").strip() == "cgroup2fs"
    assert node.run("cat /proc/1/comm").strip() == "systemd"
    assert node.run("stat -f -c %T /shared").strip() == "nfs"


def test_a_node_has_what_jobs_need(site: Site) -> None:
    """As packages.md says, this command needs one package more on a node."""
    node = site.machines["c1"]
    node.run("cd /root/debs && apt install -y ./slurm-malleable_*.deb", limit_s=1200)
    node.run("cd /shared/home/ann && malleable doctor --node", "ann")


def test_a_training_of_a_user_begins_and_ends(site: Site) -> None:
    site.await_nodes("idle")
    training = Training(site, "first")
    began = time.monotonic()
    training.submit(STEPS, is_plain=True)
    training.await_round(lambda one: one["size"] >= 2)
    site.note("none", "sbatch to a round of two nodes or more", time.monotonic() - began)
    result = f"{training.home}/result.json"
    wait_until(lambda: site.ctl.tries(f"test -e {result}"), 600, training.evidence, every_s=2)
    assert json.loads(site.ctl.run(f"cat {result}"))["steps"] == STEPS
    wait_until(
        lambda: not site.squeue("%i", f"-j {training.job}"), 300, training.evidence, every_s=2
    )
    assert training.lost_lines() == []


def test_every_node_can_be_taken(site: Site) -> None:
    site.await_nodes("idle")
    done = site.ctl.run(f"srun -N {len(NODES)} hostname", "ann")
    assert sorted(done.split()) == list(NODES)
