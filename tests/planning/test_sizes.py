"""Sizes at which a script fails, for example because it asserts a number of processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest
from care import care_for, marks

from build import (
    NOW,
    after,
    make_fragment,
    make_job,
    make_nodes,
    make_request,
    make_snapshot,
    no_clock,
)
from fake_parts import START, Element, Rigid
from fake_slurm import FakeSlurm
from planning.readings import noticed
from planning.whole_ticks import one_tick
from slurm_hooks.model import (
    Counts,
    FailedSize,
    FragmentState,
    MalleableJob,
    NodeState,
    Plan,
    Rate,
    Said,
    Slot,
    Telemetry,
    Verb,
)
from slurm_hooks.planning.plan import make_plan
from slurm_hooks.planning.sizes import why_not
from slurm_hooks.report.why import reason_text
from slurm_hooks.settings.values import Mode, Settings

FAILED, RUNNING = FragmentState.FAILED, FragmentState.RUNNING
MARK = "malleable{min=2,max=4,unit=1,engine=torchrun,frags=4,lease=600,hole=120}"
LINE = "fails with 3 nodes, trains with 2 and 4: --malleable=2-4,unit=2"
TICK_S = 10


class Picky:
    """A script that trains with any number of nodes except the `bad` numbers.

    At a bad number its agents give up after 20 s. It reports a rate after a minute of training.
    """

    def __init__(self, slurm: FakeSlurm, bad: frozenset[int] = frozenset({3})) -> None:
        self._slurm, self._at, self._nodes, self._since = slurm, 0, 0, 0
        self._bad = bad
        self.failures: list[int] = []
        self.failed_with: list[int] = []
        self._told: dict[int, int] = {}

    def outcome(self, element: Element, ran_s: int) -> Optional[int]:
        if self._slurm.now != self._at:
            self._look()
        if self._nodes in self._bad and self._slurm.now - self._since >= 20:
            if self._at not in self.failures:
                self.failures.append(self._at)
                self.failed_with.append(self._nodes)
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


def live(slurm: FakeSlurm, seconds: int) -> list[str]:
    """Run ticks. Return the reasons that the last tick gave."""
    for _ in range(seconds // TICK_S):
        report = one_tick(slurm)
        slurm.advance(TICK_S)
    return [reason_text(reason) for job in report.plan.jobs for reason in job.reasons]


def running(slurm: FakeSlurm) -> int:
    return sum(e.state == "RUNNING" for e in slurm.elements.values())


def test_a_size_at_which_the_script_fails_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It trains with 2 nodes, then a third and later a fourth are free for it."""
    monkeypatch.chdir(tmp_path)
    slurm = FakeSlurm({f"n{i}": "" for i in range(1, 5)})
    slurm.rigid.append(Rigid(90, frozenset({"n3"}), START, START, 300))
    slurm.rigid.append(Rigid(91, frozenset({"n4"}), START, START, 1800))
    script = Picky(slurm)
    slurm.outcome = script.outcome
    slurm.submit(1, 4, MARK)
    live(slurm, 290)
    assert running(slurm) == 2
    assert script.failures == []
    reasons = live(slurm, 1400)
    assert running(slurm) == 2
    assert len(script.failures) == 3, script.failures
    assert "fails with 3 nodes, trains with 2" in reasons
    reasons = live(slurm, 600)
    assert running(slurm) == 4
    assert len(script.failures) == 3, script.failures
    assert LINE in live(slurm, TICK_S)
    slurm.rigid.append(Rigid(92, frozenset({"n4"}), slurm.now, slurm.now, 10_000))
    live(slurm, 400)
    assert running(slurm) == 2
    assert len(script.failures) == 3, script.failures


