"""Malleable jobs as guests in an existing lane: the promised wait and the measured wait.

The sites come from `guest_sites`, on four nodes. A grace is 15 s there, an exempt time 20 s.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from guest_sites import ALIKE, DELTA, GPU_CLUSTER, QOS_LANE, GuestSite
from promises.bench import Bench, has
from sites.admin import (
    render,
    sacctmgr,
    set_site,
    skip_without_database,
    submit,
    wait_for_state,
)
from slurm_hooks.model import Terms
from slurm_hooks.model.lane import Lane
from slurm_hooks.report.promise import promise_text
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.spec import Preemption

pytestmark = pytest.mark.slurm
NewSite = Callable[..., Sandbox]
S = timedelta(seconds=1)
KILL_WAIT = 5 * S
LONGEST_PASS_S = 65  # sched_interval and sched_min_interval of a scheduler that defers
DEAF = "trap '' TERM\nfor n in {1..600}; do sleep 1; done"  # Slurm has to end it


def up(new_site: NewSite, site: GuestSite, **spec: Any) -> Bench:
    """A sandbox with the site's lines instead of the default lines, and with its settings."""
    box = new_site(nodes=4, kill_wait_s=5, **spec)
    conf = box.dir / "etc" / "slurm.conf"
    gone = tuple(line.partition("=")[0] + "=" for line in site.small_conf().splitlines())
    kept = [line for line in conf.read_text().splitlines() if not line.startswith(gone)]
    conf.write_text("\n".join(kept) + "\n" + site.small_conf())
    box.restart_controller()
    bench = Bench(box)
    set_site(bench, partitions=f'["{site.lane}"]', **({"qos": f'"{site.qos}"'} if site.qos else {}))
    render(bench)
    return bench


def promise(bench: Bench) -> str:
    """Doctor's promise for the site, or "" if a node is given at once."""
    said = bench.malleable("doctor", "longest-wait", "--json")
    (check,) = json.loads(said.stdout)["checks"]
    return "".join(finding["seen"] for finding in check["findings"])


def start_s(bench: Bench, limit_s: float, *words: str) -> float:
    """Seconds from the submission of an ordinary job to its start."""
    began = time.monotonic()
    done = submit(bench.box, "-N1", "--exclusive", "--time=5", *words, user=None)
    assert done.returncode == 0, done.stderr
    wait_for_state(bench.box, done.stdout.strip(), ["RUNNING"], limit_s)
    return time.monotonic() - began


def fill(bench: Bench, *options: str) -> None:
    """A malleable job on all four nodes, by ticks."""
    job = bench.submit(DEAF, "1-4", options=options)
    bench.tick_until(job, has(4))


def measured_s(bench: Bench, site: GuestSite, terms: Terms, *words: str, late_s: float) -> float:
    """The seconds that an ordinary job waits for a node of four that fragments hold, without a
    tick.

    The wait is within doctor's promise and `late_s` for the scheduler.
    """
    lease = Lane(terms, bench.settings.lease).longest_lease
    said = promise(bench)
    assert said == promise_text(terms, KILL_WAIT, lease)
    fill(bench)
    wait_s = terms.longest_wait(KILL_WAIT, lease).total_seconds()
    found_s = start_s(bench, wait_s + late_s, "-p", site.urgent, *words)
    print(f"after {found_s:.1f} s; {said}")
    return found_s


def test_delta(new_site: NewSite) -> None:
    """A guaranteed run, then a grace: a job that arrives at the start waits for both."""
    bench = up(new_site, DELTA)
    terms = Terms(DELTA.lane, grace=15 * S, exempt=20 * S)
    found_s = measured_s(bench, DELTA, terms, late_s=15)
    assert found_s > 15


def test_a_gpu_cluster_that_defers(new_site: NewSite) -> None:
    bench = up(new_site, GPU_CLUSTER)
    terms = Terms(GPU_CLUSTER.lane, grace=15 * S)
    measured_s(bench, GPU_CLUSTER, terms, late_s=LONGEST_PASS_S)


@pytest.mark.database
def test_a_qos_lane(new_site: NewSite) -> None:
    skip_without_database()
    bench = up(new_site, QOS_LANE, is_accounting=True, preemption=Preemption.QOS)
    sacctmgr(bench.box, "add", "qos", "low,high")  # normal is there in every database
    for row in QOS_LANE.qos_rows:
        sacctmgr(bench.box, "modify", "qos", row["Name"], "set", f"Preempt={row['Preempt']}")
    exempt = "PreemptExemptTime=00:00:20"
    sacctmgr(bench.box, "modify", "qos", "low", "set", "PreemptMode=requeue", exempt)
    sacctmgr(bench.box, "modify", "account", "root", "set", "qos+=low,high,normal")
    render(bench)
    terms = Terms(QOS_LANE.lane, exempt=20 * S)
    found_s = measured_s(bench, QOS_LANE, terms, "--qos=normal", late_s=15)
    assert found_s > 10


def test_a_lane_that_no_job_can_preempt_is_refused_with_the_line(new_site: NewSite) -> None:
    bench = up(new_site, ALIKE)
    line = (
        "PartitionName=preempt PriorityTier=1: no partition that shares its nodes has a higher "
        "tier, so no job can preempt there: gpu (1), debug (1)"
    )
    assert line in render(bench).stderr
    refused = submit(bench.box, "--malleable=1-4")
    assert refused.returncode != 0
    assert f"--partition=preempt: malleable jobs cannot run there. {line}" in refused.stderr
    assert submit(bench.box, "-p", "preempt").returncode == 0  # an ordinary job is not our affair


def test_a_lane_that_cancels_is_refused_with_the_line(new_site: NewSite) -> None:
    lane = f"PartitionName={DELTA.lane} "
    site = replace(DELTA, conf=DELTA.conf.replace(lane, f"{lane}PreemptMode=CANCEL "))
    bench = up(new_site, site)
    line = f"{lane}PreemptMode=CANCEL: Slurm cancels jobs that it preempts there, so a fragment"
    assert line in render(bench).stderr
    assert line in submit(bench.box, "--malleable=1-4").stderr
