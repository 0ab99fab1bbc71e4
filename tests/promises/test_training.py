"""A real training in a real Slurm: it grows, a node is taken from it, it ends with its result."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from promises.bench import TRAINER, WITH_TORCHRUN, Bench, has, occupied, usual_training
from slurm_hooks.model import FragmentState, NodeState
from slurm_hooks.sandbox import Sandbox
from waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.torch]
DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "train.py"
TRAIN = f"{WITH_TORCHRUN}\nexec torchrun train.py"


@pytest.fixture
def bench(sandbox: Sandbox) -> Iterator[Bench]:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    bench = Bench(sandbox, notice_s=10)
    shutil.copy(DIGITS, sandbox.work / "train.py")
    yield bench
    bench.cancel_all()


def rounds(bench: Bench, job: int) -> list[dict[str, object]]:
    """The rounds of a training so far."""
    path = bench.directory(job) / "rounds.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def sizes(bench: Bench, job: int) -> list[object]:
    return [line["size"] for line in rounds(bench, job)]


def test_a_training_grows_loses_a_node_and_finishes(bench: Bench) -> None:
    box, work = bench.box, bench.box.work / "usual"
    job = bench.submit(usual_training(work, 300, "save"), "1-3", TRAINER)
    bench.tick()
    bench.until(job, has(3))
    wait_for(lambda: 3 in sizes(bench, job) and (work / "steps.log").exists(), bench)
    name = sorted(bench.job(job).nodes)[0]  # the node of rank 0 and of the store
    box.run(["scontrol", "update", f"nodename={name}", "state=drain", "reason=test"])
    try:
        bench.tick_until(job, lambda j: name not in occupied(j))
        bench.tick_until(job, is_over)
    finally:
        box.run(["scontrol", "update", f"nodename={name}", "state=resume"])
    assert json.loads((work / "finished").read_text()) == {"off": 0, "steps": 300}
    records = rounds(bench, job)
    assert len(records) >= 2
    assert all(line["restarts_used"] == 0 for line in records)
    assert not [f for f in bench.job(job).fragments if f.state is FragmentState.FAILED]


def test_a_start_and_a_growth_are_a_round_each_and_wait_for_no_other_fragment(bench: Bench) -> None:
    """The patience is long: only agents that know the number of peers form a round in time."""
    box = bench.box
    bench.share_at_once()  # whatever the training before told of its speed
    patient = "export MALLEABLE_LAST_CALL_S=200 MALLEABLE_SETTLE_S=200"
    others = ["nodename=n[2-4]", "reason=test"]
    box.run(["scontrol", "update", *others, "state=drain"])
    try:
        job = bench.submit(f"{patient}\n{TRAIN} --steps=100000 --pace=0.05", "1-8", TRAINER)
        bench.tick()
        wait_for(lambda: sizes(bench, job) == [1], bench, 90)
    finally:
        box.run(["scontrol", "update", *others[:1], "state=resume"])
    # Slurm hears of resumed nodes one after another; a tick between would grow by the first only.
    wait_until(lambda: all(n.state is not NodeState.DOWN for n in bench.observe().nodes))
    wait_for(lambda: len(rounds(bench, job)) > 1, bench, 120)
    assert sizes(bench, job) == [1, 4], (rounds(bench, job), bench.job(job).fragments)


def is_over(job: object) -> bool:
    states = {f.state for f in job.fragments}  # type: ignore[attr-defined]
    return FragmentState.DONE in states and not states & {
        FragmentState.RUNNING,
        FragmentState.HELD,
        FragmentState.PENDING,
        FragmentState.ENDING,
    }


def wait_for(is_so: Callable[[], object], bench: Bench, limit_s: float = PATIENCE_S) -> None:
    wait_until(lambda: is_so() or (bench.tick() and None), limit_s, every_s=0.5)


def test_an_unreachable_shared_directory_is_reported_in_a_line_and_stops_the_job(
    bench: Bench,
) -> None:
    script = f"export PET_RDZV_ENDPOINT=/proc/nowhere\n{TRAIN} --steps=10"
    job = bench.submit(script, "1-1", TRAINER)
    bench.tick_until(job, lambda j: any(f.mark.stopped for f in j.fragments))
    log = (bench.box.work / f"slurm-{job}_0.out").read_text()
    lines = [line for line in log.splitlines() if "/proc/nowhere" in line]
    assert len(lines) == 3, log  # a round for each start
    assert "Traceback" not in log
    assert "failed-3-times:exit-1:0" in bench.malleable("explain", str(job)).stdout


def test_flags_of_a_rigid_script_train_a_single_model_and_a_narrow_range_is_reported(
    bench: Bench,
) -> None:
    flags = "--nnodes=1:2 --rdzv_id=$RANDOM --rdzv_backend=c10d --rdzv_endpoint=$(hostname):29500"
    script = f"{TRAIN} --steps=100000 --pace=0.05".replace("torchrun", f"torchrun {flags}")
    job = bench.submit(script, "1-3", TRAINER)
    bench.box.run(["scontrol", "update", f"jobid={job}", "comment=my own"])
    wait_for(lambda: 2 in sizes(bench, job), bench, 90)
    line = "your --nnodes=1:2 narrows the job's 1:3 to 1:2; submit with that range instead"
    report = f'the job reports: "{line}"'
    wait_for(lambda: report in bench.malleable("explain", str(job)).stdout, bench)
    log = (bench.box.work / f"slurm-{job}_0.out").read_text()
    assert "malleable: fragments use the job's own rendezvous instead of c10d at" in log
    assert f"malleable: {line}" in log


def test_five_mistakes_in_the_settings_are_all_named_and_no_tick_runs(bench: Bench) -> None:
    job = bench.submit(TRAIN, "1-1", TRAINER)
    good = bench.box.settings.read_text()
    bad = good.replace("length_s = 120", "length_s = 5").replace("margin_s = 35", "margin_s = -1")
    bad = bad.replace("snooze_s = 0", 'snooze_s = "none"\nsolvr = "auto"') + "\n[plans]\n"
    bench.box.settings.write_text(bad)
    try:
        done = bench.malleable("reconcile")
    finally:
        bench.box.settings.write_text(good)
    assert done.returncode == 78
    wrong = ("lease.length_s", "lease.margin_s", "plan.snooze_s", "plan.solvr", "[plans]")
    assert all(any(name in line for line in done.stderr.splitlines()) for name in wrong), done
    assert len(done.stderr.splitlines()) == 5
    assert bench.states(job) == [FragmentState.HELD]
