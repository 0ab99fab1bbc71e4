"""On a real Slurm: the tick and the user learn a plain script's speed and its loss with a node."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from promises.bench import TRAINER, WITH_TORCHRUN, Bench
from slurm_hooks.model import Counts, MalleableJob
from slurm_hooks.sandbox import Sandbox

pytestmark = [pytest.mark.slurm, pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[2]
TORCHRUN = f"{WITH_TORCHRUN}\nexec torchrun"


@pytest.fixture
def bench(sandbox: Sandbox) -> Iterator[Bench]:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    bench = Bench(sandbox, notice_s=10)
    digits = ROOT / "examples" / "digits"
    for path in (ROOT / "tests" / "elastic" / "train_plain.py", *digits.glob("train*.py")):
        shutil.copy(path, sandbox.work / path.name)
    yield bench
    bench.cancel_all()


def test_old_checkpoints_are_dear_and_a_watched_state_is_not(bench: Bench) -> None:
    plain, watched = (
        bench.submit(f"{TORCHRUN} {script}", "1-1", TRAINER)
        for script in ("train_plain.py . 100000 1250", "train_more.py --steps=100000 --pace=0.05")
    )
    bench.tick_until(watched, lambda job: job.loss_s is not None, 300)
    assert bench.job(watched).loss_s == 1
    bench.tick_until(plain, lambda job: job.loss_s is not None, 400)
    assert 60 <= (bench.job(plain).loss_s or 0) < 400
    assert (bench.job(plain).redoes, bench.job(watched).redoes) == (True, False)
    text = bench.malleable("explain", str(plain)).stdout
    assert "hint: its checkpoints are up to" in text
    assert "docs/users/checkpoints.md" in text
    explanation = json.loads(bench.malleable("explain", str(watched), "--json").stdout)
    assert explanation["checkpoints"]["loss_s"] == 1
    assert "checkpoints are" not in bench.malleable("explain", str(watched)).stdout
    comment = bench.box.run(["squeue", "-h", f"--job={plain}", "--format=%k"]).stdout
    assert re.search(r";h\{\d+\}r", comment)


def test_the_speed_of_a_plain_script_reaches_the_tick(bench: Bench) -> None:
    job_id = bench.submit(f"{TORCHRUN} train_plain.py . 100000 1250", "1-1", TRAINER)

    def is_told(job: MalleableJob) -> bool:
        return any(fragment.telemetry for fragment in job.fragments)

    bench.tick_until(job_id, is_told, 400)
    (telemetry,) = [f.telemetry for f in bench.job(job_id).fragments if f.telemetry]
    assert telemetry.counts is Counts.STEPS  # there is no DataLoader
    (rate,) = telemetry.rates
    assert rate.nodes == 1
    assert 0.2 < rate.per_s <= 20.5  # steps of a twentieth second, on a host that may be busy
    assert telemetry.pauses.start_s is not None
