"""The active check on a real Slurm: it succeeds, it fails with reasons, and leaves no job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from promises.bench import Bench
from slurm_hooks.doctor.trial.run import Step, StepFailed, Trial
from slurm_hooks.doctor.trial.script import Wish
from slurm_hooks.slurm.live import Live
from waiting import wait_until

pytestmark = pytest.mark.slurm
AS_USER = ["--user", "nobody"] if os.geteuid() == 0 else []
STEPS = ["submit", "start", "grow", "yield", "return", "finish", "clean up"]
LIMIT_S = 150


def start(bench: Bench, *words: str) -> subprocess.Popen[str]:
    """The check in a separate session, as from a terminal."""
    return subprocess.Popen(
        [sys.executable, "-m", "slurm_hooks.cli", "test", *AS_USER, "--baseline", "1", *words],
        env={**os.environ, **bench.box.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def check(bench: Bench, *words: str) -> tuple[int, str, str]:
    with start(bench, *words) as process:
        out, err = process.communicate(timeout=LIMIT_S)
    return process.returncode, out, err


def ticks_in_ledger(bench: Bench) -> int:
    done = bench.malleable("report", "--since", "1h", "--json")
    assert done.returncode == 0, done.stderr
    return int(json.loads(done.stdout)["ticks"]["count"])


def assert_nothing_is_left(bench: Bench) -> None:
    assert bench.box.run(["squeue", "-h", "-a"]).stdout == ""
    wait_until(bench._is_empty)


def test_the_whole_life_with_the_check_s_own_ticks(bench: Bench) -> None:
    code, out, err = check(bench, "--ticks", "--timeout", "120")
    assert code == 0, out + err
    assert ticks_in_ledger(bench) > 0
    lines = [line for line in out.splitlines() if line.startswith("ok ")]
    assert [line[6:15].strip() for line in lines] == STEPS
    assert "all 7 steps succeeded" in out
    assert "RPCs/min" in out
    assert_nothing_is_left(bench)


def test_the_whole_life_with_a_timer_s_ticks(bench: Bench) -> None:
    loop = [sys.executable, "-m", "slurm_hooks.cli", "reconcile", "--loop", "1"]
    environment = {**os.environ, **bench.box.environment}
    quiet = subprocess.DEVNULL
    with subprocess.Popen(loop, env=environment, stdout=quiet, stderr=quiet) as timer:
        try:
            code, out, err = check(bench, "--json", "--nodes", "3", "--timeout", "120")
        finally:
            timer.terminate()
    assert code == 0, out + err
    answer = json.loads(out)
    assert answer["ok"]
    assert [step["step"] for step in answer["steps"]] == STEPS
    assert answer["slurmctld"]["during"]["users"]
    assert_nothing_is_left(bench)


@pytest.mark.parametrize("words", [["--nodes", "1"], ["--plain"]])
def test_a_single_node_is_enough(bench: Bench, words: list[str]) -> None:
    code, out, err = check(bench, "--ticks", *words, "--timeout", "120")
    assert code == 0, out + err
    assert_nothing_is_left(bench)


def test_without_ticks_the_check_names_the_missing_event(bench: Bench) -> None:
    code, out, _ = check(bench, "--timeout", "4")
    assert code == 1
    assert "FAILED start: not within the time limit" in out
    assert "waiting, 0 nodes of 1-2" in out
    assert_nothing_is_left(bench)


def test_a_long_wait_is_explained_once_while_it_lasts(bench: Bench) -> None:
    """In this test no tick runs."""
    late: list[tuple[Step, list[str]]] = []
    name = f"late-{time.monotonic_ns()}"
    port = Live(10, environment={**os.environ, **bench.box.environment})
    trial = Trial(
        Wish(name, limit_s=5),
        port,
        ("malleable",),
        tell=lambda done: None,
        explain=lambda job: [f"why {job}"],
        tell_late=lambda step, lines: late.append((step, lines)),
        patience_s=1,
    )
    with pytest.raises(StepFailed, match="not within the time limit"):
        trial.run()
    assert late == [(Step.START, [f"why {trial.job_id}"])]
    assert_nothing_is_left(bench)


def test_a_ceiling_that_is_too_low_is_said_first(bench: Bench) -> None:
    before = bench.box.settings.read_text()
    try:
        bench.box.settings.write_text(before.replace('level = "on"', 'level = "on"\nmax_nodes = 1'))
        code, out, _ = check(bench, "--ticks", "--timeout", "8")
        assert code == 1
        assert out.index("max_share leave 1 node, but the test") < out.index("ok    submit")
    finally:
        bench.box.settings.write_text(before)
    assert_nothing_is_left(bench)


def test_switched_off_is_said_at_once(bench: Bench) -> None:
    bench.malleable("off", "--reason", "broken")
    try:
        code, _, err = check(bench, "--ticks")
        assert code == 64
        assert "switched off since" in err
        assert "(broken)" in err
    finally:
        bench.malleable("on")
    assert_nothing_is_left(bench)


def test_observing_is_said_at_once(bench: Bench) -> None:
    before = bench.box.settings.read_text()
    bench.box.settings.write_text(before.replace('level = "on"', 'level = "observe"'))
    try:
        code, _, err = check(bench, "--ticks")
        assert code == 64
        assert "no tick would start the job" in err
    finally:
        bench.box.settings.write_text(before)


def test_a_refusal_of_sbatch_is_shown(bench: Bench) -> None:
    code, out, _ = check(bench, "--partition", "main")
    assert code == 1
    assert "FAILED submit: sbatch was refused" in out
    assert_nothing_is_left(bench)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_clean_up_too(bench: Bench, number: signal.Signals) -> None:
    interrupt_after(bench, "start", number)


@pytest.mark.parametrize("step", STEPS[:-2])
def test_ctrl_c_after_any_step_leaves_no_job(bench: Bench, step: str) -> None:
    interrupt_after(bench, step, signal.SIGINT)


def test_ctrl_c_pressed_repeatedly_leaves_no_job(bench: Bench) -> None:
    interrupt_after(bench, "grow", signal.SIGINT, times=6)


def interrupt_after(bench: Bench, step: str, number: signal.Signals, times: int = 1) -> None:
    """The signal reaches the whole foreground group, as from a terminal."""
    process = start(bench, "--ticks", "--timeout", "120")
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith(f"ok    {step}"):
                break
        for _ in range(times):
            os.killpg(process.pid, number)
            time.sleep(0.1)
        out, err = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, out + err
    assert "clean up" in out
    assert_nothing_is_left(bench)
    assert not os.path.exists("/.malleable-0")


def test_ctrl_c_before_anything_is_submitted(bench: Bench) -> None:
    process = start(bench, "--ticks", "--baseline", "30")
    assert process.stdout is not None
    assert any("watched for 30 s" in line for line in process.stdout)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=150)
    assert process.returncode == 130
    assert_nothing_is_left(bench)
