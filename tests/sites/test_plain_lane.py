"""`malleable submit` where QOS decide who preempts, and nothing of this project is installed.

Needs MariaDB and slurmdbd, which `make test-sites` installs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from programs import write_program
from selfservice.test_submit_slurm import LONG_S, SLEEP, USER, Lane
from sites.admin import limited, skip_without_database
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.installation import Installation
from slurm_hooks.sandbox.project import plain_spec
from slurm_hooks.sandbox.spec import SCAVENGE, Preemption
from waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.database]
IN_LANE = ("--partition=main", f"--qos={SCAVENGE}")


@pytest.fixture(scope="module")
def box(installation: Installation) -> Iterator[Sandbox]:
    """Two nodes of two GPUs. QOS normal takes back from QOS scavenge, in the same partition."""
    skip_without_database()
    spec = plain_spec(
        nodes=2, cpus=4, gpus=2, is_accounting=True, preemption=Preemption.QOS, slurm=installation
    )
    with Sandbox.up(spec) as box:
        yield box


@pytest.fixture
def lane(box: Sandbox) -> Iterator[Lane]:
    lane = Lane(box)
    yield lane
    lane.cancel(f"--user={USER or os.geteuid()}")
    wait_until(lambda: box.run(["squeue", "-h"]).stdout == "", LONG_S)


def test_the_users_own_qos_is_refused_with_the_one_to_write(lane: Lane) -> None:
    path = lane.box.work / "refused.sh"
    write_program(path, f"#!/bin/bash\n{SLEEP}\n")
    done = lane.run("submit", "--malleable=1-2", "--partition=main", str(path))
    assert (done.returncode, done.stdout) == (os.EX_USAGE, "")
    assert "jobs of the QOS normal" in done.stderr
    assert f"write --qos={SCAVENGE}" in done.stderr


def test_more_elements_than_the_user_may_submit_are_refused(lane: Lane) -> None:
    path = lane.box.work / "many.sh"
    write_program(path, f"#!/bin/bash\n{SLEEP}\n")
    with limited(lane.box, "user", USER or "root", "MaxSubmitJobs=2"):
        done = lane.run("submit", "--malleable=1-3,unit=gpu", *IN_LANE, str(path))
    assert (done.returncode, done.stdout) == (os.EX_USAGE, "")
    assert "AssocMaxSubmitJobLimit" in done.stderr
    assert "write a smaller MAX" in done.stderr
    assert lane.box.run(["squeue", "-h"]).stdout == ""


def test_a_lease_is_not_longer_than_the_qos_allows(lane: Lane) -> None:
    with limited(lane.box, "qos", SCAVENGE, "MaxWall=10"):
        job = lane.submit(SLEEP, "1-1", *IN_LANE)
        lane.await_(job, "RUNNING")
    assert lane.box.run(["squeue", "-h", f"-j{job}", "-o%l"]).stdout.strip() == "10:00"


def gpus(lane: Lane) -> list[list[str]]:
    return sorted(path.read_text().split() for path in lane.box.work.glob("gpu.*"))


def test_elements_of_a_gpu_fill_nodes_in_part_and_give_them_back(lane: Lane) -> None:
    ordinary = lane.fill("--gpus-per-node=1", "--ntasks=1", "--qos=normal")
    wait_until(lambda: lane.states(ordinary) == ["RUNNING"], LONG_S)
    script = f'echo "$SLURMD_NODENAME $CUDA_VISIBLE_DEVICES" >gpu.$SLURM_ARRAY_TASK_ID\n{SLEEP}'
    job = lane.submit(script, "1-4,unit=gpu", *IN_LANE)
    rows = lane.await_(job, "RUNNING", "RUNNING", "RUNNING", "PENDING")
    wait_until(lambda: [len(words) for words in gpus(lane)] == [2, 2, 2], LONG_S)
    assert [node for node, _ in gpus(lane)] == sorted(row[4] for row in rows if row[4])
    assert len({(node, gpu) for node, gpu in gpus(lane)}) == 3
    another = lane.fill("--gpus-per-node=1", "--ntasks=1", "--qos=normal")
    wait_until(lambda: lane.states(another) == ["RUNNING"], LONG_S)
    lane.await_(job, "RUNNING", "RUNNING", "PENDING", "PENDING")
    lane.cancel(ordinary, another)
    lane.await_(job, "RUNNING", "RUNNING", "RUNNING", "RUNNING")
