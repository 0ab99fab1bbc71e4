"""Attacks that take minutes: a cluster full of a user's jobs, and leases that end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from abuse.conftest import Row
from kept_sandbox import cancel_jobs_of
from promises.bench import Bench, has
from slurm_hooks.model import FragmentState
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.abuse,
    pytest.mark.skipif(os.geteuid() != 0, reason="submits as another user, which needs root"),
]
USER, OTHER = "nobody", "games"
SLEEP = "exec sleep 900"
MOST_JOBS = 1500
LATE_S = 60  # slurmctld checks limits every half minute
NewSandbox = Callable[..., Sandbox]


@pytest.fixture
def full(fresh_sandbox: NewSandbox) -> Bench:
    bench = Bench(fresh_sandbox(nodes=4, extra_conf=f"MaxJobCount={MOST_JOBS}"))
    return bench


FILL = """
n=0
while timeout 3 sbatch -Q -o /dev/null --malleable={request} {script} >>ids 2>err; do
  n=$((n+1))
done
echo $n
"""


@pytest.mark.parametrize("request_", ["1-1", "1-64"])
def test_a_user_submits_until_slurm_takes_no_more(full: Bench, request_: str, row: Row) -> None:
    """Two other users' work goes on: a malleable job with its leases, and an ordinary job."""
    other = full.submit(SLEEP, "1-2", user=OTHER)
    full.tick_until(other, has(2))
    script = full.box.work / "job.sh"
    script.write_text(f"#!/bin/sh\n{SLEEP}\n")
    script.chmod(0o755)
    began = time.monotonic()
    text = FILL.format(request=request_, script=script)
    done = full.box.run(["sh", "-c", text], user=USER, timeout_s=240)
    count, filled_s = int(done.stdout), time.monotonic() - began
    assert count > MOST_JOBS / 64 / 2
    ticks: list[float] = []
    parts: list[tuple[float, str]] = []
    for _ in range(6):
        began = time.monotonic()
        report = full.tick()
        ticks.append(time.monotonic() - began)
        assert not report.lacks_rights
        parts += [(a.seconds, f"{a.argv[0]} with {a.rpcs} RPCs") for a in report.asked]
    left = sum(state is FragmentState.RUNNING for state in full.states(other))
    assert left >= 1  # its MIN, which comes before any job's extra nodes
    full.box.run(["scancel", str(other)], user=OTHER)
    cancel_jobs_of(full.box, USER)
    wait_until(lambda: full.tick() and full.box.run(
        ["squeue", "-h", f"--user={USER}", "-t", "PD,R"]).stdout == "", 60)  # fmt: skip
    longest_s, part = max(parts)
    slowest = f"ticks {min(ticks):.2f} to {max(ticks):.2f} s ({longest_s:.2f} s: {part})"
    said = f"{count} jobs in {filled_s:.0f} s, then refused; {slowest}"
    said += f"; {left} of 2 nodes left to another job of MIN 1"
    row(f"--malleable={request_} until MaxJobCount={MOST_JOBS}", said)


def test_the_lease_of_a_fragment_that_ignores_sigterm_ends_without_a_tick(
    full: Bench, row: Row
) -> None:
    job = full.submit("trap '' TERM; while :; do sleep 1; done", "1-1")
    full.tick_until(job, has(1))
    full.tick()
    (fragment,) = full.job(job).fragments
    assert fragment.end is not None
    end = fragment.end
    full.until(job, lambda j: not has(1)(j), 120 + LATE_S + 15)
    late = (full.observe().now - end).total_seconds()
    assert late <= LATE_S
    row("SIGTERM ignored to the end of the lease, no tick", f"gone {late:.0f} s after its end")


def test_a_fragment_that_its_user_requeues_does_not_start_without_a_tick(
    full: Bench, row: Row
) -> None:
    """Slurm starts a requeued job again after two minutes, unless it is held."""
    job = full.submit(SLEEP, "1-2")
    full.tick_until(job, has(2))
    full.tick()
    for index in range(2):
        full.box.run(["scontrol", "requeue", f"{job}_{index}"], user=USER)
    time.sleep(150)
    states = set(full.states(job))
    assert states == {FragmentState.HELD}
    row("requeue of both fragments, then no tick for 150 s", "both wait, held")
