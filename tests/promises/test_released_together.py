"""On a real Slurm: a command releases several fragments, on given nodes, for a given time."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from datetime import timedelta

import pytest

from promises.bench import Bench, has, occupied
from slurm_hooks.model import FragmentState
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.tick.reconcile import tick
from waiting import wait_until

pytestmark = pytest.mark.slurm
SLEEP = "exec sleep 600"
NODES = {"n1", "n2", "n3", "n4"}


def scontrol(bench: Bench, words: str) -> subprocess.CompletedProcess[str]:
    return bench.box.run(["scontrol", *words.split()])


def asked(bench: Bench, job: int) -> set[str]:
    """The node lists that elements ask for. A range that has such a list cannot be changed."""
    said = bench.box.run(["squeue", "-h", "--array", f"--jobs={job}", "-o%n"]).stdout
    return set(said.split()) - {"(null)"}


def test_a_single_line_gives_nodes_to_all_and_another_releases_them(bench: Bench) -> None:
    job = bench.submit(SLEEP, "1-4")
    written = [a.rpcs for a in bench.tick().asked if a.argv == ("scontrol",)]
    assert written == [1, 1]  # their nodes; all released, if Slurm did not refuse the nodes
    bench.until(job, has(4))
    assert occupied(bench.job(job)) == NODES
    assert asked(bench, job) == set()


def test_fragments_of_two_nodes_share_four(bench: Bench) -> None:
    job = bench.submit(SLEEP, "2-4,unit=2")
    written = [a.rpcs for a in bench.tick().asked if a.argv == ("scontrol",)]
    assert written == [1, 1]
    bench.until(job, has(2))
    assert [len(f.nodes) for f in bench.job(job).fragments] == [2, 2]
    assert occupied(bench.job(job)) == NODES
    assert asked(bench, job) == set()


def test_a_pair_that_lost_a_node_waits_for_both_nodes(bench: Bench) -> None:
    job = bench.submit(SLEEP, "2-4,unit=2")
    try:
        tick(bench.live, bench.settings, announce=_draining(bench, "n3"))
        bench.until(job, has(1))
        (waiting,) = (f for f in bench.job(job).fragments if f.state is FragmentState.PENDING)
        assert waiting.nodes == {"n3"} | (NODES - occupied(bench.job(job)) - {"n3"})
        assert len(waiting.nodes) == 2
    finally:
        scontrol(bench, "update nodename=n3 state=resume")
    wait_until(lambda: occupied(bench.job(job)) == NODES, every_s=0.5)


def test_a_node_list_of_another_program_keeps_no_fragment_from_starting(bench: Bench) -> None:
    """An operator has narrowed a held fragment to nodes that are taken, as ticks did before."""
    bench.box.run(["sbatch", "--exclusive", "--nodelist=n[1-2]", "--wrap", SLEEP])
    wait_until(lambda: bench.box.run(["squeue", "-ht", "running"]).stdout != "")
    job = bench.submit(SLEEP, "2-4,unit=2")
    scontrol(bench, f"update jobid={job}_0 reqnodelist=n[1-2]")
    bench.tick_until(job, has(1))
    assert occupied(bench.job(job)) == {"n3", "n4"}
    assert asked(bench, job) == set()


def test_holes_that_end_at_different_times_have_separate_leases(bench: Bench) -> None:
    scontrol(
        bench,
        "create reservation reservationname=r1 starttime=now+110 duration=1 users=root nodes=n1,n2",
    )
    try:
        job = bench.submit(SLEEP, "1-4", options=["--time-min=1"])
        bench.tick()
        bench.until(job, has(4))
        limits = {name: f.limit for f in bench.job(job).fragments for name in f.nodes}
        short, long = timedelta(minutes=1), timedelta(minutes=2)
        assert limits == {"n1": short, "n2": short, "n3": long, "n4": long}
    finally:
        scontrol(bench, "delete reservationname=r1")


def test_nodes_that_the_user_excludes_stay_excluded(bench: Bench) -> None:
    job = bench.submit(SLEEP, "1-4", options=["--exclude=n[1,3]"])
    bench.tick()
    bench.until(job, has(2))
    assert occupied(bench.job(job)) == {"n2", "n4"}
    bench.box.run(["scontrol", "requeue", f"{job}_0"])
    bench.box.run(["scontrol", "requeue", f"{job}_1"])
    bench.until(job, has(0))
    bench.tick_until(job, has(2))
    assert occupied(bench.job(job)) == {"n2", "n4"}


def test_a_fragment_whose_node_is_lost_waits_for_that_node(bench: Bench) -> None:
    """The group's other nodes belong to its other fragments. Its free node is not given away."""
    job = bench.submit(SLEEP, "1-4")
    try:
        tick(bench.live, bench.settings, announce=_draining(bench, "n3"))
        bench.until(job, has(3))
        (waiting,) = (f for f in bench.job(job).fragments if f.state is FragmentState.PENDING)
        assert waiting.nodes == {"n3"}
        assert occupied(bench.job(job)) == NODES - {"n3"}
    finally:
        scontrol(bench, "update nodename=n3 state=resume")
    wait_until(lambda: occupied(bench.job(job)) == NODES, every_s=0.5)


def _draining(bench: Bench, node: str) -> Callable[[str], None]:
    """An operator drains a node that the tick is about to give, before its first write."""

    def drain(command: str) -> None:
        if command == "scontrol" and not drained:
            drained.append(command)
            scontrol(bench, f"update nodename={node} state=drain reason=test")

    drained: list[str] = []
    return drain


CLOUD = """
SuspendTime=-1
SuspendProgram=/bin/true
ResumeProgram=/bin/true
NodeName=c[1-2] CPUs=2 RealMemory=2000 State=CLOUD
NodeName=f1 CPUs=2 RealMemory=2000 State=FUTURE
"""


def test_no_cloud_node_is_started_for_a_waiting_fragment(
    fresh_sandbox: Callable[..., Sandbox],
) -> None:
    """Slurm shows no powered-down node, and would power up a node for a fragment whose node was
    taken.
    """
    box = fresh_sandbox(nodes=2, extra_conf=CLOUD)
    bench = Bench(box)

    def take(command: str) -> None:
        if command == "scontrol" and not taken:
            taken.append(command)
            box.run(["sbatch", "--exclusive", "--nodelist=n2", "--wrap", SLEEP])
            wait_until(lambda: box.run(["squeue", "-ht", "running"]).stdout != "")

    taken: list[str] = []
    job = bench.submit(SLEEP, "1-2")
    tick(bench.live, bench.settings, announce=take)
    bench.until(job, has(1))
    said = box.run(["squeue", "-h", "--array", f"--jobs={job}", "-o%T|%N|%x"]).stdout.split()
    assert sorted(said) == ["PENDING||c[1-2],f1", "RUNNING|n1|c[1-2],f1"]
    seen = bench.observe()
    assert seen.hidden | {n.name for n in seen.nodes} == {"n1", "n2", "c1", "c2", "f1"}
    assert {"n1", "n2"}.isdisjoint(seen.hidden)
