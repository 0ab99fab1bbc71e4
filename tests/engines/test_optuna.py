"""The Optuna recipe: workers are killed, preempted and put back, and each task has a single
result.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engines.recipes import Recipe
from promises.bench import Bench
from waiting import wait_until

optuna = pytest.importorskip("optuna")
pytestmark = [pytest.mark.slurm, pytest.mark.engines, pytest.mark.timeout(180)]
TASKS = 40
WORDS = (f"--trials={TASKS}", "--epochs=10", "--pace=0.25", "--silence=8")


@pytest.fixture
def recipe(bench: Bench) -> Recipe:
    return Recipe.copied(bench, "optuna")


@pytest.fixture
def proxy(recipe: Recipe) -> Iterator[Path]:
    """The storage proxy of the recipe, on this host. Yield its database."""
    argv = ["bash", "proxy.sh", "--host=127.0.0.1"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    process = subprocess.Popen(argv, cwd=recipe.place, env={**os.environ, "PATH": path})
    try:
        wait_until((recipe.place / "study" / "proxy.address").exists)
        yield recipe.place / "study" / "study.db"
    finally:
        process.terminate()
        process.wait(10)


def search(recipe: Recipe, *more: str) -> None:
    job = recipe.submit("search.sh", *WORDS, *more, request="0-4,engine=pool")
    recipe.disturb(job, "search.py")


def in_journal(recipe: Recipe) -> list[Any]:
    backend = optuna.storages.journal.JournalFileBackend(str(recipe.place / "study/journal.log"))
    storage = optuna.storages.JournalStorage(backend)
    return list(optuna.load_study(study_name="digits", storage=storage).trials)


def assert_each_has_one_result(trials: list[Any], tasks: int = TASKS) -> None:
    settled = [t for t in trials if t.state.name in ("COMPLETE", "PRUNED")]
    assert sorted(t.user_attrs["task"] for t in settled) == list(range(tasks))
    assert {t.state.name for t in trials} - {"COMPLETE", "PRUNED", "FAIL"} == set()


def assert_three_were_lost(trials: list[Any]) -> None:
    """Two workers were preempted, and a third was killed. A trial without a task was asked for
    while no trial waited.
    """
    lost = [t for t in trials if t.state.name == "FAIL" and "task" in t.user_attrs]
    assert not [t for t in lost if "error" in t.user_attrs]
    assert len({t.user_attrs["worker"] for t in lost}) >= 3


def assert_pruning_works_across_them(trials: list[Any]) -> None:
    resumed = [t for t in trials if "resumed_at" in t.user_attrs]
    assert resumed
    for trial in resumed:
        first = next(t for t in trials if t.params == trial.params)
        reached = dict(list(trial.intermediate_values.items())[: trial.user_attrs["resumed_at"]])
        known = first.intermediate_values.items()
        assert first.number < trial.number
        assert {step: reached[step] for step, _ in known if step in reached} == {
            step: value for step, value in known if step in reached
        }
    assert any(t.state.name == "PRUNED" for t in trials)


def test_a_search_on_a_journal(recipe: Recipe) -> None:
    search(recipe)
    trials = in_journal(recipe)
    assert_each_has_one_result(trials)
    assert_three_were_lost(trials)
    assert_pruning_works_across_them(trials)


def test_a_search_behind_the_storage_proxy(recipe: Recipe, proxy: Path) -> None:
    search(recipe, "--proxy")
    trials = optuna.load_study(study_name="digits", storage=f"sqlite:///{proxy}").trials
    assert_each_has_one_result(trials)
    assert_three_were_lost(trials)


def test_a_study_continues_in_another_job(recipe: Recipe) -> None:
    """All workers are killed with their job. Workers of the next job continue their trials."""
    words = ("--trials=16", *WORDS[1:])
    first = recipe.submit("search.sh", *words, request="0-4,engine=pool")
    recipe.tick_until(lambda: recipe.are_at_work("search.py", 4), first)
    recipe.bench.box.run(["scancel", "--signal=KILL", "--full", str(first)])
    recipe.bench.box.run(["scancel", str(first)])
    wait_until(lambda: not recipe.processes("search.py"))
    second = recipe.submit("search.sh", *words, request="0-4,engine=pool")
    recipe.tick_to_end(second)
    trials = in_journal(recipe)
    assert_each_has_one_result(trials, 16)
    assert {t.user_attrs["worker"].partition("-")[0] for t in trials} == {str(first), str(second)}
