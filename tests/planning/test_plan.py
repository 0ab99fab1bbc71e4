"""Whole plans for situations that once went wrong, or easily could go wrong."""

from __future__ import annotations

import pytest
from pytest_mock import MockerFixture

from build import (
    after,
    make_fragment,
    make_job,
    make_node,
    make_nodes,
    make_request,
    make_snapshot,
    no_clock,
    reserve,
)
from planning.readings import grown
from slurm_hooks.model import (
    AvoidedNode,
    FragmentState,
    MalleableJob,
    Node,
    NodeState,
    Plan,
    Reservation,
    Said,
    Verb,
    Why,
)
from slurm_hooks.planning.plan import make_plan
from slurm_hooks.planning.situation import Situation, situation_of
from slurm_hooks.planning.survey import Survey
from slurm_hooks.report.why import note_text, reason_text
from slurm_hooks.settings.values import Mode, Settings, parse

RUNNING = FragmentState.RUNNING
SHIPPED = Settings(mode=Mode("on"))


def plan_for(
    *jobs: MalleableJob, nodes: tuple[Node, ...] = (), settings: Settings = SHIPPED
) -> Plan:
    return make_plan(make_snapshot(*jobs, nodes=nodes), settings, no_clock)


def test_the_plan_of_an_empty_snapshot_is_empty() -> None:
    assert plan_for().actions == ()


def test_a_job_takes_every_free_node() -> None:
    assert grown(plan_for(make_job(held=6), nodes=make_nodes(4))) == {"n1", "n2", "n3", "n4"}


def test_only_free_nodes_are_taken() -> None:
    states = [NodeState.FREE, NodeState.BUSY, NodeState.LEAVING, NodeState.DOWN, NodeState.UNKNOWN]
    nodes = tuple(make_node(f"n{i}", state) for i, state in enumerate(states))
    assert grown(plan_for(make_job(held=6), nodes=nodes)) == {"n0"}


def test_below_min_no_fragment_starts() -> None:
    request = make_request(3, 6)
    plan = plan_for(make_job(held=6, request=request), nodes=make_nodes(2))
    assert grown(plan) == set()
    assert plan.jobs[0].nodes_planned == 0


def test_units_are_whole() -> None:
    request = make_request(2, 6, unit=2)
    plan = plan_for(make_job(held=3, request=request), nodes=make_nodes(5))
    assert sorted(len(a.nodes) for a in plan.actions if a.verb is Verb.GROW) == [2, 2]


def test_nodes_from_which_an_ended_job_keeps_away_are_like_all_others() -> None:
    """Slurm shows ended jobs for minutes. They split no nodes that a fragment could have."""
    deaths = (AvoidedNode("n1", after(-10)),)
    dead = make_fragment(0, FragmentState.FAILED, ["n1"], 8, deaths=deaths, stopped="it failed")
    over = make_job(dead, job_id=8)
    pairs = make_job(held=2, request=make_request(2, 4, unit=2))
    plan = plan_for(over, pairs, nodes=make_nodes(4))
    assert grown(plan) == {"n1", "n2", "n3", "n4"}


def test_headroom_stays_free() -> None:
    settings = parse("[plan]\nheadroom_nodes = 2")
    plan = plan_for(make_job(held=6), nodes=make_nodes(5), settings=settings)
    assert len(grown(plan)) == 3
    texts = {reason_text(reason) for reason in plan.jobs[0].reasons}
    assert "2 other nodes: free, but left to small jobs (plan.headroom_nodes)" in texts


def test_headroom_is_the_shortest_of_the_long_holes() -> None:
    """A node that is claimed in a moment is no use to others."""
    settings = parse("[plan]\nheadroom_nodes = 1")
    claims = [reserve(["n1"], 60), reserve(["n2"], 1800)]
    seen = make_snapshot(make_job(held=6), nodes=make_nodes(4), reservations=claims)
    assert grown(make_plan(seen, settings, no_clock)) == {"n3", "n4"}


def test_leaving_fragments_do_not_count_as_headroom() -> None:
    settings = parse("[plan]\nheadroom_nodes = 2")
    left = [make_fragment(i, RUNNING, {f"b{i}"}, job_id=8, noticed=after(-5)) for i in (0, 1)]
    busy = tuple(make_node(f"b{i}", NodeState.BUSY) for i in (0, 1))
    jobs = make_job(held=6), make_job(*left, job_id=8)
    assert not grown(plan_for(*jobs, nodes=(*busy, *make_nodes(2)), settings=settings))
    assert len(grown(plan_for(*jobs, nodes=(*busy, *make_nodes(3)), settings=settings))) == 1


def test_a_job_that_just_shrank_snoozes() -> None:
    job = make_job(make_fragment(0, noticed=after(-30)), held=3)
    assert grown(plan_for(job, nodes=make_nodes(3))) == set()
    job = make_job(make_fragment(0, noticed=after(-61)), held=3)
    assert len(grown(plan_for(job, nodes=make_nodes(3)))) == 3


