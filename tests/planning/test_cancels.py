"""Cancels of a user, and their effect on the rest of the job."""

from __future__ import annotations

from dataclasses import replace

import pytest
from care import care_for, marks

from build import after, make_fragment, make_job, make_request, make_slurm
from slurm_hooks.model import FragmentState, Verb
from slurm_hooks.planning.cancels import CancelScope, cancel_scope
from slurm_hooks.report.why import reason_text

HELD, RUNNING, ENDING = FragmentState.HELD, FragmentState.RUNNING, FragmentState.ENDING
TIMED_OUT, CANCELLED = FragmentState.TIMED_OUT, FragmentState.CANCELLED
WHOLE, PART = CancelScope.WHOLE, CancelScope.PART


def test_a_cancel_is_final_for_a_fragment_that_had_just_ended() -> None:
    """scancel passes over ended elements. To put such an element back would revive the job."""
    job = make_job(make_fragment(0, TIMED_OUT, ["n1"]), make_fragment(1, CANCELLED))
    care = care_for(job)
    assert care.has_ended
    assert care.actions == ()


def test_elements_without_a_record_were_cancelled_if_slurm_says_so_of_their_array() -> None:
    """Slurm keeps no record of an element that never ran, or that it has forgotten (MinJobAge)."""
    job = make_job(make_fragment(0, TIMED_OUT, ["n1"]))
    job = replace(job, request=replace(job.request, fragments=2))
    assert not care_for(job).has_ended
    assert care_for(replace(job, is_cut=True)).has_ended


def test_a_job_on_hold_does_not_grow() -> None:
    job = make_job(make_fragment(0, RUNNING, ["n1"], is_on_hold=True), held=3)
    care = care_for(job)
    assert care.growable == ()
    assert any("malleable release 7" in reason_text(reason) for reason in care.reasons)


def test_an_old_cancel_does_not_end_the_job() -> None:
    ended = make_fragment(0, TIMED_OUT, ["n1"], gone=1)
    care = care_for(make_job(ended, make_fragment(1, CANCELLED)))
    assert not care.has_ended
    assert [a.verb for a in care.actions] == [Verb.PUT_BACK]


def test_a_cancel_of_a_part_is_noted() -> None:
    job = make_job(make_fragment(0, RUNNING, ["n1"]), make_fragment(1, CANCELLED), held=1)
    care = care_for(job)
    assert not care.has_ended
    assert {index: mark.gone for index, mark in marks(care.actions).items()} == {0: 1, 2: 1}


def test_no_fragment_is_put_back_while_the_scope_of_a_cancel_is_unclear() -> None:
    job = make_job(
        make_fragment(0, TIMED_OUT, ["n1"]),
        make_fragment(1, ENDING, ["n2"]),
        make_fragment(2, CANCELLED),
    )
    care = care_for(job)
    assert not care.has_ended
    assert care.actions == ()


@pytest.mark.parametrize(
    ("back_s", "cancel_s", "wanted"),
    [(-9, -9, WHOLE), (-9, -5, WHOLE), (-60, -5, PART), (-5, -9, PART)],
)
def test_a_put_back_at_the_moment_of_a_cancel_decides_its_scope(
    back_s: float, cancel_s: float, wanted: CancelScope
) -> None:
    back = make_fragment(0, HELD, noticed=after(back_s))
    job = make_job(back, make_fragment(1, CANCELLED, end=after(cancel_s)))
    assert cancel_scope(job, make_slurm()) is wanted


@pytest.mark.parametrize(("requeued_s", "wanted"), [(-9, WHOLE), (3, PART)])
def test_a_fragment_that_left_after_a_cancel_of_others_goes_on(
    requeued_s: float, wanted: CancelScope
) -> None:
    slurm = make_slurm()
    eligible = after(requeued_s) + slurm.requeue_wait
    asked = make_fragment(0, HELD, noticed=after(-9), eligible=eligible)
    job = make_job(asked, make_fragment(1, CANCELLED, end=after(-5)))
    assert cancel_scope(job, slurm) is wanted


def test_too_few_left_to_reach_the_minimum() -> None:
    request = make_request(2, 3)
    cancelled = [make_fragment(index, CANCELLED, request=request) for index in (1, 2)]
    first = care_for(make_job(make_fragment(0, HELD, request=request), *cancelled))
    assert {index: mark.gone for index, mark in marks(first.actions).items()} == {0: 2}
    second = care_for(make_job(make_fragment(0, HELD, request=request, gone=2), *cancelled))
    assert "stopped: too-few-fragments-left" in map(reason_text, second.reasons)


def test_rows_that_are_missing_from_one_answer_stop_nobody() -> None:
    request = make_request(4, 4)
    trains = [make_fragment(n, RUNNING, [f"n{n}"], request=request) for n in range(4)]
    care = care_for(replace(make_job(*trains[:2]), request=request))
    assert not [a for a in care.actions if a.verb is not Verb.STAY]
    noted = [replace(f, mark=replace(f.mark, gone=2)) for f in trains[:2]]
    care = care_for(make_job(*noted, *trains[2:]))  # they are back
    assert not [a for a in care.actions if a.verb is not Verb.STAY]
