"""`malleable map`, `pool` and `wish` on a real Slurm."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from promises.bench import Bench, has
from slurm_hooks.model import FragmentState
from waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slurm
TASKS = 40


def begin(bench: Bench, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "slurm_hooks.cli", *words],
        env={**os.environ, **bench.box.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def job_of(place: Path) -> int:
    wait_until(lambda: (place / "jobs").exists() and (place / "jobs").read_text().strip())
    return int((place / "jobs").read_text().split()[-1])


def tick_until_over(
    bench: Bench, command: subprocess.Popen[str], limit_s: float = PATIENCE_S
) -> None:
    def is_over() -> bool:
        bench.tick()
        return command.poll() is not None

    wait_until(is_over, limit_s, every_s=0.5)


def test_each_task_is_done_once_although_an_ordinary_job_takes_nodes(
    bench: Bench, tmp_path: Path
) -> None:
    place = tmp_path / "map"
    inputs = tmp_path / "inputs"
    inputs.write_text("".join(f"{number}\n" for number in range(1, TASKS + 1)))
    script = 'echo "$0" >> "$1/begun"; sleep 0.5; echo "result $0"'
    command = begin(
        bench,
        *("map", "--max", "8", "--inputs", str(inputs), "--dir", str(place), "--time=10"),
        *("--", "sh", "-c", script, "{}", str(tmp_path)),
    )
    job = job_of(place)
    bench.tick_until(job, has(4))
    bench.tick()
    wait_until(lambda: list(place.glob("tasks/*.done")))
    rigid = ["sbatch", "-p", "main", "-N2", "--time=1", "--parsable", "--wrap", "sleep 3"]
    number = bench.box.run(rigid).stdout.strip()
    is_running = lambda: bench.box.run(["squeue", "-hj", number, "-o%T"]).stdout == "RUNNING\n"  # noqa: E731
    wait_until(is_running, 60)  # a lease ends later
    tick_until_over(bench, command)
    output, errors = command.communicate()
    assert (command.returncode, errors) == (0, "")
    assert f"{TASKS} of {TASKS} done" in output
    for task in range(1, TASKS + 1):
        assert (place / "logs" / f"{task}.out").read_text() == f"result {task}\n"
    interrupted = int(match[1]) if (match := re.search(r"(\d+) interrupted", output)) else 0
    begun = (tmp_path / "begun").read_text().split()
    assert len(set(begun)) == TASKS
    assert TASKS <= len(begun) <= TASKS + interrupted
    assert interrupted <= 2
    bench.tick_until(job, lambda j: not [f for f in j.fragments if f.state is FragmentState.HELD])


def test_failed_tasks_are_listed_and_the_same_directory_goes_on(
    bench: Bench, tmp_path: Path
) -> None:
    place = tmp_path / "map"
    words = ["map", "--max=2", "--retries=0", "--keep-going", f"--dir={place}", "--time=10"]
    program = ["--", "sh", "-c", 'test -e "$1/mended" || test "$0" != b', "{}", str(tmp_path)]
    command = begin(bench, *words, "--json", *program, ":::", "a", "b", "c")
    tick_until_over(bench, command)
    answer = json.loads(command.communicate()[0])
    assert command.returncode == 1
    assert (answer["tasks"]["done"], answer["tasks"]["failed"]) == (2, 1)
    assert answer["failures"] == [
        {"task": 2, "exit_code": 1, "log": str(place / "logs" / "2.err")},
    ]
    (tmp_path / "mended").touch()
    again = begin(bench, *words, *program)
    tick_until_over(bench, again)
    output, errors = again.communicate()
    assert (again.returncode, errors) == (0, "")
    assert "3 of 3 done" in output
    assert job_of(place) > answer["job_id"]  # though that may not have been closed yet
    assert json.loads((place / "results" / "1.json").read_text())["tries"] == 1


def test_a_pool_is_followed_until_it_is_over_and_wishes(bench: Bench, tmp_path: Path) -> None:
    worker = f"until [ -e {tmp_path}/end ]; do sleep 0.2; done"
    words = ["--time=10", f"--output={tmp_path}/log.%a", "--", "sh", "-c", worker]
    command = begin(bench, "pool", "--max", "3", *words)
    assert command.stdout is not None
    match = re.match(r"job (\d+): ", command.stdout.readline())
    assert match
    job = int(match[1])
    bench.tick_until(job, has(3))
    wait_until(lambda: "3 running" in command.stdout.readline())
    said = bench.malleable("wish", "--job", str(job), "1")
    assert said.stdout == f"job {job}: wishes for at most 1 node\n", said.stderr
    bench.tick_until(job, has(1))
    said = bench.malleable("wish", "--job", str(job), "99")
    assert "its MAX (99 is more)" in " ".join(said.stdout.split()), said.stderr
    time.sleep(1)
    bench.tick_until(job, has(3))
    (tmp_path / "end").touch()
    tick_until_over(bench, command)
    output, errors = command.communicate()
    assert (command.returncode, errors) == (0, "")
    assert output.endswith(f"job {job}: ended\n")


def test_a_worker_wishes_in_words_and_in_a_file_and_finishes(bench: Bench, tmp_path: Path) -> None:
    """The command `malleable` as a job has it in PATH."""
    worker = f"""
    if [ $MALLEABLE_FRAGMENT = 0 ]; then
        until [ -e {tmp_path}/wish ]; do sleep 0.2; done
        malleable wish 1 && touch {tmp_path}/told
        until [ -e {tmp_path}/finish ]; do sleep 0.2; done
        malleable finish
    else
        sleep 600
    fi"""
    flags = ["--time=10", f"--output={tmp_path}/log.%a", f"--wish-file={tmp_path}/wanted"]
    said = bench.malleable("pool", "--max=3", "--detach", *flags, "--", "sh", "-c", worker)
    job = int(said.stdout)
    bench.tick_until(job, has(3))
    time.sleep(1.1)  # the others are younger
    (tmp_path / "wish").touch()
    wait_until((tmp_path / "told").exists)
    bench.tick_until(job, has(1))
    time.sleep(1.1)
    (tmp_path / "wanted").write_text("2\n")
    bench.tick_until(job, has(2))
    (tmp_path / "finish").touch()
    bench.tick_until(job, lambda j: not any(f.is_active for f in j.fragments))
    assert "a worker reported that all work is done" in bench.malleable("explain", str(job)).stdout