def test_a_job_that_snoozes_first_says_until_when() -> None:
    left, runs = make_fragment(0, noticed=after(-30)), make_fragment(1, RUNNING, ["n4"])
    nodes, booked = make_nodes(4), Reservation("r", after(3600), after(7200), frozenset({"n4"}))
    seen = make_snapshot(make_job(left, runs, held=3), nodes=nodes, reservations=(booked,))
    (planned,) = make_plan(seen, SHIPPED, no_clock).jobs
    assert (planned.reasons[0].why, planned.reasons[0].detail["until"]) == (Why.RESTING, after(30))
    text = reason_text(planned.reasons[0])
    assert text.startswith("shrank or failed less than 60 s ago, and does not grow before 20")


def test_a_gang_waits_for_fragments_on_their_way_out() -> None:
    """It cannot reach MIN now, but soon. Its nodes are renewed, not given up."""
    request = make_request(3, 3)
    job = make_job(
        make_fragment(0, RUNNING, ["n1"], request=request, start=after(-400)),
        make_fragment(1, RUNNING, ["n2"], request=request, start=after(-400)),
        make_fragment(2, FragmentState.ENDING, ["n3"], request=request),
    )
    plan = plan_for(job, nodes=make_nodes(3, NodeState.BUSY))
    assert not [a for a in plan.actions if a.verb is Verb.NOTICE]


def test_the_node_of_a_death_is_avoided_at_once() -> None:
    job = make_job(
        make_fragment(0, RUNNING, ["n1"]),
        make_fragment(1, FragmentState.FAILED, ["n2"], start=after(-10), exit_code="1:0"),
        held=3,
    )
    plan = plan_for(job, nodes=(make_node("n1", NodeState.BUSY), make_node("n2")))
    assert [a.verb for a in plan.actions if a.verb is not Verb.STAY] == [Verb.PUT_BACK]


def test_a_job_that_just_failed_snoozes_at_once() -> None:
    dead = make_fragment(0, FragmentState.FAILED, ["n1"], start=after(-10), exit_code="1:0")
    assert grown(plan_for(make_job(dead, held=3), nodes=make_nodes(2))) == set()


def test_a_forgiven_fragment_grows_with_a_clean_mark() -> None:
    job = make_job(
        make_fragment(0, RUNNING, ["n1"], said=Said.TRAINED), make_fragment(1, failures=2)
    )
    plan = plan_for(job, nodes=(make_node("n1", NodeState.BUSY), make_node("n2")))
    assert Verb.GROW in {a.verb for a in plan.actions}
    marks = [a.mark for a in plan.actions if a.mark is not None]
    assert all(mark.failures == 0 for mark in marks)


def test_a_forgiven_fragment_leaves_with_a_clean_mark() -> None:
    job = make_job(
        make_fragment(0, RUNNING, ["n1"], said=Said.TRAINED),
        make_fragment(1, RUNNING, ["n2"], failures=2),
    )
    nodes = (make_node("n1", NodeState.BUSY), make_node("n2", NodeState.LEAVING))
    marks = [a.mark for a in plan_for(job, nodes=nodes).actions if a.mark is not None]
    assert marks
    assert all(mark.failures == 0 for mark in marks)


def test_a_job_that_cannot_be_planned_costs_itself_only(mocker: MockerFixture) -> None:
    """A bug is not known before it is met, so one is put into the planning of job 8."""

    def break_on_8(survey: Survey, job: MalleableJob) -> Situation:
        if job.job_id == 8:
            raise ZeroDivisionError("of job 8")
        return situation_of(survey, job)

    mocker.patch("slurm_hooks.planning.plan.situation_of", break_on_8)
    short = {"start": after(-500), "end": after(100)}
    both = [
        make_job(make_fragment(0, RUNNING, [f"n{n}"], n, **short), job_id=n, held=1) for n in (7, 8)
    ]
    nodes = (make_node("n7", NodeState.BUSY), make_node("n8", NodeState.BUSY), make_node("n9"))
    plan = plan_for(*both, nodes=nodes)
    assert {action.fragment.job_id for action in plan.actions} == {7}
    assert {action.verb for action in plan.actions} == {Verb.STAY, Verb.GROW}
    assert grown(plan) == {"n9"}
    (note,) = (n for n in map(note_text, plan.notes) if "left alone" in n)
    assert "job 8 left alone: a bug: ZeroDivisionError: of job 8 (test_plan.py:" in note


def test_a_bug_that_concerns_every_job_ends_the_tick(mocker: MockerFixture) -> None:
    mocker.patch("slurm_hooks.planning.plan.situation_of", side_effect=ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        plan_for(make_job(held=1), make_job(held=1, job_id=8))
