"""Lanes with their own terms, in a real Slurm: the wait of a job, and the time of fragments.

The promise is `Terms.longest_wait`, plus a tick, in which the scheduler runs too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from promises.bench import Bench, has
from promises.test_planned_starts import (
    LATE_S,
    empty_start,
    epoch,
    is_running,
    rigid,
    start_after,
    tell_cheap_interruptions,
)
from slurm_hooks.model import Terms
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = pytest.mark.slurm
NewSite = Callable[..., Sandbox]
NODES = 4
GRACE_S = 20
TICK_S = 2
DEAF = "trap '' TERM URG; for ((i = 0; i < 600; i++)); do sleep 1; done"
# Its batch shell survives. Its words after an urgent signal are in {log}.
HEARS = "trap 'date +%s.%N >> {log}; exit 0' URG; for ((i = 0; i < 6000; i++)); do sleep 0.1; done"


@pytest.fixture(scope="module")
def site(new_site: NewSite) -> Sandbox:
    return new_site(nodes=NODES)


@pytest.fixture
def bench(site: Sandbox) -> Iterator[Bench]:
    bench = Bench(site).patient()
    yield bench
    bench.cancel_all()


@contextmanager
def lane(bench: Bench, grace_s: int = 0, exempt: str = "", more: str = "") -> Iterator[Terms]:
    """The terms of the lane for a while, as a tick reads them."""
    conf = Path(bench.box.environment["SLURM_CONF"])
    plain = conf.read_text()
    line = f"PreemptExemptTime={exempt}" if exempt else ""
    try:
        conf.write_text(f"{plain}\n{line}\n{more}\n")
        bench.box.run(["scontrol", "reconfigure"])
        change = ["update", "partitionname=malleable", f"gracetime={grace_s}"]
        bench.box.run(["scontrol", *change])
        (terms,) = bench.observe().terms
        yield terms
    finally:
        bench.cancel_all()
        conf.write_text(plain)
        bench.box.run(["scontrol", "reconfigure"])
        bench.box.run(["scontrol", "update", "partitionname=malleable", "gracetime=0"])


def fill(bench: Bench, script: str) -> int:
    job = bench.submit(script, f"1-{NODES}")
    bench.tick_until(job, has(NODES))
    return job


def wait_of(bench: Bench, does_tick: bool) -> float:
    """Seconds that a job waits for all nodes."""
    job = rigid(bench, str(NODES), "sleep 1")

    def has_begun() -> bool:
        said = bench.box.run(["squeue", "-h", "--states=all", f"--jobs={job}", "-o%T"]).stdout
        if does_tick:
            bench.tick()
        return said.strip() in ("RUNNING", "COMPLETED", "COMPLETING")

    wait_until(has_begun, every_s=1)
    return epoch(bench, job, "StartTime") - epoch(bench, job, "SubmitTime")


def promised_s(bench: Bench, terms: Terms, lease_s: float) -> float:
    kill_wait = bench.observe().slurm.kill_wait
    return terms.longest_wait(kill_wait, timedelta(seconds=lease_s)).total_seconds()


def test_a_fragment_has_its_grace_and_a_job_waits_as_promised(bench: Bench) -> None:
    """The fragments get no notice, and no tick runs."""
    with lane(bench, GRACE_S) as terms:
        assert terms == Terms("malleable", timedelta(seconds=GRACE_S))
        fill(bench, DEAF)
        took_s, most_s = wait_of(bench, does_tick=False), promised_s(bench, terms, 120)
        print(f"waited {took_s:g} s, promised {most_s:g} s")
        assert GRACE_S <= took_s <= most_s + TICK_S


def test_a_fragment_hears_of_its_preemption_as_its_grace_begins(bench: Bench) -> None:
    """It leaves then, and the job waits for a tick instead of the grace. Backfill is slow here, and
    publishes no planned start that would say so."""
    log = bench.box.work / "told"
    with lane(bench, GRACE_S, more="SchedulerParameters=bf_interval=300"):
        fill(bench, HEARS.format(log=log))
        began = time.time()
        took_s = wait_of(bench, does_tick=True)
        heard = [float(line) - began for line in log.read_text().split()]
        print(f"heard after {max(heard):.1f} s, waited {took_s:g} s")
        assert len(heard) == NODES
        assert took_s < GRACE_S / 2


def test_a_planned_start_is_not_delayed_by_a_grace(bench: Bench) -> None:
    """Fragments that stay to a planned start without a grace leave in time with a grace."""
    empty_s = empty_start(bench)
    with lane(bench, GRACE_S):
        first = rigid(bench, "2", "sleep 59")
        wait_until(lambda: is_running(bench, first), every_s=0.2)
        job = bench.submit("exec sleep 600", "1-2")
        bench.tick_until(job, has(2))
        tell_cheap_interruptions(bench, job)
        second = rigid(bench, "4", "sleep 1")
        wait_until(lambda: bool(bench.observe().planned))
        while is_running(bench, first):
            bench.tick()
            time.sleep(1)
        late_s = start_after(bench, first, second) - empty_s
        print(f"{late_s:+g} s against empty nodes, which take {empty_s:g} s")
        assert late_s <= LATE_S


def test_a_job_waits_for_the_exempt_time(bench: Bench) -> None:
    with lane(bench, exempt="00:01:00") as terms:
        assert terms == Terms("malleable", exempt=timedelta(minutes=1))
        fill(bench, "exec sleep 600")
        took_s, most_s = wait_of(bench, does_tick=False), promised_s(bench, terms, 120)
        print(f"waited {took_s:g} s, promised {most_s:g} s")
        assert 45 <= took_s <= most_s + TICK_S


def test_a_lease_ends_a_fragment_in_its_exempt_time(bench: Bench) -> None:
    with lane(bench, exempt="01:00:00") as terms:
        job = fill(bench, DEAF)
        for fragment in bench.job(job).active:
            bench.box.run(["scontrol", "update", f"jobid={fragment.id}", "TimeLimit=1"])
        took_s, most_s = wait_of(bench, does_tick=False), promised_s(bench, terms, 60)
        print(f"waited {took_s:g} s, promised {most_s:g} s")
        assert 45 <= took_s <= most_s + TICK_S


def test_no_fragment_starts_where_it_would_be_exempt_at_a_planned_start(bench: Bench) -> None:
    first = rigid(bench, "3", "sleep 200", "--time=5")
    wait_until(lambda: is_running(bench, first), every_s=0.2)
    rigid(bench, "4", "sleep 1")
    wait_until(lambda: bool(bench.observe().planned))
    with lane(bench, exempt="01:00:00"):
        job = bench.submit("exec sleep 600", "1-1")
        bench.tick()
        assert has(0)(bench.job(job))
        said = bench.malleable("explain", str(job)).stdout
        assert "Slurm preempts no fragment in its first 1:00:00" in said
    assert bench.observe().terms == (Terms("malleable"),)
