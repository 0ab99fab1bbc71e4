"""Jobs' reports in a tick, and the words of `malleable explain` about them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from build import make_snapshot
from rate_tellers import TRUE, moment, rate, teller
from slurm_hooks.learning.learned import learned_by
from slurm_hooks.learning.reports import family_of
from slurm_hooks.model import Learned, MalleableJob, Needs, Pauses, Slot, Telemetry
from slurm_hooks.model.resources import GPU
from slurm_hooks.report.learned_text import learned_lines
from slurm_hooks.tick import observe


def told_of(job: MalleableJob, seconds: float) -> list[str]:
    learned = learned_by([job], moment(seconds))[job.job_id]
    return learned_lines(job, learned, moment(seconds))


def test_a_tick_learns_each_job_from_its_own_report() -> None:
    jobs = teller(7, [rate(1, 1), rate(2, 2), rate(8, 3)]), teller(8, [rate(4, 1)]), teller(9)
    learned = observe.with_learned(make_snapshot(*jobs)).learned
    curve = learned[7].curve
    assert curve is not None
    for nodes in (2, 4, 8):
        assert curve(nodes) / curve(1) == pytest.approx(TRUE(nodes) / TRUE(1), rel=0.1)
    assert (learned[8].curve, learned[8].sizes_seen) == (None, (4,))
    assert (learned[9].curve, learned[9].sizes_seen) == (None, ())


def test_a_fault_in_learning_fails_no_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """It concerns only the jobs of the user whose text met the fault."""

    def broken(jobs: list[MalleableJob], _now_s: float) -> dict[int, Learned]:
        if jobs[0].user == "ada":
            raise ZeroDivisionError("a fault")
        return {job.job_id: Learned() for job in jobs}

    monkeypatch.setattr(observe, "learned_by", broken)
    jobs = teller(7), teller(8, user="bob")
    assert observe.with_learned(make_snapshot(*jobs)).learned == {8: Learned()}


def test_a_new_job_begins_with_the_rates_of_jobs_of_the_same_name() -> None:
    reports = [rate(1, 1), rate(2, 2), rate(8, 3)]
    jobs = (
        teller(1, reports[:2], name="trial-1"),
        teller(2, reports[2:], name="trial-2"),
        teller(3, name="trial-3"),
        teller(4, name="other"),
        teller(5, name="trial-5", user="bob"),
        teller(6),
    )
    learned = observe.with_learned(make_snapshot(*jobs)).learned
    curve = learned[3].curve
    assert curve is not None
    assert curve(8) / curve(1) == pytest.approx(TRUE(8) / TRUE(1), rel=0.1)
    assert (learned[3].is_shared, learned[3].sizes_seen) == (True, ())
    assert (learned[2].is_shared, learned[2].sizes_seen) == (True, (8,))
    assert not learned[1].is_shared
    assert [learned[other].curve for other in (4, 5, 6)] == [None, None, None]
    lines = learned_lines(jobs[2], learned[3], moment(0))
    assert "not measured itself" in lines[0]
    assert "same name" in lines[1]


def test_a_job_that_scales_unlike_its_family_is_believed() -> None:
    own = [rate(1, 5, per_s=10.0), rate(2, 6, per_s=11.0)]
    jobs = teller(1, [rate(1, 1), rate(2, 2)], name="a-1"), teller(2, own, name="a-2")
    curve = observe.with_learned(make_snapshot(*jobs)).learned[2].curve
    assert curve is not None
    assert curve(2) / curve(1) == pytest.approx(1.1, rel=0.05)


def test_workers_of_another_kind_are_another_family() -> None:
    """A gang that takes any GPU may have other GPUs than its siblings, so it has no family."""

    def family(slot: Slot | None, features: str = "") -> object:
        job = teller(7, name="a-1")
        request = replace(job.request, slot=slot)
        return family_of(replace(job, request=request, needs=Needs(features)))

    assert family(Slot(GPU)) is None
    kinds = family(None), family(None, "ib"), family(Slot("gpu:a100")), family(Slot(cpus=4))
    assert len(set(kinds)) == len(kinds)


def test_a_report_without_sizes_is_no_curve() -> None:
    job = teller(7)
    empty = replace(job.fragments[0], telemetry=Telemetry())
    assert learned_by([replace(job, fragments=(empty,))], moment(0))[7].sizes_seen == ()


def test_the_words_of_explain() -> None:
    pauses = Pauses(start_s=40.0, grow_s=6.0)
    reports = [rate(1, moment(-3)), rate(2, moment(-2)), rate(8, moment(0))]
    seen, assumed, paused = told_of(teller(7, reports, pauses=pauses), 300)
    assert seen.startswith("learned: 8 nodes train 5.")
    assert seen.endswith("(measured at: 1, 2, 8, last 5 minutes ago)")
    assert assumed.startswith("learned: 16 nodes train")
    assert assumed.endswith("assumed, not measured")
    assert paused == "learned: measured pauses: start 40 s, growth 6 s"


def test_explain_says_how_much_of_a_step_waits() -> None:
    job = teller(7, [rate(1, moment(0))])
    first = replace(job.fragments[0], telemetry=Telemetry((rate(1, moment(0)),), sync=0.12))
    lines = told_of(replace(job, fragments=(first,)), 30)
    assert lines[-1] == "learned: 12 % of a step waits for other workers"


def test_the_words_of_explain_about_jobs_with_few_rates() -> None:
    (line,) = told_of(teller(7, [rate(4, moment(0))]), 30)
    assert "a second size is missing" in line
    (line,) = told_of(teller(7, [rate(8, moment(0)), rate(16, moment(1))]), 30)
    assert "measured at: 8, 16" in line
    assert "a small size is missing" in line
    (line,) = told_of(teller(7), 30)
    assert "its scaling is not measured yet" in line
    assert "`report()` in its script" in told_of(teller(7), 3000)[1]


def test_the_words_of_explain_about_an_engine_without_rates() -> None:
    """`report()` in its script would have no effect."""
    job = teller(7)
    other = replace(job, request=replace(job.request, engine="torchft"))
    (line,) = told_of(other, 900)
    assert "nodes are shared equally" in line
    assert "engine=torchft" in line
