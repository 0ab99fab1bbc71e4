"""The demo's story where nothing is installed: without ticks, leases and a reservation."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from made_up import (
    ABOUT,
    PLAIN,
    ZERO,
    fragment,
    recording,
    records,
    sample,
    show,
    story,
    timeline,
    verdict,
    work,
)
from rich.console import Console


def run(taken: int = 2) -> records.Recording:
    """A run in which the urgent job takes so many fragments."""
    ours = [fragment(index, f"n{index + 1}", 4, 1800) for index in range(6)]
    long, urgent = (
        records.Row(job, "main", "RUNNING", ZERO + at, ZERO + at, nodes=frozenset(nodes))
        for job, at, nodes in (("10", 0, ("n1", "n2")), ("11", 90, ("n5", "n6")))
    )
    waiting = [replace(row, state="PENDING", nodes=frozenset()) for row in ours]
    done = [replace(row, state="COMPLETED") for row in (long, urgent, *ours)]
    return recording(
        sample(1, long, *waiting),
        sample(4, long, *waiting[:2], *ours[2:]),
        sample(60, *ours),
        sample(92, urgent, *ours[: 6 - taken], *waiting[6 - taken :]),
        sample(130, *ours),
        sample(200, *done),
        without=(sample(0), sample(200, *done)),
        ids={"long": ("10", "10"), "urgent": ("11", "11")},
        result={"steps": 900, "accuracy": 0.97},
        scenario=PLAIN,
        work=work.ON_PLAIN,
        begin=float("inf"),
        end=float("inf"),
    )


def failed(played: records.Recording) -> list[str]:
    report = verdict.report(played, ABOUT)
    return [check["what"] for check in report["checks"] if not check["met"]]


def test_a_good_run_meets_every_check_and_is_shown(tmp_path: Path) -> None:
    text = io.StringIO()
    show.summary(verdict.report(run(), ABOUT), Console(file=text, width=120))
    assert failed(run()) == []
    assert "preempted by Slurm" in text.getvalue()
    assert "Ticks" not in text.getvalue()
    assert "Reservation" not in text.getvalue()
    assert [size.count for size in story.sizes(run())] == [0, 4, 6, 4, 6, 0]
    assert timeline.draw(run(), tmp_path / "timeline.png").stat().st_size
    show.Plain(Console(file=text)).update(show.Frame(run(), 200.0, 900, 900))


@pytest.mark.parametrize(
    ("played", "what"),
    [
        (run(taken=1), "the urgent job took 2 fragments"),
        (replace(run(), result={}), "accuracy of 0.95 or better"),
        (replace(run(), with_it=run().with_it[:4]), "the job grew, shrank and grew again"),
    ],
)
def test_each_check_can_fail(played: records.Recording, what: str) -> None:
    assert what in failed(played)


def test_the_job_is_asked_for_as_its_user_would() -> None:
    words = ("--partition=preempt", "--malleable=1-6", "--time=30:00")
    assert work.ON_PLAIN.request(PLAIN) == words
