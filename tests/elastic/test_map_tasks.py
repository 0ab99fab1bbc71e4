"""Tasks of a map: their names, and that no task is lost or recorded twice when workers end."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_hooks.elastic.engines.pool.map_worker import Sightings, unit_of, wish_for
from slurm_hooks.elastic.engines.pool.task_files import TaskFiles
from slurm_hooks.protocol import map_directory
from slurm_hooks.protocol.map_directory import Order
from slurm_hooks.protocol.tasks import (
    State,
    Task,
    Worker,
    claimed,
    ended,
    given_back,
    is_earlier_run,
    parse,
)
from waiting import wait_until

from .processes import launch

ME = Worker(7, 3, 2, "0123abcd")
# Lost tasks are noticed at once. The command is the job's command.
WORKER = """
import os, sys
from slurm_hooks.elastic.engines.pool import map_worker as module
module.BEAT_S, module.WAIT_S = 0.1, 0.1
module.Sightings.__init__.__defaults__ = (1.0, *module.Sightings.__init__.__defaults__[1:])
sys.exit(module.main(sys.argv[1:], os.environ))
"""
# Before it, each beat but the claim's beat fails, as on a file server that restarts.
STALE = """
import errno
from slurm_hooks.elastic.engines.pool.task_files import TaskFiles
true, beats = TaskFiles.beat, []
def beat(self, task):
    beats.append(task)
    if len(beats) > 1:
        raise OSError(errno.ESTALE, "Stale file handle", task.name)
    return true(self, task)
