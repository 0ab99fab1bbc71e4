"""Machines with different nodes: overlapping partitions, features, switches, licences."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from promises.bench import TRAINER, Bench, has, occupied, usual_training
from sites.admin import render, set_site, submit
from slurm_hooks.model import MalleableJob
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = pytest.mark.slurm
NewSite = Callable[..., Sandbox]
SLEEP = "exec sleep 600"
OURS = "PriorityTier=1 PreemptMode=REQUEUE GraceTime=0 OverSubscribe=EXCLUSIVE MaxTime=INFINITE"
CONF = f"""
PartitionName=left Nodes=n[1-4] {OURS}
PartitionName=right Nodes=n[3-6] {OURS}
PartitionName=safe Nodes=n[1-2] PriorityTier=1 PreemptMode=OFF
Licenses=matlab:2
TopologyPlugin=topology/tree
"""
TOPOLOGY = (
    "SwitchName=s1 Nodes=n[1-3]\nSwitchName=s2 Nodes=n[4-6]\nSwitchName=top Switches=s[1-2]\n"
)
LEFT, RIGHT = {"n1", "n2", "n3", "n4"}, {"n3", "n4", "n5", "n6"}
FEATURES = {"n1": "fast,big", "n2": "fast", "n3": "big", "n4": "old", "n5": "old", "n6": "old"}


@pytest.fixture(scope="module")
def site(new_site: NewSite) -> Sandbox:
    """Six nodes below two switches, in partitions that overlap, some of them fast or big."""
    files = (("topology.conf", TOPOLOGY),)
    box = new_site(nodes=6, extra_conf=CONF, extra_files=files, kill_wait_s=3)
    for node, features in FEATURES.items():
        words = (f"availablefeatures={features}", f"activefeatures={features}")
        box.run(["scontrol", "update", f"nodename={node}", *words])
    bench = Bench(box)
    set_site(bench, partitions='["malleable", "left", "right"]')
    assert render(bench).stderr == ""
    return box


# -- several partitions


def test_partitions_that_overlap_share_no_node(bench: Bench) -> None:
    bench.share_at_once()  # three jobs fill all six nodes within seconds
    left = bench.submit(SLEEP, "1-6", options=["-p", "left"])
    right = bench.submit(SLEEP, "1-6", options=["-p", "right"])
    both = bench.submit(SLEEP, "1-6")
    seen: list[tuple[set[str], set[str], set[str]]] = []

    def is_shared(job: MalleableJob) -> bool:
        names = tuple(occupied(bench.job(one)) for one in (left, right, both))
        seen.append((names[0], names[1], names[2]))
        return sum(map(len, names)) == 6 and all(names[:2])

    bench.tick_until(left, is_shared)
    for one, two, three in seen:
        assert one <= LEFT
        assert two <= RIGHT
        assert len(one | two | three) == len(one) + len(two) + len(three)


def test_a_partition_that_cannot_be_preempted_is_found(bench: Bench) -> None:
    set_site(bench, partitions='["malleable", "left", "right", "safe"]')
    try:
        said = render(bench).stderr
        assert "partition safe is not for malleable jobs" in said
        assert "PartitionName=safe PreemptMode=OFF: Slurm preempts no job there" in said
        refused = submit(bench.box, "--malleable=1-2", "-p", "safe")
        assert "--partition=safe: malleable jobs cannot run there" in refused.stderr
        assert submit(bench.box, "--malleable=1-2", "-p", "left").returncode == 0
    finally:
        set_site(bench, partitions='["malleable", "left", "right"]')
        assert render(bench).stderr == ""


# -- features


@pytest.mark.parametrize(
    ("constraint", "nodes"),
    [
        ("fast", {"n1", "n2"}),
        ("fast&big", {"n1"}),
        ("fast|big", {"n1", "n2", "n3"}),
        ("[fast|old]", {"n1", "n2", "n4", "n5", "n6"}),  # for Slurm to judge, node by node
        ("(fast|old)&big", {"n1"}),
    ],
)
def test_a_constraint_gets_the_matching_nodes(
    bench: Bench, constraint: str, nodes: set[str]
) -> None:
    job = bench.submit(SLEEP, "1-6", options=[f"--constraint={constraint}"])
    bench.tick_until(job, has(len(nodes)))
    assert occupied(bench.job(job)) == nodes


def test_a_feature_that_no_node_has_is_refused_by_slurm(bench: Bench) -> None:
    said = submit(bench.box, "--malleable=1-2", "--constraint=gold")
    assert said.returncode != 0
    assert "Invalid feature specification" in said.stderr


# -- switches


def test_below_two_switches_a_job_grows_over_both(bench: Bench) -> None:
    job = bench.submit(SLEEP, "1-6")
    bench.tick_until(job, has(6))


def test_a_job_has_its_nodes_on_the_same_switch_and_trains_there(bench: Bench) -> None:
    pytest.importorskip("torch")
    work = bench.box.work / "usual"
    job = bench.submit(usual_training(work, 30, "watch"), "3-3", TRAINER, ["-p", "right"])
    bench.tick_until(job, has(3))
    assert occupied(bench.job(job)) == {"n4", "n5", "n6"}
    wait_until((work / "finished").exists, explain=lambda: bench.malleable("explain", str(job)))
    assert json.loads((work / "finished").read_text()) == {"off": 0, "steps": 30}


def test_wide_fragments_below_two_switches(bench: Bench) -> None:
    job = bench.submit(SLEEP, "2-6", options=["-p", "malleable"])
    wide = bench.submit(SLEEP, "2-4,unit=2,launch=srun", options=["-p", "malleable"])
    bench.tick_until(wide, has(1))
    assert not occupied(bench.job(wide)) & occupied(bench.job(job))


def test_switches_are_refused_in_a_line(bench: Bench) -> None:
    said = submit(bench.box, "--malleable=1-2", "--switches=1")
    assert said.returncode != 0
    assert "--switches: idle nodes cannot be chosen by switch" in said.stderr


# -- licences


def test_licences_are_refused_in_a_line(bench: Bench) -> None:
    """A job that waits for a licence preempts no fragment. It would wait for renewed leases."""
    said = submit(bench.box, "--malleable=1-6", "--licenses=matlab:1")
    assert said.returncode != 0
    assert "--licenses=matlab:1: Slurm preempts only for nodes" in said.stderr
