"""Parts of nodes never scatter other users' jobs, on nodes of 8 GPUs.

The tests check the node of a small job, and the nodes of the next whole-node job.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from promises.bench import TRAINER, WITH_TORCHRUN, Bench, has, occupied
from sites.admin import ordinary, state_of
from slurm_hooks.model import FragmentState, MalleableJob
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = pytest.mark.slurm
NewSite = Callable[..., Sandbox]
SLEEP = "exec sleep 600"
POOL = "unit=gpu,engine=pool"
DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "train.py"
SOON_S = 20.0  # a preemption, on a busy host; a job without room waits for minutes


@pytest.fixture(scope="module")
def site(new_site: NewSite) -> Sandbox:
    return new_site(nodes=4, cpus=8, memory_mib=64000, gpus=8, kill_wait_s=3)


def without_headroom(bench: Bench) -> None:
    text = bench.box.settings.read_text()
    bench.box.settings.write_text(text.replace("\n[plan]\n", "\n[plan]\nheadroom_gpus = 0\n"))


def rigid(bench: Bench, gpus: int, node: str = "", minutes: int = 60) -> str:
    """An ordinary job of so many GPUs, with their processors."""
    where = [f"--nodelist={node}"] if node else []
    words = ("--nodes=1", f"--gres=gpu:{gpus}", f"--cpus-per-task={gpus}", f"--time={minutes}")
    return ordinary(bench.box, *words, *where, seconds=600)


def node_of(bench: Bench, job: str) -> str:
    return bench.box.run(["squeue", "-h", "-j", job, "-o", "%N"]).stdout.strip()


def goes_to(bench: Bench, job: str) -> str:
    """The node on which it starts soon, or "" if it waits."""
    deadline = time.monotonic() + SOON_S
    while state_of(bench.box, job) != "RUNNING" and time.monotonic() < deadline:
        time.sleep(0.1)
    return node_of(bench, job)


def others_have(bench: Bench, **gpus: int) -> dict[str, str]:
    """Start ordinary jobs of so many GPUs on these nodes, by node."""
    jobs = {node: rigid(bench, count, node) for node, count in gpus.items()}
    for node, job in jobs.items():
        assert goes_to(bench, job) == node
    return jobs


def places(job: MalleableJob) -> dict[str, int]:
    """The slots of running and staying fragments, by node."""
    return {node: f.size for f in job.fragments if f.is_active for node in f.nodes}


def at(**slots: int) -> Callable[[MalleableJob], bool]:
    return lambda job: places(job) == slots


def ticks(bench: Bench, count: int) -> None:
    for _ in range(count):
        bench.tick()
        time.sleep(bench.settings.tick.every_s)


@contextmanager
def ours_only_on(bench: Bench, *nodes: str) -> Iterator[None]:
    """Let malleable jobs use only these nodes, for a while."""
    for name in ("malleable", "parts"):
        bench.box.run(["scontrol", "update", f"PartitionName={name}", f"Nodes={','.join(nodes)}"])
    try:
        yield
    finally:
        for name in ("malleable", "parts"):
            bench.box.run(["scontrol", "update", f"PartitionName={name}", "Nodes=ALL"])


def small_then_whole(bench: Bench) -> tuple[str, str]:
    """The nodes of a job of 2 GPUs and of a job of 8 GPUs after it."""
    return goes_to(bench, rigid(bench, 2)), goes_to(bench, rigid(bench, 8))


def newest_round(bench: Bench, job: int) -> int:
    path = bench.directory(job) / "rounds.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return json.loads(lines[-1])["size"] if lines else 0


@pytest.mark.torch
def test_a_core_of_gpus_waits_in_the_ordinary_queue_and_grows_into_free_gpus(bench: Bench) -> None:
    """Two fragments of the core have a GPU each, wherever Slurm puts them. The training keeps them
    when an ordinary job takes the others."""
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    without_headroom(bench)
    others_have(bench, n1=5, n2=7, n3=8, n4=8)
    shutil.copy(DIGITS, bench.box.work / "train.py")
    torchrun = "torchrun --nproc-per-node=$SLURM_GPUS_ON_NODE train.py --steps=100000 --pace=0.05"
    options = ["-p", "main", "--gres=gpu:1", "--cpus-per-gpu=1", "--mem-per-gpu=100", "--time=30"]
    job = bench.submit(f"{WITH_TORCHRUN}\nexec {torchrun}", "2-4,unit=gpu,core=2", TRAINER, options)
    bench.tick_until(job, lambda j: j.size == 4)
    seen = bench.job(job)
    assert {f.lane for f in seen.core} == {"main"}
    assert [(f.size, f.asks.gpus) for f in seen.core] == [(1, 1), (1, 1)]
    assert {f.lane for f in seen.active if not f.is_core} == {"parts"}
    wait_until(lambda: newest_round(bench, job) == 4)

    others = [rigid(bench, 1), rigid(bench, 1)]
    wait_until(lambda: all(state_of(bench.box, other) == "RUNNING" for other in others))
    bench.tick_until(job, lambda j: j.size == 2)
    wait_until(lambda: newest_round(bench, job) == 2)
    assert [f.restarts for f in bench.job(job).core] == [0, 0]


def test_without_malleable_jobs_slurm_packs(bench: Bench) -> None:
    others_have(bench, n1=4, n3=8, n4=8)
    assert small_then_whole(bench) == ("n1", "n2")


def test_a_node_of_our_jobs_only_is_kept_whole_beside_parts_of_another_node(bench: Bench) -> None:
    without_headroom(bench)
    others_have(bench, n1=4, n3=8, n4=8)
    bench.tick_until(bench.submit(SLEEP, f"0-12,{POOL}"), at(n1=4, n2=8))
    assert small_then_whole(bench) == ("n1", "n2")


def test_a_node_that_others_have_left_to_ours_is_whole_again(bench: Bench) -> None:
    without_headroom(bench)
    ended = others_have(bench, n1=4, n2=4, n3=8, n4=8)["n2"]
    with ours_only_on(bench, "n2", "n3", "n4"):  # the oldest part of all is on n2
        job = bench.submit(SLEEP, f"0-12,{POOL}")
        bench.tick_until(job, at(n2=4))
    bench.tick_until(job, at(n1=4, n2=4))
    bench.box.run(["scancel", ended])
    wait_until(lambda: state_of(bench.box, ended) == "CANCELLED")
    ticks(bench, 4)
    assert small_then_whole(bench) == ("n1", "n2")


def test_a_part_of_an_idle_node_attracts_no_small_job(bench: Bench) -> None:
    others_have(bench, n1=2, n3=8, n4=8)
    bench.tick_until(bench.submit(SLEEP, f"0-4,{POOL}"), at(n2=4))
    assert small_then_whole(bench) == ("n1", "n2")


def test_no_part_is_taken_while_others_could_use_an_idle_node(bench: Bench) -> None:
    without_headroom(bench)
    others_have(bench, n1=4, n3=8, n4=8)
    with ours_only_on(bench, "n1", "n3", "n4"):
        job = bench.submit(SLEEP, f"0-4,{POOL}")
        ticks(bench, 3)
        waiting = bench.job(job).fragments
        assert {(f.state, f.restarts) for f in waiting} == {(FragmentState.HELD, 0)}
        assert small_then_whole(bench) == ("n1", "n2")


def test_parts_leave_when_a_node_has_been_idle_for_a_tick(bench: Bench) -> None:
    without_headroom(bench)
    full = others_have(bench, n1=4, n2=8, n3=8, n4=8)
    with ours_only_on(bench, "n1", "n3", "n4"):
        job = bench.submit(SLEEP, f"0-4,{POOL}")
        bench.tick_until(job, at(n1=4))
        bench.box.run(["scancel", full["n2"]])
        bench.tick_until(job, lambda job: not occupied(job))
        assert small_then_whole(bench) == ("n1", "n2")


def test_a_node_of_the_headroom_stays_whole_beside_parts(bench: Bench) -> None:
    without_headroom(bench)
    text = bench.box.settings.read_text()
    bench.box.settings.write_text(text.replace("\n[plan]\n", "\n[plan]\nheadroom_nodes = 1\n"))
    others_have(bench, n1=4, n3=8, n4=8)
    parts, whole = bench.submit(SLEEP, f"0-12,{POOL}"), bench.submit(SLEEP, "1-1")
    bench.tick_until(parts, at(n1=4))
    ticks(bench, 4)
    assert places(bench.job(parts)) == {"n1": 4}
    assert bench.states(whole) == [FragmentState.HELD]
    assert goes_to(bench, rigid(bench, 8)) == "n2"


def test_parts_leave_before_the_nodes_of_jobs_that_count_nodes(bench: Bench) -> None:
    without_headroom(bench)
    others_have(bench, n1=4, n3=8, n4=8)
    whole = bench.submit(SLEEP, "1-1")
    bench.tick_until(whole, has(1))
    parts = bench.submit(SLEEP, f"0-4,{POOL}")
    bench.tick_until(parts, at(n1=4))
    assert goes_to(bench, rigid(bench, 2)) == "n1"
    assert occupied(bench.job(whole)) == {"n2"}
    assert goes_to(bench, rigid(bench, 8)) == "n2"


def test_a_small_job_starts_in_the_headroom_without_a_preemption(bench: Bench) -> None:
    others_have(bench, n1=2, n2=8, n3=8, n4=8)
    job = bench.submit(SLEEP, f"0-8,{POOL}")
    bench.tick_until(job, at(n1=4))
    assert goes_to(bench, rigid(bench, 2)) == "n1"
    assert places(bench.job(job)) == {"n1": 4}


def test_no_more_parts_are_preempted_than_needed(bench: Bench) -> None:
    without_headroom(bench)
    others_have(bench, n1=2, n2=8, n3=8, n4=8)
    jobs = [bench.submit(SLEEP, f"0-2,{POOL}") for _ in range(3)]
    for job in jobs:
        bench.tick_until(job, at(n1=2))
    assert goes_to(bench, rigid(bench, 3)) == "n1"
    assert sum(places(bench.job(job)) == {"n1": 2} for job in jobs) == 1


def planned(bench: Bench, gpus: int) -> str:
    """An ordinary job that waits for the end of the job on n1. Slurm has planned its start."""
    waiter = rigid(bench, gpus)
    wait_until(lambda: any(p.nodes == {"n1"} for p in bench.observe().planned))
    return waiter


def test_a_planned_start_closes_its_whole_node(bench: Bench) -> None:
    without_headroom(bench)
    others_have(bench, n2=8, n3=8, n4=8)
    assert goes_to(bench, rigid(bench, 4, "n1", minutes=1)) == "n1"
    planned(bench, 6)  # two GPUs stay free beside it, and yet the node is its own
    job = bench.submit(SLEEP, f"0-2,{POOL}")
    ticks(bench, 3)
    assert bench.states(job) == [FragmentState.HELD] * 2


def test_a_gang_leaves_its_part_ahead_of_a_planned_start(bench: Bench) -> None:
    without_headroom(bench)
    others_have(bench, n2=8, n3=8, n4=8)
    assert goes_to(bench, rigid(bench, 4, "n1", minutes=2)) == "n1"
    job = bench.submit(SLEEP, "1-4,unit=gpu")
    bench.tick_until(job, at(n1=4))
    waiter = planned(bench, 8)
    bench.tick_until(job, lambda job: not occupied(job))
    assert state_of(bench.box, waiter) == "PENDING"
