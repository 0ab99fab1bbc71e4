"""Sizes at which a script fails, for example because it asserts a number of processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest

from build import (
    after,
    make_fragment,
    make_job,
    make_request,
)
from fake_parts import START, Element, Rigid
from fake_slurm import FakeSlurm
from planning.whole_ticks import one_tick
from slurm_hooks.model import (
    Counts,
    FragmentState,
    MalleableJob,
    Rate,
    Slot,
    Telemetry,
)
from slurm_hooks.protocol.request import read
from slurm_hooks.report.hints import hints

FAILED, RUNNING = FragmentState.FAILED, FragmentState.RUNNING
MARK = "malleable{min=2,max=4,unit=1,engine=torchrun,frags=4,lease=600,hole=120}"
TICK_S = 10


class Picky:
    """A script that trains with any number of nodes except the `bad` numbers.

    At a bad number its agents give up after 20 s. It reports a rate after a minute of training.
    """

    def __init__(self, slurm: FakeSlurm, bad: frozenset[int] = frozenset({3})) -> None:
        self._slurm, self._at, self._nodes, self._since = slurm, 0, 0, 0
        self._bad = bad
        self.failures: list[int] = []
        self._told: dict[int, int] = {}

    def outcome(self, element: Element, ran_s: int) -> Optional[int]:
        if self._slurm.now != self._at:
            self._look()
        if self._nodes in self._bad and self._slurm.now - self._since >= 20:
            if self._at not in self.failures:
                self.failures.append(self._at)
            return 1
        if self._told and element.index == 0 and "progress" not in element.comment:
            element.comment += f";progress{{{self._entry()}}}"
        return None

    def _look(self) -> None:
        self._at = self._slurm.now
        there = [e for e in self._slurm.elements.values() if e.state == "RUNNING"]
        if len(there) != self._nodes:
            self._nodes, self._since = len(there), self._at
        if self._nodes and self._nodes not in self._bad and self._at - self._since == 60:
            self._told[self._nodes] = self._at
            for element in there:
                element.comment = element.comment.partition(";")[0]

    def _entry(self) -> str:
        newest = max(self._told.values())
        rates = (f"{n}:{100 * n}/9/32/{newest - at}" for n, at in self._told.items())
        return f"s{newest},{','.join(rates)}"


def test_three_failures_at_a_size_stop_a_script_that_trains_at_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It trains with 2 nodes until a third node is free for it."""
    monkeypatch.chdir(tmp_path)
    slurm = FakeSlurm({f"n{i}": "" for i in range(1, 4)})
    slurm.rigid.append(Rigid(90, frozenset({"n3"}), START, START, 300))
    script = Picky(slurm)
    slurm.outcome = script.outcome
    slurm.submit(1, 4, MARK)
    for _ in range(200):
        report = one_tick(slurm)
        slurm.advance(TICK_S)
        if slurm.now - START == 290:
            assert sum(e.state == "RUNNING" for e in slurm.elements.values()) == 2
    assert len(script.failures) == 3, script.failures
    (job,) = report.snapshot.jobs
    assert any(f.mark.stopped.startswith("failed-3-times:exit-1:0-on-n") for f in job.fragments)
    assert (
        "it has trained with 2; if it cannot train with other sizes, begin --malleable with 2-2 "
        "and keep its other words" in hints(job)
    )


SIXTEEN = ",".join(map(str, range(2, 18)))  # as many as a request may name


def failed_job(*sizes: int, **fields: Any) -> MalleableJob:
    """A job that has failed, and had reported rates of these sizes before."""
    at = int(after(-500).timestamp())
    telemetry = Telemetry(tuple(Rate(n, 100.0 * n, 0.01, at) for n in sizes), Counts.SAMPLES)
    request = replace(make_request(2, 6), **fields)
    dead = make_fragment(0, request=request, telemetry=telemetry, failures=2)
    return make_job(dead, held=5, request=request)


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (failed_job(2, 4), "2-4,sizes=2,4"),
        (failed_job(4, 2, unit=2), "2-4,sizes=2,4"),  # the unit is another word
        (failed_job(2, 3, slot=Slot("gpu")), "2-3,sizes=2,3"),
        (failed_job(*range(2, 18), max_nodes=20), f"2-17,sizes={SIXTEEN}"),
        (failed_job(*range(2, 19), max_nodes=20), None),  # no request may name as many
        (failed_job(8), None),  # beyond its request
    ],
)
def test_a_job_that_fails_is_told_how_to_name_the_sizes_of_its_rates(
    job: MalleableJob, words: Optional[str]
) -> None:
    said = [text for text in hints(job) if "has trained with" in text]
    if words is None:
        assert said == []
        return
    (text,) = said
    assert text.endswith(f"begin --malleable with {words} and keep its other words")
    assert str(read(words).sizes)[1:-1].replace(", ", ",") in text
