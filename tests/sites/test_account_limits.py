"""Limits on running jobs: a job that waits for such a limit does not wait for fragments.

Needs MariaDB and slurmdbd, which `make test-sites` installs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest

from promises.bench import Bench, has
from sites.admin import (
    limited,
    ordinary,
    render,
    sacctmgr,
    set_site,
    skip_without_database,
    state_of,
    submit,
)
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.database,
    pytest.mark.skipif(os.geteuid() != 0, reason="jobs of several users"),
]
NewSite = Callable[..., Sandbox]
SLEEP = "exec sleep 600"
TWO_NODES = "GrpTRES=node=2"
BOB = "daemon"  # a user that every host has, in addition to nobody


@pytest.fixture(scope="module")
def site(new_site: NewSite) -> Sandbox:
    """Four nodes. Partitions decide the preemption, and both users have the account lab."""
    skip_without_database()
    box = new_site(nodes=4, is_accounting=True)
    sacctmgr(box, "add", "user", BOB, "Account=lab")
    return box


@pytest.fixture
def full(bench: Bench) -> Iterator[int]:
    """A malleable job that has the two nodes that its account may have."""
    with limited(bench.box, "account", "lab", TWO_NODES):
        job = bench.submit(SLEEP, "1-4")
        bench.tick_until(job, has(2))
        yield job


def reason_of(box: Sandbox, job: str) -> str:
    return box.run(["squeue", "-h", "-j", job, "-o", "%r"]).stdout.strip()


def waits_for(bench: Bench, job: str, reason: str) -> None:
    wait_until(
        lambda: reason_of(bench.box, job) == reason,
        explain=lambda: reason_of(bench.box, job),
        every_s=0.5,
    )


def tick_until_it_runs(bench: Bench, job: str, limit_s: float = 90) -> None:
    """Tick until an ordinary job has started."""
    wait_until(
        lambda: bench.tick() and state_of(bench.box, job) == "RUNNING",
        limit_s,
        lambda: reason_of(bench.box, job),
        every_s=0.5,
    )


def test_a_limit_of_the_account_delays_no_job(bench: Bench, full: int) -> None:
    """Another user's job starts, then the fragments come back."""
    other = ordinary(bench.box, "-N1", seconds=8, user=BOB)
    waits_for(bench, other, "AssocGrpNodeLimit")
    began = time.monotonic()
    bench.tick()
    explanation = bench.malleable("explain", str(full)).stdout
    assert f"make room for job {other} of {BOB}" in " ".join(explanation.split())
    tick_until_it_runs(bench, other)
    print(f"started {time.monotonic() - began:.0f} s after the tick that saw it wait")
    wait_until(lambda: state_of(bench.box, other) == "COMPLETED", every_s=0.5)
    bench.tick_until(full, has(2))


def test_fragments_stay_away_as_long_as_a_job_waits_for_the_limit(bench: Bench, full: int) -> None:
    """Three jobs run in turn, and no fragment between them."""
    others = [ordinary(bench.box, "-N2", seconds=8, user=BOB) for _ in range(3)]
    waits_for(bench, others[0], "AssocGrpNodeLimit")
    tick_until_it_runs(bench, others[0])
    restarts = {f.id: f.restarts for f in bench.job(full).fragments}
    tick_until_it_runs(bench, others[2])
    assert {f.id: f.restarts for f in bench.job(full).fragments} == restarts
    assert has(0)(bench.job(full))
    bench.tick_until(full, has(2))


def test_a_limit_of_the_user_counts_only_the_user_s_fragments(bench: Bench) -> None:
    with limited(bench.box, "user", "nobody", "MaxJobs=1"):
        own = bench.submit(SLEEP, "1-2")
        bench.tick_until(own, has(1))
        foreign = bench.submit(SLEEP, "1-1", user=BOB)
        bench.tick_until(foreign, has(1))
        other = ordinary(bench.box, "-N1", seconds=8, user="nobody")
        waits_for(bench, other, "AssocMaxJobsLimit")
        tick_until_it_runs(bench, other)
        assert has(1)(bench.job(foreign))


def test_with_separate_accounts_no_job_waits_and_no_fragment_leaves(bench: Bench) -> None:
    sacctmgr(bench.box, "add", "account", "leftovers")
    sacctmgr(bench.box, "add", "user", f"nobody,{BOB}", "Account=leftovers")
    set_site(bench, account='"leftovers"')
    try:
        assert render(bench).stderr == ""
        time.sleep(1)
        refused = submit(bench.box, "--malleable=1-2", "--account=lab")
        assert "--account=lab: malleable jobs are charged to account leftovers" in refused.stderr
        with limited(bench.box, "account", "lab", TWO_NODES):
            job = bench.submit(SLEEP, "1-2")
            bench.tick_until(job, has(2))
            charged = bench.box.run(["squeue", "-h", f"--jobs={job}", "-O", "account:20"]).stdout
            assert set(charged.split()) == {"leftovers"}
            other = ordinary(bench.box, "-N2", seconds=8, user=BOB)
            tick_until_it_runs(bench, other, 30)
            assert has(2)(bench.job(job))
    finally:
        set_site(bench, account='""')
        render(bench)
