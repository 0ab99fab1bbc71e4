"""Deaths of fragments: nodes are blamed, failures forgiven, and jobs stopped."""

from __future__ import annotations

from typing import Any

import pytest
from care import care_for, marks

from build import NOW, after, make_fragment, make_job
from slurm_hooks.model import AvoidedNode, Fragment, FragmentState, Said, Verb
from slurm_hooks.report.why import reason_text

HELD, RUNNING, CANCELLED = FragmentState.HELD, FragmentState.RUNNING, FragmentState.CANCELLED
FAILED, LOST = FragmentState.FAILED, FragmentState.LOST


def dead(index: int = 0, node: str = "n1", **fields: Any) -> Fragment:
    fields.setdefault("exit_code", "1:0")
    return make_fragment(index, FAILED, [node], end=after(-1), **fields)


def test_the_first_deaths_of_any_age_are_counted_once_a_tick() -> None:
    job = make_job(dead(0, start=after(-90_000)), dead(1, "n2", failures=1))
    by_index = marks(care_for(job).actions)
    assert {mark.failures for mark in by_index.values()} == {2}
    assert all(mark.noticed == NOW for mark in by_index.values())
    assert [a.node for a in by_index[0].deaths] == ["n1"]


def test_the_third_death_stops_the_job() -> None:
    starting = make_fragment(1, RUNNING, ["n2"], said=Said.NOTHING)
    care = care_for(make_job(dead(0, failures=2), starting, held=2))
    assert care.has_ended
    by_index = marks(care.actions)
    assert len(by_index) == 4
    assert all(mark.stopped == "failed-3-times:exit-1:0-on-n1" for mark in by_index.values())
    finished = [a.fragment.index for a in care.actions if a.verb is Verb.CANCEL]
    assert finished == [0, 1, 2, 3]


def test_a_stopped_job_does_not_start_again() -> None:
    job = make_job(make_fragment(0, CANCELLED, stopped="why"), held=1)
    care = care_for(job)
    assert care.has_ended
    assert [a.verb for a in care.actions] == [Verb.CANCEL]
    assert "stopped: why" in map(reason_text, care.reasons)


def test_a_fragment_that_comes_back_after_the_stop_gets_the_reason_too() -> None:
    """It was completing while the reason was written, and Slurm takes no mark then."""
    job = make_job(make_fragment(0, CANCELLED, stopped="why"), dead(1), held=1)
    care = care_for(job)
    assert care.has_ended
    assert {mark.stopped for mark in marks(care.actions).values()} == {"why"}
    assert [a.fragment.index for a in care.actions if a.verb is Verb.CANCEL] == [1, 2]


def test_an_ended_fragment_with_the_reason_is_not_cancelled_again() -> None:
    job = make_job(dead(0, stopped="why"), dead(1, stopped="why"))
    assert care_for(job).has_ended
    assert not care_for(job).actions


def test_the_node_is_blamed_where_others_train() -> None:
    job = make_job(dead(0, failures=2), make_fragment(1, RUNNING, ["n2"], said=Said.TRAINED))
    care = care_for(job)
    assert not care.has_ended
    mark = marks(care.actions)[0]
    assert [a.node for a in mark.deaths] == ["n1"]
    assert mark.failures == 2  # not counted; forgiven once it is back


def test_the_last_two_deaths_on_a_node_are_kept() -> None:
    before = (AvoidedNode("n1", after(-500)), AvoidedNode("n1", after(-900)))
    elsewhere = (AvoidedNode("n3", after(-100)), AvoidedNode("n4", after(-4000)))
    mark = marks(care_for(make_job(dead(0, deaths=(*before, *elsewhere)))).actions)[0]
    assert sorted(mark.deaths) == [
        AvoidedNode("n1", after(-500)),
        AvoidedNode("n1", NOW),
        AvoidedNode("n3", after(-100)),
    ]


def test_a_peer_that_has_only_joined_is_no_excuse() -> None:
    """Otherwise fragments that die in turn would excuse each other without end."""
    job = make_job(dead(0, failures=2), make_fragment(1, RUNNING, ["n2"], said=Said.JOINED))
    assert care_for(job).has_ended


@pytest.mark.parametrize(("code", "is_ours"), [("0:15", True), ("3:0", True), ("0:0", False)])
def test_a_hold_of_a_dead_tick_is_distinguished_from_an_operator_s_hold(
    code: str, is_ours: bool
) -> None:
    ran = {"released": after(-300), "restarts": 1, "reason": "JobHeldAdmin", "exit_code": code}
    care = care_for(make_job(make_fragment(0, HELD, **ran), held=1))
    assert any(a.is_held for a in care.actions) is is_ours


def test_a_failed_node_is_no_failure_of_the_script() -> None:
    care = care_for(make_job(make_fragment(0, LOST, ["n1"], failures=2)))
    assert not care.has_ended
    assert marks(care.actions)[0].failures == 2


def test_progress_forgives() -> None:
    job = make_job(
        make_fragment(0, RUNNING, ["n2"], failures=2, said=Said.TRAINED),
        make_fragment(1, failures=1),
        make_fragment(2),
    )
    by_index = marks(care_for(job).actions)
    assert {index: mark.failures for index, mark in by_index.items()} == {0: 0, 1: 0}


@pytest.mark.parametrize(("left_s", "forgiven"), [(-100, True), (-300, False)])
def test_progress_of_an_ended_run_forgives_the_failures_before_it(
    left_s: float, forgiven: bool
) -> None:
    left = make_fragment(0, HELD, said=Said.TRAINED, eligible=after(left_s + 121))
    job = make_job(left, make_fragment(1, failures=2, deaths=(AvoidedNode("n9", after(-200)),)))
    assert (1 in marks(care_for(job).actions)) is forgiven


def test_age_does_not_forgive() -> None:
    job = make_job(make_fragment(0, RUNNING, ["n2"], failures=2, start=after(-90_000)))
    assert care_for(job).actions == ()