def test_a_script_that_trains_at_few_sizes_is_not_stopped_by_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It trains only with 2 nodes when four more become free.

    The third failure with 6 nodes must not make the first failure with 5 the last.
    """
    monkeypatch.chdir(tmp_path)
    slurm = FakeSlurm({f"n{i}": "" for i in range(1, 7)})
    slurm.rigid.append(Rigid(90, frozenset({"n3", "n4", "n5", "n6"}), START, START, 300))
    script = Picky(slurm, frozenset({3, 4, 5, 6}))
    slurm.outcome = script.outcome
    slurm.submit(1, 6, MARK.replace("max=4", "max=6").replace("frags=4", "frags=6"))
    live(slurm, 290)
    assert running(slurm) == 2
    live(slurm, 2400)
    assert script.failed_with[:6] == [6, 6, 6, 5, 5, 5]
    assert running(slurm) == 2


def telling(*sizes: int, at_s: float = -500) -> Telemetry:
    """The report of a job that has trained with so many nodes."""
    at = int(after(at_s).timestamp())
    return Telemetry(tuple(Rate(n, 100.0 * n, 0.01, at) for n in sizes), Counts.SAMPLES)


def failed(nodes: int, times: int, ago_s: float = 300) -> tuple[FailedSize, ...]:
    return tuple(FailedSize(nodes, after(-ago_s + n)) for n in range(times))


def waiting(**fields: Any) -> MalleableJob:
    """A job of 2 to 6 nodes without a running fragment."""
    request = make_request(2, 6)
    return make_job(make_fragment(0, request=request, **fields), held=5, request=request)


def planned(job: MalleableJob, nodes: int) -> Plan:
    return make_plan(
        make_snapshot(job, nodes=make_nodes(nodes)), Settings(mode=Mode("on")), no_clock
    )


def size(plan: Plan) -> int:
    return sum(len(a.nodes) for a in plan.actions if a.verb is Verb.GROW)


@pytest.mark.parametrize(
    ("failures", "telemetry", "sizes"),
    [
        (failed(3, 3), telling(2, 4), {2: 2, 3: 2, 4: 4, 5: 5}),
        (failed(3, 2), telling(2, 4), {3: 3}),  # not often enough
        (failed(3, 3, 3700), telling(2, 4), {3: 3}),  # too long ago
        (failed(3, 3), telling(2, 3, 4), {3: 2}),  # it trained there, but before
        (failed(3, 3), telling(2, 3, 4, at_s=-100), {3: 3}),  # and there since
        (failed(3, 3), telling(3), {3: 3}),  # nowhere else
        (failed(3, 3), None, {3: 3}),
        (failed(3, 3) + failed(2, 3), telling(4), {3: 0, 4: 4}),
        (failed(4, 3) + failed(3, 3), telling(2, 6), {4: 2, 5: 5}),
    ],
)
def test_the_sizes_that_a_job_is_given(
    failures: tuple[FailedSize, ...], telemetry: Optional[Telemetry], sizes: dict[int, int]
) -> None:
    """The cases are by the number of free nodes."""
    job = waiting(failed_sizes=failures, telemetry=telemetry)
    assert {nodes: size(planned(job, nodes)) for nodes in sizes} == sizes


@pytest.mark.parametrize(("told_s", "nodes"), [(-500, 4), (-100, 5)])
def test_after_failures_a_job_first_gets_a_size_at_which_it_trained(
    told_s: float, nodes: int
) -> None:
    """The rule holds until it has reported a rate again: a failure with 5 nodes would stop it."""
    telemetry = telling(2, 4, at_s=told_s)
    job = waiting(failed_sizes=failed(6, 3), telemetry=telemetry, failures=2)
    assert size(planned(job, 6)) == nodes


def test_a_job_without_a_suitable_smaller_size_blocks_no_other_job() -> None:
    """Its next good size is larger than the number of free nodes."""
    job = waiting(failed_sizes=failed(2, 3), telemetry=telling(4))
    other = make_job(held=6, job_id=8)
    nodes = make_nodes(3)
    plan = make_plan(make_snapshot(job, other, nodes=nodes), Settings(mode=Mode("on")), no_clock)
    assert size(plan) == 3


def test_a_job_that_is_left_with_a_failing_size_gives_a_node_back() -> None:
    request = make_request(2, 6)
    fields: dict[str, Any] = {"request": request, "said": Said.TRAINED}
    notes = {"failed_sizes": failed(3, 3), "telemetry": telling(2, 4)}
    runs = [
        make_fragment(i, RUNNING, [f"n{i + 1}"], **fields, **(notes if i == 0 else {}))
        for i in range(3)
    ]
    job = make_job(*runs, held=3, request=request)
    nodes = make_nodes(3, NodeState.BUSY)
    plan = make_plan(make_snapshot(job, nodes=nodes), Settings(mode=Mode("on")), no_clock)
    assert len(noticed(plan)) == 1


@pytest.mark.parametrize(
    ("good", "bad", "line"),
    [
        ((2, 4), 3, "fails with 3 nodes, trains with 2 and 4: --malleable=2-4,unit=2"),
        ((2, 3, 4), 6, "fails with 6 nodes, trains with 2, 3 and 4: --malleable=2-4"),
        ((4, 6), 2, "fails with 2 nodes, trains with 4 and 6: --malleable=4-6"),
        ((2, 5), 3, "fails with 3 nodes, trains with 2 and 5"),
        ((2,), 3, "fails with 3 nodes, trains with 2"),
    ],
)
def test_the_request_without_the_failing_size_is_named(
    good: tuple[int, ...], bad: int, line: str
) -> None:
    job = waiting(failed_sizes=failed(bad, 3), telemetry=telling(*good))
    (plan,) = planned(job, 3).jobs
    assert line in map(reason_text, plan.reasons)


@pytest.mark.parametrize(
    ("slot", "unit", "ends"),
    [(Slot("gpu"), 1, "unit=2gpu"), (Slot("gpu"), 2, "unit=2gpu"), (Slot(cpus=4), 1, "unit=2task")],
)
def test_sbatch_takes_the_named_request_of_a_job_that_counts_slots(
    slot: Slot, unit: int, ends: str
) -> None:
    asked = replace(make_request(2, 6, unit), slot=slot)
    job = replace(waiting(telemetry=telling(2, 4)), request=asked)
    assert why_not(job, frozenset({3})).detail["request"] == f"2-4,{ends}"
    every = replace(waiting(telemetry=telling(2, 3)), request=replace(asked, unit=1))
    assert why_not(every, frozenset({6})).detail["request"] == f"2-3,{ends.replace('2', '')}"


@pytest.mark.parametrize(("telemetry", "is_over"), [(None, True), (telling(2), False)])
def test_a_third_failure_at_a_size_stops_only_a_job_that_never_trained_at_another(
    telemetry: Optional[Telemetry], is_over: bool
) -> None:
    request = make_request(2, 6)
    fields: dict[str, Any] = {"request": request, "exit_code": "1:0", "failures": 2}
    dead = [make_fragment(i, FAILED, [f"n{i}"], end=after(-1), **fields) for i in range(2)]
    last = make_fragment(
        2, RUNNING, ["n2"], telemetry=telemetry, failed_sizes=failed(3, 2), **fields
    )
    care = care_for(make_job(*dead, last, held=3, request=request))
    assert care.has_ended is is_over
    if not is_over:
        mark = marks(care.actions)[0]
        assert mark.failures == 2
        assert mark.failed_sizes == (*failed(3, 2), FailedSize(3, NOW))
