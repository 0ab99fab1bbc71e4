"""On a real Slurm: from the next tick on, the plan uses the speed that a job reports."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from promises.bench import TRAINER, WITH_TORCHRUN, Bench, hastened
from slurm_hooks.learning.learned import learned_by
from slurm_hooks.learning.reports import report_of
from slurm_hooks.model import MalleableJob
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = pytest.mark.slurm
ROOT = Path(__file__).resolve().parents[2]
SLEEP = "exec sleep 600"


@pytest.fixture
def bench(sandbox: Sandbox) -> Iterator[Bench]:
    bench = Bench(sandbox)
    yield bench
    bench.cancel_all()


def is_running(job: MalleableJob) -> bool:
    return bool(job.active)


def reconcile(bench: Bench) -> None:
    done = bench.malleable("reconcile")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stderr


def say(bench: Bench, job_id: int, comment: str, may_fail: bool = False) -> None:
    """Write a comment as an agent does, and as its user can. Slurm may refuse it."""
    user = "nobody" if os.geteuid() == 0 else None
    argv = ["scontrol", "update", f"JobId={job_id}_0", f"Comment={comment}"]
    bench.box.run(argv, user=user, check=not may_fail)


def progress(*rates: str) -> str:
    return f"trained{{0}};h{{60}};progress{{s{int(time.time())},{','.join(rates)}}}"


def test_a_reported_speed_is_known_and_shown(bench: Bench) -> None:
    job_id = bench.submit(SLEEP)
    reconcile(bench)
    bench.tick_until(job_id, is_running)
    explanation = bench.malleable("explain", str(job_id)).stdout
    assert "its scaling is not measured yet" in explanation
    say(bench, job_id, progress("3:250/10/0", "2:160/10/0/60", "1:100/10/0/120"))
    learned = json.loads(bench.malleable("explain", str(job_id), "--json").stdout)["learned"]
    points = dict(learned["curve"]["points"])
    assert points[2] / points[1] == pytest.approx(1.6, rel=0.1)
    assert points[3] / points[1] == pytest.approx(2.5, rel=0.1)
    assert "learned: 3 nodes train 2." in bench.malleable("explain", str(job_id)).stdout


def test_a_user_s_text_in_the_comment_fails_no_tick(bench: Bench) -> None:
    job_id = bench.submit(SLEEP, "1-2")
    reconcile(bench)
    bench.tick_until(job_id, is_running)
    for text in (
        "progress{s1,1:nan/1/1}",
        progress("1:-5/10/0"),
        progress("1:1e99/10/0", "2:9999999e15/0/0"),
        progress("2:9/10/0", "99999:5/1/0"),
        progress("1:5/10/0") + "x" * 900,
        "\n".join([progress("1:5/10/0", "2:50/10/0")] * 5),
    ):
        say(bench, job_id, text, may_fail=True)
        reconcile(bench)
    saved = json.loads(bench.malleable("explain", str(job_id), "--json").stdout)["learned"]
    curve = dict(saved["curve"]["points"]) if saved["curve"] else {1: 1.0, 2: 2.0}
    assert curve[2] <= 2 * curve[1] * (1 + 1e-9)


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_script_without_our_library_is_learned(bench: Bench) -> None:
    """It is learned on its smallest size first, then on more, because another job wants the rest.

    Another test checks how exact the reported speed is.
    """
    pytest.importorskip("torch")
    script = ROOT / "tests" / "frameworks" / "train_unknowing.py"
    shutil.copy(script, bench.box.work / script.name)
    torchrun = hastened("batch.job_comment.EVERY_S=4")
    run = f"exec {torchrun} {bench.box.work / script.name} {bench.box.work} plain"
    job_id = bench.submit(f"{WITH_TORCHRUN}\n{run}", "1-2", TRAINER)
    bench.submit(SLEEP, "1-4")
    sizes: list[int] = []

    def is_known() -> bool:
        reconcile(bench)
        job = bench.job(job_id)
        sizes.append(len(job.nodes))
        return len(report_of(job, time.time()).rates) == 2

    explain = ("explain", str(job_id))
    wait_until(is_known, 600, lambda: bench.malleable(*explain).stdout, every_s=4)
    job = bench.job(job_id)
    curve = learned_by([job], time.time())[job_id].curve
    newest = {rate.nodes: rate for rate in report_of(job, time.time()).rates}
    assert curve is not None
    error = math.hypot(newest[1].error, newest[2].error)
    speedup = min(newest[2].per_s / newest[1].per_s, 2.0)
    assert curve(2) / curve(1) == pytest.approx(speedup, rel=0.1 + 2 * error)
    assert sizes.index(1) < sizes.index(2)
    assert "learned: 2 nodes train" in bench.malleable(*explain).stdout
