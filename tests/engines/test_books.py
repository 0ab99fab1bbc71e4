"""Decisions of the recipes about lost work: tables, and workers that race and are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engines.recipes import Recipe

pytestmark = pytest.mark.engines
LIVE = ("WAITING", "RUNNING", "COMPLETE", "PRUNED")
WORKER = """
import random, sys, time
from pathlib import Path
from claims import Tasks, this_worker
tasks = Tasks(Path(sys.argv[1]), 60, this_worker(), 1.0)
while tasks.open():
    claim = tasks.take(lambda task: task * task)
    if claim is None:
        time.sleep(0.1)
        continue
    with tasks.held(claim):
        time.sleep(random.random() / 5)
    tasks.put_down(claim, {"task": claim.task, "plan": claim.plan, "attempt": claim.attempt})
"""


def test_claimed_tasks_have_a_single_result_whichever_worker_is_killed(tmp_path: Path) -> None:
    here = Recipe.source("architecture_search")
    workers = [started(here, tmp_path) for _ in range(4)]
    dice = random.Random(5)
    while len(list(tmp_path.glob("*.result"))) < 50:
        time.sleep(0.2)
        victim = dice.randrange(len(workers))
        os.kill(workers[victim].pid, signal.SIGKILL)
        workers[victim].wait(10)
        workers[victim] = started(here, tmp_path)
    for worker in workers:
        assert worker.wait(60) == 0
    results = [json.loads(path.read_text()) for path in tmp_path.glob("*.result")]
    assert sorted(result["task"] for result in results) == list(range(60))
    assert all(result["plan"] == result["task"] ** 2 for result in results)
    assert any(result["attempt"] for result in results)


def started(here: Path, place: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(here)}
    return subprocess.Popen([sys.executable, "-c", WORKER, str(place)], env=environment)


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("optuna")
    monkeypatch.syspath_prepend(str(Recipe.source("optuna")))
    import tasks  # noqa: PLC0415  (of the recipe, beside which it lies)

    return tasks


def trial(number: int, state: str, **attributes: object) -> Any:
    from optuna.trial import TrialState  # noqa: PLC0415

    known = {"params": {"width": number}, "state": TrialState[state]}
    return SimpleNamespace(number=number, user_attrs=attributes, **known)


def test_a_task_needs_a_trial_unless_a_trial_runs_or_it_raised_too_often(tasks: Any) -> None:
    for state in LIVE:
        assert tasks.lacking([trial(0, state, task=0)], 1) == []
    assert tasks.lacking([trial(0, "FAIL", task=0)], 2) == [0, 1]
    raised = [trial(n, "FAIL", task=0, error="no") for n in range(tasks.ERRORS)]
    assert tasks.lacking(raised[1:], 1) == [0]
    assert tasks.lacking(raised, 1) == []
    assert tasks.last_parameters(raised, 0) == {"width": tasks.ERRORS - 1}
    assert tasks.last_parameters(raised, 1) == {}


def test_the_oldest_trial_of_a_task_counts(tasks: Any) -> None:
    old, young = trial(3, "RUNNING", task=1), trial(7, "RUNNING", task=1)
    assert not tasks.is_spare(old, [old, young])
    assert tasks.is_spare(young, [old, young])
    assert not tasks.is_spare(young, [trial(3, "FAIL", task=1), young])
    assert tasks.is_spare(trial(8, "RUNNING"), [old, young])  # asked for while no trial waited


def test_the_lost_workers(tasks: Any) -> None:
    me = tasks.Worker("7-2", "3")
    running = [
        trial(0, "RUNNING", worker="7-2-3"),  # me
        trial(1, "RUNNING", worker="7-2-2"),  # me, before
        trial(2, "RUNNING", worker="7-22-2"),
        trial(3, "RUNNING", worker="7-5-0"),
        trial(4, "RUNNING"),
        trial(5, "COMPLETE", worker="7-5-0"),
    ]
    assert tasks.lost(running, me, {"7-2-2": 1.0, "7-22-2": 1.0}) == [1, 3, 4]
    assert tasks.lost(running, me, {"7-22-2": 1.0, "7-5-0": 1.0, "": 1.0}) == [1]
