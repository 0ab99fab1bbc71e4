"""On a real Slurm: the agents of a training ask little of slurmctld in their first minute."""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from promises.bench import TRAINER, WITH_TORCHRUN, Bench
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.torch]

MINUTE_S = 60.0
MOST = 8  # commands of one fragment in it: 3 before it joins, 2 then, 3 of rank 0 for news
MOST_OTHERS = 6  # of one that has no news: it looks once whether its word still stands
TRAINS = """
import time, torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    time.sleep(0.05)
"""
NOTES = """#!/bin/bash
echo "$(date +%s.%N) $MALLEABLE_FRAGMENT ${{0##*/}} $*" >> {log}
exec {real} "$@"
"""


@pytest.fixture
def bench(sandbox: Sandbox) -> Iterator[Bench]:
    pytest.importorskip("torch")
    bench = Bench(sandbox, notice_s=10)
    (sandbox.work / "train.py").write_text(TRAINS)
    yield bench
    bench.cancel_all()


def noting(place: Path) -> Path:
    """A directory for PATH, with squeue and scontrol that note each call in its file `log`."""
    place.mkdir()
    for name in ("squeue", "scontrol"):
        text = NOTES.format(log=place / "log", real=shutil.which(name))
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    return place


def calls(place: Path) -> dict[int, list[tuple[float, str]]]:
    """By fragment: when each command was called, in seconds after its first call, and which
    command.
    """
    entries: dict[int, list[tuple[float, str]]] = defaultdict(list)
    text = (place / "log").read_text() if (place / "log").exists() else ""
    for line in text.splitlines():
        stamp, fragment, words = line.split(" ", 2)
        entries[int(fragment)].append((float(stamp), words))
    return {f: [(at - rows[0][0], words) for at, words in rows] for f, rows in entries.items()}


def newest_start(place: Path) -> float:
    """The time at which the last fragment called its first command, in epoch seconds."""
    first: dict[str, float] = {}
    for line in (place / "log").read_text().splitlines():
        stamp, fragment, _ = line.split(" ", 2)
        first.setdefault(fragment, float(stamp))
    return max(first.values())


def test_a_fragment_asks_slurm_little_in_its_first_minute(bench: Bench) -> None:
    place = noting(bench.box.work / "noting")
    script = f"{WITH_TORCHRUN}\nexport PATH={place}:$PATH\nexec torchrun train.py"
    bench.submit(script, "2-2", TRAINER)

    def have_run_a_minute() -> bool:
        bench.tick()
        return len(calls(place)) == 2 and time.time() - newest_start(place) > MINUTE_S

    wait_until(have_run_a_minute, 240, explain=lambda: str(calls(place)), every_s=2.0)
    minutes = [[r for r in rows if r[0] < MINUTE_S] for rows in calls(place).values()]
    shown = "\n".join(f"{at:.1f} {words}" for minute in minutes for at, words in minute)
    assert all(any("joined" in words for _, words in minute) for minute in minutes), shown
    assert max(map(len, minutes)) <= MOST, shown
    assert min(map(len, minutes)) <= MOST_OTHERS, shown
