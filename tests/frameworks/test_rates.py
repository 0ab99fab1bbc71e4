"""The speed of scripts without our library: agents' reports to Slurm, compared with the
scripts' notes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Optional

import pytest

from elastic.gang import Gang
from slurm_hooks.model import Rate, Telemetry
from slurm_hooks.protocol.comment import parse
from slurm_hooks.slurm.telemetry import parse_progress
from waiting import wait_until

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(600)]
ERROR = 0.04  # on a busy host a rate is not known that well at once
LATEST_S = 75.0  # to tell a change: it takes some seconds to see, and its turn comes in a minute


@pytest.fixture
def job(gang: Gang) -> Gang:
    gang.pretend_slurm()
    gang.script = gang.script.parents[1] / "frameworks" / "train_unknowing.py"
    return gang


def start(gang: Gang, fragment: int, kind: str) -> None:
    gang.extra["SLURM_ARRAY_TASK_ID"] = str(fragment)
    gang.start(fragment, "1:2", kind)  # type: ignore[arg-type]


def newest_report(gang: Gang) -> Optional[Telemetry]:
    """The newest report of any fragment."""
    paths = gang.work.glob("comment.77_*")
    reports = [parse_progress(parse(path.read_text()).progress) for path in paths]
    return max((t for t in reports if t), key=lambda t: t.rates[-1].at, default=None)


def rate_of(gang: Gang, nodes: int, is_so: Callable[[Rate], bool] = lambda rate: True) -> Rate:
    """The first reported rate of this size."""
    matches: list[Rate] = []

    def is_told() -> bool:
        now = newest_report(gang)
        rates = [r for r in now.rates if r.nodes == nodes and r.error < ERROR] if now else []
        matches[:] = filter(is_so, rates)
        return bool(matches)

    wait_until(is_told, 300, gang.dump)
    return matches[0]


def own_steps(gang: Gang, until: float, seconds: float = 30.0) -> list[tuple[float, int]]:
    """The end time of each step by the script's notes, and its number of samples over all
    processes.
    """
    rows = [line.split() for line in (gang.work / "own").read_text().splitlines()]
    return [(float(t), int(n)) for t, n in rows[:-1] if until - seconds <= float(t) <= until]


def own_rate(gang: Gang, until: float) -> float:
    """Samples a second by the notes of the script, of steps without delays."""
    steps = own_steps(gang, until)
    taken = [(after[0] - before[0], after[1]) for before, after in zip(steps, steps[1:])]
    usual = sorted(seconds for seconds, _ in taken)[len(taken) // 2]
    clean = [(seconds, count) for seconds, count in taken if seconds < 5 * usual]
    return sum(count for _, count in clean) / sum(seconds for seconds, _ in clean)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["plain", "lightning", "trainer", "accelerate", "streaming"])
def test_the_reported_rate_equals_the_script_s_own_rate(job: Gang, kind: str) -> None:
    start(job, 1, kind)
    alone = rate_of(job, 1)
    pairs = {1: (alone, own_rate(job, alone.at))}
    start(job, 2, kind)
    both = rate_of(job, 2)
    pairs[2] = (both, own_rate(job, both.at))
    text = {n: (rate.per_s, rate.error, own, rate.batch) for n, (rate, own) in pairs.items()}
    print(kind, text, newest_report(job))
    for rate, own in pairs.values():
        assert rate.per_s == pytest.approx(own, rel=0.1), text
        assert rate.batch == pytest.approx(own_steps(job, rate.at)[-1][1], rel=0.02)
    telemetry = newest_report(job)
    assert telemetry is not None
    assert telemetry.pauses.grow_s is not None


@pytest.mark.nightly
def test_a_batch_that_changes_in_mid_run_is_reported(job: Gang) -> None:
    start(job, 1, "plain")
    before = rate_of(job, 1)
    (job.work / "double").touch()
    own = job.work / "own"
    wait_until(lambda: f" {2 * round(before.batch)}\n" in own.read_text(), 300, job.dump)
    changed = time.time()
    after = rate_of(job, 1, lambda rate: rate.batch > 1.5 * before.batch)
    assert time.time() - changed < LATEST_S
    assert after.per_s == pytest.approx(own_rate(job, after.at), rel=0.1)
