"""Off, on, observe, canary and the ceiling, read at each tick: on a real Slurm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import slurm_hooks
from promises.bench import Bench, has, occupied
from slurm_hooks.model import FragmentState, MalleableJob
from slurm_hooks.sandbox import Sandbox

pytestmark = pytest.mark.slurm
RUNNING, HELD = FragmentState.RUNNING, FragmentState.HELD
SLEEP = "exec sleep 600"
TRAINING = "trap 'exit 0' TERM; sleep 600 & wait"
TREE = Path(slurm_hooks.__file__).parents[1]
AS_USER = "nobody" if os.geteuid() == 0 else None


@pytest.fixture
def bench(sandbox: Sandbox) -> Iterator[Bench]:
    bench = Bench(sandbox)
    before = sandbox.settings.read_text()
    yield bench
    sandbox.settings.write_text(before)
    bench.malleable("on")
    bench.cancel_all()


def set_mode(bench: Bench, lines: str) -> None:
    """The [mode] of the settings from now on."""
    text = bench.box.settings.read_text().partition("\n[mode]")[0]
    bench.box.settings.write_text(f"{text}\n[mode]\n{lines}\n")


def nobody_runs(job: MalleableJob) -> bool:
    return all(f.state in (HELD, FragmentState.PENDING) for f in job.fragments)


def test_off_sends_a_training_away_and_on_brings_it_back(bench: Bench) -> None:
    """Within the notice and a tick, whoever ticks; nothing comes back until `on`."""
    job = bench.submit(TRAINING, "1-3")
    bench.tick_until(job, has(3))
    bench.tick()
    began = time.monotonic()
    said = bench.malleable("off", "--reason", "the network is being repaired")
    assert said.returncode == 0, said.stderr
    assert "notice" in said.stdout
    bench.tick_until(job, nobody_runs)
    took_s = time.monotonic() - began
    assert took_s < bench.notice_s + bench.settings.tick.every_s + 15, took_s
    other = bench.submit(SLEEP, "1-2")  # submissions go on being accepted
    for _ in range(4):
        bench.tick()
        time.sleep(1)
    assert nobody_runs(bench.job(job))
    assert nobody_runs(bench.job(other))
    for command in (("explain", str(other)), ("plan",)):
        assert "the network is being repaired" in bench.malleable(*command).stdout
    assert "the network is being repaired" in bench.malleable("status").stderr
    assert "on again" in bench.malleable("on").stdout
    bench.tick_until(job, lambda j: not nobody_runs(j), 60)
    assert {f.mark.stopped for f in bench.job(job).fragments} == {""}
    assert bench.job(job).failures == 0


def test_a_file_made_by_hand_is_a_switch(bench: Bench) -> None:
    place = bench.settings.tick.state_dir
    os.makedirs(place, exist_ok=True)
    job = bench.submit(SLEEP, "1-2")
    with open(os.path.join(place, "off"), "w"):
        pass
    for _ in range(3):
        bench.tick()
    assert nobody_runs(bench.job(job))
    os.unlink(os.path.join(place, "off"))
    bench.tick_until(job, has(2))


def as_user(bench: Bench, *words: str) -> subprocess.CompletedProcess[str]:
    """The command, typed by a user without rights."""
    python = ("env", f"PYTHONPATH={TREE}", sys.executable)
    return bench.box.run([*python, "-m", "slurm_hooks.cli", *words], user=AS_USER, check=False)


def test_users_are_told_why_nothing_starts(bench: Bench) -> None:
    """They can look at the switch, and cannot throw it."""
    bench.malleable("off", "--reason", "maintenance")
    job = bench.submit(SLEEP, "1-2")
    told = as_user(bench, "explain", str(job))
    assert "maintenance" in told.stdout, told.stderr
    if AS_USER:
        refused = as_user(bench, "on")
        assert refused.returncode == 78
        assert "still switched off" in refused.stderr


def test_observing_touches_nothing(bench: Bench) -> None:
    set_mode(bench, 'level = "observe"')
    job = bench.submit(SLEEP, "1-3")
    before = bench.job(job)
    for _ in range(3):
        report = bench.tick()
        assert report.plan.actions
    assert bench.job(job) == before
    set_mode(bench, 'level = "on"')
    bench.tick_until(job, has(3))


def test_a_canary_is_narrowed_while_jobs_run(bench: Bench) -> None:
    job = bench.submit(SLEEP, "1-4")
    bench.tick_until(job, has(4))
    set_mode(bench, 'level = "canary"\nnodes = ["n[1-2]"]')
    bench.tick_until(job, lambda j: has(2)(j) and occupied(j) == {"n1", "n2"})
    set_mode(bench, 'level = "canary"\nusers = ["somebody-else"]')
    bench.tick_until(job, nobody_runs)
    told = json.loads(bench.malleable("explain", str(job), "--json").stdout)["lines"]
    assert any("only jobs of users somebody-else run" in line for line in told)
    set_mode(bench, 'level = "on"')
    bench.tick_until(job, has(4))


def test_a_canary_is_known_by_its_account(bench: Bench) -> None:
    set_mode(bench, 'level = "canary"\naccounts = ["ml"]')
    one = bench.submit(SLEEP, "1-2", options=["--account=ml"])
    other = bench.submit(SLEEP, "1-2", options=["--account=physics"])
    forged = bench.submit(SLEEP, "1-1", options=[f"--account=x\n{other}|ml"])
    bench.tick_until(one, has(2))
    for _ in range(3):
        bench.tick()
    assert nobody_runs(bench.job(other))
    assert nobody_runs(bench.job(forged))
    assert "of accounts ml" in bench.malleable("explain", str(other)).stdout.replace(
        "jobs of", "of"
    )


def test_a_ceiling_is_kept_and_lowered(bench: Bench) -> None:
    set_mode(bench, "max_nodes = 3")
    jobs = [bench.submit(SLEEP, "1-3"), bench.submit(SLEEP, "1-3")]

    def total() -> int:
        return sum(len(occupied(job)) for job in bench.observe().jobs)

    for _ in range(8):
        bench.tick()
        assert total() <= 3
        time.sleep(0.5)
    assert total() == 3
    set_mode(bench, "max_share = 0.25")
    bench.tick_until(jobs[0], lambda _: total() == 1)
