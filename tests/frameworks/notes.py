"""Trainings of frameworks under real torchrun, and the notes of their scripts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from elastic.gang import Gang
from waiting import wait_until

HERE = Path(__file__).parent
NNODES = "1:3"
LONG = 100_000
SAMPLES, STEPS_OF_EPOCH = 840, 70  # of a global batch of 12


def begin(gang: Gang, script: str, world: int = 2, start_s: int = 0) -> Gang:
    """Two fragments that train, with `world` processes in all. Neither writes a file.

    The first step of a round of Lightning comes so many seconds later.
    """
    gang.script = HERE / script
    gang.extra["TRAIN_START_S"] = str(start_s)
    for fragment in (1, 2):
        gang.start(fragment, NNODES, LONG)
    gang.wait_world(world, timeout=300)
    return gang


def train_on(gang: Gang, steps: int = 12) -> None:
    """Wait until so many more steps are done."""
    wanted = gang.steps()[-1][1] + steps
    wait_until(lambda: gang.steps()[-1][1] >= wanted, explain=gang.dump)


def noted(gang: Gang) -> list[dict[str, float]]:
    """The notes of each step of each fragment."""
    rows = []
    for path in gang.work.glob("steps-*.jsonl"):
        rows += [json.loads(line) for line in path.read_text().splitlines()]
    return sorted(rows, key=lambda row: row["t"])


def resumed_after(gang: Gang, since: float) -> int:
    """The step at which the round after that time began.

    Check that all processes have the weights that were noted after this step, and that it is the
    last step or the step before.
    """
    begins = [b for b in gang.begins() if b["t"] > since]
    step, begun = int(begins[0]["step"]), min(b["t"] for b in begins)
    before = [row for row in noted(gang) if row["t"] < begun]
    assert {b["sum"] for b in begins} == {r["sum"] for r in before if r["step"] == step}, begins
    assert before[-1]["step"] - step <= 1, (before[-1], begins)
    return step


def samples_off(gang: Gang) -> int:
    """How often samples of a past epoch were learnt too often.

    Of each step, only the last round's version counts, because a process may not live to note it.
    """
    rounds: dict[int, dict[str, list[float]]] = {}
    for row in noted(gang):
        of = rounds.setdefault(int(row["step"]), {})
        of.setdefault(str(row["round"]), []).extend(row["samples"])
    steps = {step: list(of.values())[-1] for step, of in rounds.items()}
    off = 0
    for first in range(1, max(steps) - STEPS_OF_EPOCH + 2, STEPS_OF_EPOCH):
        counts = Counter(i for n in range(first, first + STEPS_OF_EPOCH) for i in steps[n])
        off += sum(count - 1 for count in counts.values())
    return off
