"""A scheduler as a GPU cluster of 3,000 nodes sets it: it defers, and backfills every 90 s.

Each figure stands beside the same on an empty machine with the same scheduler.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from promises.bench import Bench, has, occupied
from slurm_hooks.model import FragmentState
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.nightly]
NewSite = Callable[..., Sandbox]
SLEEP = "exec sleep 900"
CONF = """
SchedulerParameters=defer,sched_min_interval=5000000,bf_interval=90,bf_max_job_user=128,\
max_rpc_cnt=64,bf_ignore_newly_avail_nodes
"""
PASS_S = 5  # from a pass of the scheduler to the next


@pytest.fixture(scope="module")
def site(new_site: NewSite) -> Sandbox:
    return new_site(nodes=4, extra_conf=CONF)


@pytest.fixture
def bench(site: Sandbox) -> Iterator[Bench]:
    bench = Bench(site).patient()
    yield bench
    bench.cancel_all()


def start_s(bench: Bench) -> float:
    """Seconds from the submission of an ordinary job to its start."""
    argv = ["sbatch", "-p", "main", "-N1", "--time=5", "--parsable", "--wrap", "sleep 300"]
    began = time.monotonic()
    number = bench.box.run(argv).stdout.strip()
    asked = ["squeue", "-hj", number, "-o%T"]
    wait_until(lambda: bench.box.run(asked).stdout == "RUNNING\n")
    return time.monotonic() - began


def test_an_ordinary_job_waits_as_for_other_preempted_jobs(bench: Bench) -> None:
    alone = [start_s(bench) for _ in range(3)]
    bench.cancel_all()
    for _ in bench.box.nodes:
        argv = ["sbatch", "-p", "malleable", "-N1", "--time=5", "--requeue", "--wrap", "sleep 300"]
        bench.box.run(argv)
    wait_until(lambda: len(bench.box.run(["squeue", "-ht", "R"]).stdout.split("\n")) == 5)
    others = [start_s(bench) for _ in range(3)]
    bench.box.run(["scancel", "--partition=malleable"])
    bench.cancel_all()
    job = bench.submit(SLEEP, "1-4")
    bench.tick_until(job, has(4))
    ours = [start_s(bench) for _ in range(3)]
    print(f"started after {alone} s alone, {others} s in place of others, {ours} s of ours")
    assert max(ours) < max(others) + PASS_S


def test_a_lease_ends_on_time_without_ticks(bench: Bench) -> None:
    job = bench.submit(SLEEP, "1-1")
    bench.tick_until(job, has(1))
    (fragment,) = bench.job(job).fragments
    assert fragment.end is not None
    bench.until(job, has(1, FragmentState.TIMED_OUT), 120 + 35 + PASS_S)
    (ended,) = bench.job(job).fragments
    assert ended.end is not None
    assert ended.end - fragment.end <= timedelta(seconds=35)  # the purpose of lease.margin_s
    bench.tick_until(job, has(1))  # a timed-out fragment cannot be cancelled


def test_fragments_leave_before_a_reservation_begins(bench: Bench) -> None:
    job = bench.submit(SLEEP, "1-4", options=["--time-min=1"])
    bench.tick_until(job, has(4))
    asked = "reservationname=soon starttime=now+120 duration=5 nodes=n1 users=root"
    bench.box.run(["scontrol", "create", "reservation", *asked.split()])
    show = ["scontrol", "-o", "show", "reservations"]
    try:
        wait_until(lambda: bench.tick() and "State=ACTIVE" in bench.box.run(show).stdout, every_s=2)
        assert occupied(bench.job(job)) == {"n2", "n3", "n4"}
    finally:
        bench.box.run(["scontrol", "delete", "reservation=soon"])
