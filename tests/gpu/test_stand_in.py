"""The suite for GPUs works without a GPU: its code is run with a stand-in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

TREE = Path(__file__).parents[2]


def summary_of(*words: str) -> dict[str, Any]:
    """The object at the end of the suite."""
    command = [sys.executable, "-m", "pytest", "tests/gpu", "-q", "-p", "no:cacheprovider", *words]
    done = subprocess.run(command, cwd=TREE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_the_suite_measures_on_a_stand_in_and_prints_it_in_its_last_line() -> None:
    summary = summary_of("--stand-in", "-k", "copies and 0")
    assert summary["passed"] == 1
    (row,) = summary["gpu"]
    assert (row["case"], row["mib"], row["device"]) == ("copies", 8, "stand-in")
    assert 0 < row["later_s"] < 60
