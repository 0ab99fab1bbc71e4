"""A careless administrator changes everything at random, and no training is lost.

CARELESS_S is the number of seconds (default: 120). CARELESS_SEED repeats a course.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from abuse.careless import Careless
from abuse.conftest import Row
from abuse.course import GANGS, MIXED, PARTS_TOO, Made
from promises.bench import TRAINER, Bench
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

CARELESS_S = float(os.environ.get("CARELESS_S", "120"))
SEED = int(os.environ.get("CARELESS_SEED", random.SystemRandom().randrange(10**6)))
SETTLE_S = 420
pytestmark = [
    pytest.mark.slurm,
    pytest.mark.torch,
    pytest.mark.abuse,
    pytest.mark.timeout(CARELESS_S + 3 * SETTLE_S),
    pytest.mark.skipif(os.geteuid() != 0, reason="acts as an administrator, who is root"),
]


def trainer(box: Sandbox) -> str:
    """The user of the trainings: `nobody` where that user can read this Python."""
    said = box.run([sys.executable, "-c", "import torch"], user="nobody", check=False, timeout_s=90)
    return "nobody" if said.returncode == 0 else TRAINER


@pytest.mark.parametrize(
    ("kinds", "spec"),
    [(GANGS, {}), (MIXED, {}), (PARTS_TOO, {"gpus": 2, "cpus": 4})],
    ids=["gangs", "mixed", "parts"],
)
def test_a_careless_administrator_loses_no_training(
    fresh_sandbox: Callable[..., Sandbox],
    tmp_path: Path,
    row: Row,
    kinds: tuple[Made, ...],
    spec: dict[str, int],
) -> None:
    pytest.importorskip("torch")
    box = fresh_sandbox(nodes=8, **spec)
    plain = box.settings.read_text()
    bench = Bench(box)
    box.settings.write_text(plain)  # as a site has it
    course = Careless(bench, tmp_path / "journal", trainer(box), dice=random.Random(SEED))
    print(f"CARELESS_SEED={SEED} {course.journal} {course.user}")
    with course.ticks():
        course.start(kinds)
        until = time.monotonic() + CARELESS_S
        while time.monotonic() < until:
            course.step()
        course.calm()
        wait_until(lambda: not course.lacking(), SETTLE_S, course.evidence, every_s=5)
        course.finish()
        wait_until(lambda: not course.unfinished(), SETTLE_S, course.unfinished, every_s=5)
    assert not course.broken(), "\n".join(course.broken())
    changes = sum(course.done.values())
    row(f"{changes} changes in {CARELESS_S:.0f} s, seed {SEED}", "all trainings finished")