TaskFiles.beat = beat
"""
numbers = st.integers(0, 999_999)
tasks = st.builds(
    Task, st.integers(1, 999_999_999), numbers, numbers, st.sampled_from(["todo", "done", "failed"])
).map(lambda t: Task(t.number, t.interrupted, t.failed, State(t.state)))


@given(tasks)
def test_a_name_says_all(task: Task) -> None:
    assert parse(task.name) == task
    assert parse(claimed(task, ME).name) == claimed(task, ME)


@pytest.mark.parametrize(
    "name", ["", "1", "0.0.0.todo", "1.0.0.run", "1.0.0.done.x", "1.0.todo", "wait.7_3-0-0123abcd"]
)
def test_other_files_are_no_tasks(name: str) -> None:
    assert parse(name) is None


def test_the_end_of_a_try() -> None:
    run = claimed(Task(5, 1, 1), ME)
    assert given_back(run) == Task(5, 2, 1)
    assert ended(run, 0, 0) == Task(5, 1, 1, State.DONE)
    assert ended(run, 9, 2) == Task(5, 1, 2)
    assert ended(run, 9, 1) == Task(5, 1, 1, State.FAILED)


def test_an_earlier_run_of_the_same_element_is_gone() -> None:
    assert is_earlier_run(claimed(Task(1), Worker(7, 3, 1, "0123abcd")).owner, ME)
    for other in (
        Worker(7, 3, 2, "99999999"),
        Worker(7, 4, 1, "0123abcd"),
        Worker(8, 3, 1, "a" * 8),
    ):
        assert not is_earlier_run(claimed(Task(1), other).owner, ME)


@given(st.integers(0, 300), st.integers(0, 64), st.integers(1, 64))
def test_a_wish_ends_no_working_worker(todo: int, run: int, most: int) -> None:
    all_tasks = [Task(i + 1) for i in range(todo)]
    all_tasks += [claimed(Task(1000 + i), ME) for i in range(run)]
    nodes = wish_for(all_tasks, most)
    assert nodes is None or (todo and 2 * (todo + run) <= nodes < most)


def test_a_beat_that_does_not_change_is_a_lost_worker() -> None:
    seen, task = Sightings(60.0), claimed(Task(1), ME)
    assert not seen.is_lost(task, 1, 0.0)
    assert not seen.is_lost(task, 1, 59.0)
    assert seen.is_lost(task, 1, 60.0)
    assert not seen.is_lost(task, 2, 61.0)


@pytest.mark.parametrize(
    ("request_text", "unit"),
    [("0-64,unit=4,engine=pool", 4), ("0-64,engine=pool", 1), ("0-64,unit=2gpu,engine=pool", 2)],
)
def test_a_wish_counts_in_the_unit_of_the_sizes(request_text: str, unit: int) -> None:
    env = {"SLURM_SPANK_MALLEABLE": request_text}
    env |= {"MALLEABLE_UNIT": "4"} if unit == 4 else {}
    assert unit_of(env) == unit


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("p", "{}", "-o", "{}.x"), ["p", "a b", "-o", "a b.x"]),
        (("p",), ["p", "a b"]),
    ],
)
def test_the_input_is_put_into_the_command(command: tuple[str, ...], words: list[str]) -> None:
    assert Order(command, 0, False, 1).words("a b") == words


def make(place: Path, command: list[str], count: int, retries: int = 2, go: bool = False) -> None:
    map_directory.make(place, command, [f"in {i}" for i in range(1, count + 1)], retries, go)


def start(place: Path, element: int, run: int = 0, code: str = WORKER) -> subprocess.Popen[str]:
    env = {**os.environ, "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": str(element)}
    env |= {"SLURM_RESTART_COUNT": str(run), "MALLEABLE_NOTICE_S": "9", "MALLEABLE_MAX": "3"}
    return launch([sys.executable, "-c", code, str(place)], env, stderr=subprocess.PIPE)


def test_only_the_first_of_two_workers_gets_a_task(tmp_path: Path) -> None:
    make(tmp_path, ["true"], 1)
    one, other = TaskFiles(tmp_path, ME), TaskFiles(tmp_path, Worker(7, 4, 0, "f" * 8))
    mine = one.claim(Task(1))
    assert mine is not None
    assert other.claim(Task(1)) is None
    assert one.move(mine, given_back(mine))  # taken back from it
    theirs = other.claim(Task(1, 1))
    assert theirs is not None
    assert not one.beat(mine)
    assert not one.move(mine, ended(mine, 0, 0))
    assert other.move(theirs, ended(theirs, 0, 0))
    assert map_directory.count(tmp_path) == map_directory.Counts(done=1, interrupted=1)


def test_every_task_has_a_single_result_although_workers_are_killed_at_random(
    tmp_path: Path,
) -> None:
    """Only tasks of killed workers are done again."""
    script = 'echo "$MALLEABLE_TASK" >> "$0/begun"; sleep 0.0$((MALLEABLE_TASK % 9)); echo "$1"'
    make(tmp_path, ["sh", "-c", script, str(tmp_path)], 120)
    rng, runs, kills = random.Random(13), Counter[int](), 0
    workers = {element: start(tmp_path, element) for element in range(3)}
    while map_directory.count(tmp_path).left:
        time.sleep(rng.uniform(0.1, 0.4))
        element = rng.randrange(3)
        if kills < 12 and workers[element].poll() is None:
            number = rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGURG])
            workers[element].send_signal(number)
            kills += 1
        for element, worker in workers.items():
            if worker.poll() is not None:
                runs[element] += 1
                workers[element] = start(tmp_path, element, runs[element])
    for worker in workers.values():
        # The last signal may have met a worker that was just starting.
        assert worker.wait(20) in (0, -signal.SIGTERM, -signal.SIGKILL)
    counts = map_directory.count(tmp_path)
    assert (counts.done, counts.total) == (120, 120)
    assert kills >= 3
    for number in range(1, 121):
        assert (tmp_path / "logs" / f"{number}.out").read_text() == f"in {number}\n"
        assert json.loads((tmp_path / "results" / f"{number}.json").read_text())["exit_code"] == 0
    begun = Counter((tmp_path / "begun").read_text().split())
    assert set(begun) == {str(number) for number in range(1, 121)}
    assert sum(begun.values()) - 120 <= counts.interrupted


def test_a_task_that_is_missing_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    """As a task that is renamed while the directory is listed."""
    make(tmp_path, ["true"], 2)
    hidden = tmp_path / "2.0.0.todo"
    (tmp_path / "tasks" / "2.0.0.todo").rename(hidden)
    worker = start(tmp_path, 0)
    wait_until(lambda: map_directory.count(tmp_path).done == 1)
    hidden.rename(tmp_path / "tasks" / "2.0.0.todo")
    assert worker.wait(20) == 0
    assert map_directory.count(tmp_path).done == 2


def test_removed_files_are_not_waited_for_endlessly(tmp_path: Path) -> None:
    make(tmp_path, ["true"], 2)
    (tmp_path / "tasks" / "2.0.0.todo").unlink()
    assert start(tmp_path, 0).wait(20) == 0
    counts = map_directory.count(tmp_path)
    assert (counts.done, map_directory.lost(tmp_path, counts)) == (1, 1)


def test_a_task_that_kills_its_worker_keeps_no_other_from_being_done(tmp_path: Path) -> None:
    """A pool whose worker has failed three times in a row is stopped."""
    make(tmp_path, ["sh", "-c", 'test "$0" != "in 1" || kill -9 $PPID'], 20)
    for run in range(3):
        assert start(tmp_path, 0, run).wait(30) == -signal.SIGKILL
    counts = map_directory.count(tmp_path)
    assert (counts.done, counts.left) == (19, 1)
    (line,) = map_directory.cut_off(tmp_path)
    assert line.startswith("task 1: its worker ended while it ran (2 times before): ")
    assert Path(line.partition("before): ")[2]).exists()


def test_failures_are_tried_again_and_then_stop_the_map(tmp_path: Path) -> None:
    make(tmp_path, ["sh", "-c", 'echo x >> "$0/tries"; exit 4', str(tmp_path)], 1, retries=2)
    assert start(tmp_path, 0).wait(20) == 0
    assert (tmp_path / "tries").read_text() == "x\n" * 3
    (one,) = map_directory.failures(tmp_path)
    assert (one["task"], one["exit_code"]) == (1, 4)
    assert (tmp_path / "stop").exists()
    assert map_directory.is_over(tmp_path, map_directory.count(tmp_path))
    map_directory.put_back(tmp_path)
    assert map_directory.count(tmp_path).todo == 1
    assert not map_directory.is_over(tmp_path, map_directory.count(tmp_path))


@pytest.mark.parametrize("keep_going", [True, False])
def test_the_effect_of_a_failed_task_on_others(tmp_path: Path, keep_going: bool) -> None:
    make(tmp_path, ["sh", "-c", 'test "$0" != "in 1"'], 40, retries=0, go=keep_going)
    assert start(tmp_path, 0).wait(20) == 0
    counts = map_directory.count(tmp_path)
    assert counts.failed == 1
    assert (counts.todo == 0) is keep_going


def test_a_program_that_is_missing_is_a_failure_with_a_log(tmp_path: Path) -> None:
    make(tmp_path, ["/nowhere/program"], 1, retries=0)
    assert start(tmp_path, 0).wait(20) == 0
    (one,) = map_directory.failures(tmp_path)
    assert one["exit_code"] == 127
    assert "/nowhere/program" in Path(one["log"]).read_text()


def test_an_input_that_no_program_can_get_is_a_failure_with_a_log(tmp_path: Path) -> None:
    map_directory.make(tmp_path, ["echo"], ["a\0b", "c"], 0, keep_going=True)
    assert start(tmp_path, 0).wait(20) == 0
    counts = map_directory.count(tmp_path)
    assert (counts.done, counts.failed) == (1, 1)
    assert "null byte" in (tmp_path / "logs" / "1.err").read_text()


def test_a_directory_that_is_out_of_order_for_a_moment_is_no_failure_of_the_task(
    tmp_path: Path,
) -> None:
    make(tmp_path, ["sh", "-c", "sleep 1; echo whole"], 1, retries=0)
    worker = start(tmp_path, 0, code=STALE + WORKER)
    assert worker.wait(20) == 0
    assert map_directory.count(tmp_path) == map_directory.Counts(done=1)
    assert (tmp_path / "logs" / "1.out").read_text() == "whole\n"


def test_a_task_has_the_time_of_the_notice_and_then_is_given_back(tmp_path: Path) -> None:
    make(tmp_path, ["sh", "-c", "sleep 60"], 1)
    worker = start(tmp_path, 0)
    wait_until(lambda: map_directory.count(tmp_path).run == 1)
    began = time.monotonic()
    worker.send_signal(signal.SIGURG)
    assert worker.wait(20) == 0
    assert time.monotonic() - began >= 0.9  # nine seconds less eight
    assert map_directory.count(tmp_path) == map_directory.Counts(todo=1, interrupted=1)
    assert not list((tmp_path / "logs").iterdir())


def test_a_worker_killed_while_waiting_does_not_wait_again_endlessly(tmp_path: Path) -> None:
    make(tmp_path, ["true"], 1)
    gone, other = "wait.7_0-0-00000000", "wait.7_1-0-00000000"
    for name in (gone, other):
        (tmp_path / "tasks" / name).touch()
    assert start(tmp_path, 0, run=1).wait(20) == 0
    assert not (tmp_path / "tasks" / gone).exists()
    assert (tmp_path / "tasks" / other).exists()


def test_a_worker_without_a_task_waits_until_all_have_ended(tmp_path: Path) -> None:
    make(tmp_path, ["sh", "-c", 'sleep 1; echo "$0"'], 1)
    workers = [start(tmp_path, element) for element in range(3)]
    wait_until(lambda: sum(worker.poll() is not None for worker in workers) == 1)
    assert map_directory.count(tmp_path).run == 1
    assert [worker.wait(20) for worker in workers] == [0, 0, 0]
    assert map_directory.count(tmp_path).done == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"command": ["a"]}',
        '{"command": ["a"], "tasks": "2"}',
        '{"command": "a", "tasks": 2}',
        '{"command": [1], "tasks": 2}',
    ],
)
def test_a_directory_that_is_no_map_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "map.json").write_text(text)
    with pytest.raises(map_directory.MapError, match="map"):
        map_directory.read_order(tmp_path)
