"""The architecture search: candidates of lost workers continue elsewhere, each with a result."""

from __future__ import annotations

import json

import pytest

from engines.recipes import Recipe
from promises.bench import Bench

pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytestmark = [pytest.mark.slurm, pytest.mark.engines, pytest.mark.timeout(180)]
CANDIDATES = 40
WORDS = (f"--candidates={CANDIDATES}", "--epochs=8", "--pace=0.2", "--silence=8")


def test_a_search_of_architectures(bench: Bench) -> None:
    recipe = Recipe.copied(bench, "architecture_search")
    job = recipe.submit("search.sh", *WORDS, request="0-4,engine=pool")
    recipe.disturb(job, "search.py")
    place = recipe.place / "search"
    results = [json.loads(path.read_text()) for path in place.glob("*.result")]
    assert sorted(result["task"] for result in results) == list(range(CANDIDATES))
    again = [result for result in results if result["attempt"]]
    claims = len(list(place.glob("*.claim-*")))
    assert claims == CANDIDATES + sum(result["attempt"] for result in results)
    assert len(again) >= 3  # at least: two were preempted, and one was killed
    assert any(result["resumed_at"] for result in again)
    assert not list(place.glob("*.checkpoint"))
    assert max(result["accuracy"] for result in results) > 0.8
