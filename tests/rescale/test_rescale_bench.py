"""What `make bench-rescale` reads and does: a figure of it is only as good as these."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rescale_engines import ENGINES, rank_zero, script
from rescale_fleet import Fleet, MalleableFleet, find_processes
from rescale_steps import Begins, Steps, starts

from slurm_hooks.model import FragmentState
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until


def write_steps(work: Path, fragment: int, steps: list[tuple[float, int]]) -> None:
    with open(work / f"steps-{fragment}.log", "a") as file:
        file.writelines(f"{at:.3f} 1 {size}\n" for at, size in steps)


def every(step_s: float, begin: float, end: float, size: int) -> list[tuple[float, int]]:
    count = round((end - begin) / step_s)
    return [(begin + step_s * i, size) for i in range(count)]


def test_the_pause_is_that_of_the_survivor_who_waited_longest(tmp_path: Path) -> None:
    write_steps(tmp_path, 0, every(0.1, 10, 12, 3) + every(0.1, 13, 14, 2))
    write_steps(tmp_path, 1, every(0.1, 10, 11, 3) + every(0.1, 13, 14, 2))
    write_steps(tmp_path, 2, every(0.1, 10, 11, 3))  # the one that was lost
    steps = Steps(tmp_path)
    assert steps.pause([0], 10.5) == pytest.approx(1.1)
    assert steps.pause([0, 1], 10.5) == pytest.approx(2.1)
    assert steps.pause([0, 1], 13.0) == pytest.approx(0.1)


def test_a_change_has_taken_effect_when_the_last_one_trains_at_the_new_size(tmp_path: Path) -> None:
    steps = Steps(tmp_path)
    write_steps(tmp_path, 0, every(0.1, 10, 11, 3) + every(0.1, 12, 13, 2))
    assert steps.arrival([0, 1], 2, 10.5) is None
    write_steps(tmp_path, 1, every(0.1, 10, 11, 3) + every(0.1, 12.5, 12.8, 2))
    assert steps.arrival([1], 2, 12.0) is None, "three steps may still be a round that breaks"
    write_steps(tmp_path, 1, every(0.1, 12.8, 13.5, 2))
    assert steps.arrival([0, 1], 2, 10.5) == pytest.approx(12.5)
    assert steps.arrival([0, 1], 3, 10.5) is None


def test_what_was_at_the_new_size_for_a_moment_does_not_count(tmp_path: Path) -> None:
    passing = every(0.1, 10, 11, 4) + every(0.1, 11, 11.3, 3) + every(0.1, 11.3, 12, 4)
    write_steps(tmp_path, 0, passing + every(0.1, 12, 13, 3))
    assert Steps(tmp_path).arrival([0], 3, 10.5) == pytest.approx(12.0)


def test_a_line_that_is_being_written_waits_for_its_end(tmp_path: Path) -> None:
    steps = Steps(tmp_path)
    path = tmp_path / "steps-0.log"
    path.write_text("10.000 1 3\n10.1")
    assert [step.at for step in steps.of(0, 0.0)] == [10.0]
    with open(path, "a") as file:
        file.write("00 2 3\n")
    assert [step.at for step in steps.of(0, 0.0)] == [10.0, 10.1]


def test_restarts_are_those_of_the_agents_that_stayed(tmp_path: Path) -> None:
    lines = [(0, 0, 0), (1, 1, 0), (0, 0, 1), (1, 1, 2), (0, 1, 2)]  # rank, fragment, restarts
    (tmp_path / "begins.jsonl").write_text(
        "".join(f'{{"rank": {r}, "fragment": {f}, "restarts": {n}}}\n' for r, f, n in lines)
    )
    begins = Begins(tmp_path)
    assert begins.restarts([0]) == 1
    assert begins.restarts([1]) == 2
    assert rank_zero(tmp_path) == 1
    assert begins.count([0, 1]) == {0: 2, 1: 3}


def test_processes_are_found_by_what_they_were_started_with() -> None:
    argv = ["sleep", "60"]
    one = subprocess.Popen(argv, env={**os.environ, "RESCALE_A": "1", "RESCALE_B": "1"})
    other = subprocess.Popen(argv, env={**os.environ, "RESCALE_A": "1", "RESCALE_B": "11"})
    try:
        wait_until(lambda: find_processes(["RESCALE_A=1", "RESCALE_B=1"]) == [one.pid])
    finally:
        for process in (one, other):
            process.kill()
            process.wait()


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_has_a_script_that_bash_reads_and_a_training(
    name: str, tmp_path: Path
) -> None:
    text = script(ENGINES[name], tmp_path, {"NAME": "two words"})
    assert "export NAME='two words'\n" in text
    subprocess.run(["bash", "-n"], input=text, text=True, check=True, timeout=10)
    assert Path(text.split()[-2]).exists()


@pytest.fixture(params=[Fleet, MalleableFleet])
def fleet(request: pytest.FixtureRequest, sandbox: Sandbox) -> Fleet:
    path = sandbox.work / f"{request.param.__name__}.sh"
    note = 'echo "$(date +%s.%N) $SLURM_ARRAY_TASK_ID" >>starts.log'
    me = "me=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
    leave = (
        'trap "scontrol uhold $me; scontrol requeue $me" URG\ntrap "exit 0" TERM'  # as agents do
    )
    path.write_text(f"#!/bin/bash\n{note}\n{me}\n{leave}\nwhile :; do sleep 0.1; done\n")
    return request.param(sandbox, path, "1-4", 4)


@pytest.mark.slurm
def test_fragments_come_go_are_killed_and_come_again(fleet: Fleet) -> None:
    box, held, running = fleet.box, FragmentState.HELD, FragmentState.RUNNING
    assert set(fleet.states().values()) == {held}
    began = time.time()
    fleet.release([0, 2])
    wait_for(fleet, [0, 2], running)
    said = box.run(["squeue", "-h", f"--jobs={fleet.job_id}", "--states=R", "-o", "%N"]).stdout
    assert sorted(said.split()) == ["n1", "n3"]
    wait_until(lambda: len(starts(box.work, [0, 2])) == 2)
    assert all(-1 < at - began < 15 for at in starts(box.work, [0, 2]))
    fleet.dismiss([0])
    fleet.kill([2])
    wait_until(lambda: fleet.states()[2] in (FragmentState.FAILED, FragmentState.ENDING))
    fleet.put_back([0, 2])
    assert set(fleet.states().values()) == {held}
    time.sleep(4)
    fleet.release([0, 2])
    wait_for(fleet, [0, 2], running)
    box.run(["scancel", str(fleet.job_id)])
    wait_until(lambda: not box.run(["squeue", "-h"]).stdout.strip())


def wait_for(fleet: Fleet, fragments: list[int], state: FragmentState) -> None:
    wait_until(lambda: all(fleet.states()[f] is state for f in fragments))


@pytest.mark.slurm
def test_a_signal_ends_the_run_and_all_that_it_started() -> None:
    root, mark = Path(__file__).parents[2], f"RESCALE_TEST={os.getpid()}.{time.time()}"
    name, _, value = mark.partition("=")
    run = subprocess.Popen(
        [sys.executable, str(root / "benchmarks" / "rescale.py"), "--runs=1", "--engines=cold"],
        env={**os.environ, "PYTHONPATH": str(root), name: value},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: find_processes([mark, "SLURM_ARRAY_TASK_ID=3"]))
    finally:
        run.send_signal(signal.SIGTERM)
        said, _ = run.communicate(timeout=60)
    assert run.returncode == 143
    assert '"benchmark": "rescale"' in said.splitlines()[-1]
    assert find_processes([mark]) == []
