"""Limits on running jobs: who waits for one does not wait for fragments.

Needs MariaDB and slurmdbd, which `make test-sites` installs.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator

import pytest

from promises.bench import Bench, has
from sites.admin import render, set_site, state_of, submit
from slurm_hooks.model import FragmentState
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.database,
    pytest.mark.skipif(os.geteuid() != 0, reason="jobs of several users"),
]
NewSite = Callable[..., Sandbox]
RUNNING, HELD = FragmentState.RUNNING, FragmentState.HELD
SLEEP = "exec sleep 600"
BOB = "daemon"  # a user that every host has, beside nobody


@pytest.fixture(scope="module")
def site(new_site: NewSite) -> Sandbox:
    """Four nodes; partitions decide who preempts whom, and both users have the account lab."""
    for program in ("slurmdbd", "mariadbd"):
        if shutil.which(program, path="/usr/sbin:/usr/bin") is None:
            pytest.skip(f"{program} is not installed: make test-sites installs it")
    box = new_site(nodes=4, is_accounting=True)
    sacctmgr(box, "add", "user", BOB, "Account=lab")
    return box


@pytest.fixture
def bench(site: Sandbox) -> Iterator[Bench]:
    bench = Bench(site)
    yield bench
    bench.cancel_all()


def sacctmgr(box: Sandbox, *words: str) -> str:
    return box.run(["sacctmgr", "-i", "-nP", *words]).stdout


def reason_of(box: Sandbox, job: str) -> str:
    return box.run(["squeue", "-h", "-j", job, "-o", "%r"]).stdout.strip()


def ordinary(bench: Bench, *words: str, seconds: int = 8, user: str = BOB) -> str:
    said = submit(bench.box, "-p", "main", *words, user=user, script=f"exec sleep {seconds}")
    assert said.returncode == 0, said.stderr
    return said.stdout.strip()


def waits_for(bench: Bench, job: str, reason: str) -> None:
    wait_until(
        lambda: reason_of(bench.box, job) == reason,
        60,
        lambda: reason_of(bench.box, job),
        every_s=0.5,
    )


def tick_until_it_runs(bench: Bench, job: str, limit_s: float = 90) -> None:
    """Ticks until an ordinary job has started."""
    wait_until(
        lambda: bench.tick() and state_of(bench.box, job) == "RUNNING",
        limit_s,
        lambda: reason_of(bench.box, job),
        every_s=0.5,
    )


def test_a_limit_of_the_account_keeps_nobody_waiting(bench: Bench) -> None:
    """Two nodes for the account, two fragments: somebody else's job starts, then they come back."""
    sacctmgr(bench.box, "modify", "account", "lab", "set", "GrpTRES=node=2")
    try:
        job = bench.submit(SLEEP, "1-4")
        bench.tick_until(job, has(2))
        other = ordinary(bench, "-N1")
        waits_for(bench, other, "AssocGrpNodeLimit")
        began = time.monotonic()
        bench.tick()
        told = bench.malleable("explain", str(job)).stdout
        assert f"make room for job {other} of {BOB}" in " ".join(told.split())
        tick_until_it_runs(bench, other)
        print(f"started {time.monotonic() - began:.0f} s after the tick that saw it wait")
        wait_until(lambda: state_of(bench.box, other) == "COMPLETED", 40, every_s=0.5)
        bench.tick_until(job, has(2), 90)
    finally:
        sacctmgr(bench.box, "modify", "account", "lab", "set", "GrpTRES=node=-1")


def test_they_stay_away_as_long_as_somebody_waits(bench: Bench) -> None:
    """Three jobs one after the other where two nodes are allowed: no fragment between them."""
    sacctmgr(bench.box, "modify", "account", "lab", "set", "GrpTRES=node=2")
    try:
        job = bench.submit(SLEEP, "1-4")
        bench.tick_until(job, has(2))
        others = [ordinary(bench, "-N2") for _ in range(3)]
        waits_for(bench, others[0], "AssocGrpNodeLimit")
        tick_until_it_runs(bench, others[0])
        restarts = {f.id: f.restarts for f in bench.job(job).fragments}
        tick_until_it_runs(bench, others[2])
        assert {f.id: f.restarts for f in bench.job(job).fragments} == restarts
        assert has(0)(bench.job(job))
        bench.tick_until(job, has(2), 120)
    finally:
        sacctmgr(bench.box, "modify", "account", "lab", "set", "GrpTRES=node=-1")


def test_a_limit_of_the_user_counts_only_the_user_s_fragments(bench: Bench) -> None:
    sacctmgr(bench.box, "modify", "user", "nobody", "set", "MaxJobs=1")
    try:
        own = bench.submit(SLEEP, "1-2")
        bench.tick_until(own, has(1))
        foreign = bench.submit(SLEEP, "1-1", user=BOB)
        bench.tick_until(foreign, has(1))
        other = ordinary(bench, "-N1", user="nobody")
        waits_for(bench, other, "AssocMaxJobsLimit")
        tick_until_it_runs(bench, other)
        assert has(1)(bench.job(foreign))
    finally:
        sacctmgr(bench.box, "modify", "user", "nobody", "set", "MaxJobs=-1")


def test_with_an_account_of_their_own_nobody_waits_and_nobody_leaves(bench: Bench) -> None:
    sacctmgr(bench.box, "add", "account", "leftovers")
    sacctmgr(bench.box, "add", "user", f"nobody,{BOB}", "Account=leftovers")
    sacctmgr(bench.box, "modify", "account", "lab", "set", "GrpTRES=node=2")
    set_site(bench, account='"leftovers"')
    try:
        assert render(bench).stderr == ""
        time.sleep(1)
        refused = submit(bench.box, "--malleable=1-2", "--account=lab")
        assert "--account=lab: malleable jobs are charged to account leftovers" in refused.stderr
        job = bench.submit(SLEEP, "1-2")
        bench.tick_until(job, has(2))
        charged = bench.box.run(["squeue", "-h", "-j", str(job), "-O", "account:20"]).stdout.split()
        assert set(charged) == {"leftovers"}
        other = ordinary(bench, "-N2")
        tick_until_it_runs(bench, other, 30)
        assert has(2)(bench.job(job))
    finally:
        set_site(bench, account='""')
        render(bench)
        sacctmgr(bench.box, "modify", "account", "lab", "set", "GrpTRES=node=-1")
