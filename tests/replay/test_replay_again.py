"""The same replay gives the same answer, in any process."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from replay.logs import write
from slurm_hooks.cli import main

SIZES = (0, 1, 2, 4, 8, 16)
SERIAL = {"steep": 0.01, "usual": 0.05, "flat": 0.3}


def holes() -> str:
    """An hour and a half of sixteen nodes, each idle for 5 to 60 minutes at a time."""
    draw, lines = random.Random(4), ["# duration_s=5400", "node,column,idle_from_s,idle_to_s"]
    for node in range(16):
        at = draw.uniform(0, 1800)
        while at < 5_000:
            until = min(at + draw.uniform(300, 3600), 5_400)
            lines.append(f"n{node},{node},{at:.0f},{until:.0f}")
            at = until + draw.uniform(300, 1800)
    return "\n".join(lines) + "\n"


def scaling() -> str:
    def entry(serial: float) -> dict[str, list[float]]:
        rates = [100 * n / (1 + serial * (n - 1)) for n in SIZES]
        return {"nodes": list(SIZES), "images_per_s": rates}

    return json.dumps({"scaling": {name: entry(serial) for name, serial in SERIAL.items()}})


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    jobs = [{"model": name, "images": 3e4} for name in SERIAL]
    queue = json.dumps({"endless": True, "job": jobs})
    files = {
        "--idle": write(tmp_path / "idle.csv", holes()),
        "--scaling": write(tmp_path / "scaling.json", scaling()),
        "--queue": write(tmp_path / "queue.json", queue),
    }
    return ["replay", *(w for pair in files.items() for w in map(str, pair)), "--jobs=5", "--json"]


def figures(text: str) -> Any:
    """The answer without the seconds that the solver took."""
    answer = json.loads(text)
    for line in (answer, *answer["lines"].values()):
        del line["solve_s"]
    return answer


def test_a_replay_answers_the_same_again(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words += ["--policy=learned", "--compare=oracle"]
    answers = []
    for _ in range(2):
        assert main(words) == 0
        answers.append(figures(capsys.readouterr().out))
    program = "import sys; from slurm_hooks.cli import main; sys.exit(main(sys.argv[1:]))"
    elsewhere = subprocess.run(
        [sys.executable, "-c", program, *words],
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert figures(elsewhere.stdout) == answers[0] == answers[1]
