"""The nodes that suit a job: by its request, its deaths there, and accusations of several users."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from build import (
    after,
    make_fragment,
    make_job,
    make_node,
    make_nodes,
    make_request,
    make_snapshot,
    no_clock,
)
from planning.readings import noticed
from slurm_hooks.model import (
    AvoidedNode,
    FragmentState,
    MalleableJob,
    Needs,
    Node,
    NodeState,
    Plan,
    Said,
    Verb,
)
from slurm_hooks.planning.gates import has_features
from slurm_hooks.planning.plan import make_plan
from slurm_hooks.report.why import note_text, reason_text
from slurm_hooks.settings.values import Mode, Settings

RUNNING, FAILED = FragmentState.RUNNING, FragmentState.FAILED
CANCELLED = FragmentState.CANCELLED
SETTINGS = Settings(mode=Mode("on"))


def plan_for(*jobs: MalleableJob, nodes: Iterable[Node]) -> Plan:
    return make_plan(make_snapshot(*jobs, nodes=tuple(nodes)), SETTINGS, no_clock)


def grown(plan: Plan, job_id: int = 7) -> set[str]:
    grows = (a for a in plan.actions if a.verb is Verb.GROW and a.fragment.job_id == job_id)
    return {n for a in grows for n in a.nodes}


@pytest.mark.parametrize(
    ("needs", "wanted"),
    [
        (Needs(), {"small", "large", "gpu"}),
        (Needs(memory_mib=4000), {"large"}),
        (Needs(cpus=8), {"large"}),
        (Needs(gres=(("gpu", 2),)), {"gpu"}),
        (Needs(gres=(("gpu:a100", 4),)), {"gpu"}),
        (Needs(gres=(("gpu", 5),)), set()),
        (Needs(features="ib&a100"), {"gpu"}),
        (Needs(features="a100|epyc"), {"large", "gpu"}),
        (Needs(features="[rack1|rack2]"), {"small", "large", "gpu"}),  # for Slurm to judge
    ],
)
def test_a_job_is_offered_the_nodes_that_fit_it(needs: Needs, wanted: set[str]) -> None:
    nodes = (
        make_node("small", cpus=2, memory_mib=2000),
        make_node("large", cpus=16, memory_mib=8000, features=frozenset({"epyc"})),
        make_node(
            "gpu",
            cpus=4,
            memory_mib=2000,
            features=frozenset({"ib", "a100"}),
            gres=(("gpu", 4), ("gpu:a100", 4)),
        ),
    )
    plan = plan_for(make_job(held=3, needs=needs), nodes=nodes)
    assert grown(plan) == wanted
    if len(wanted) < 3:
        obstacle = "free, but" if wanted else "no node of partition malleable has 5 GPUs"
        assert any(obstacle in reason_text(r) for r in plan.jobs[0].reasons)


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [("", True), ("a", True), ("c", False), ("a&b", True), ("a&c", False), ("a|c", True),
     ("c|d", False), ("a&(b|c)", True), ("c*2", True)],
)  # fmt: skip
def test_features(wanted: str, fits: bool) -> None:
    assert has_features(frozenset({"a", "b"}), wanted) is fits


def test_a_node_that_slurm_finds_unfit_is_not_offered_again() -> None:
    unfit = make_fragment(0, reason="BadConstraints", nodes=["n1"])
    plan = plan_for(make_job(unfit, request=make_request(1, 1)), nodes=make_nodes(2))
    assert grown(plan) == {"n2"}
    again = make_fragment(
        0,
        reason="BadConstraints",
        nodes=["n1"],
        released=after(-40),
        unfit=(AvoidedNode("n1", after(-3601)),),
    )
    plan = plan_for(make_job(again, request=make_request(1, 1)), nodes=make_nodes(2))
    assert grown(plan) == {"n2"}  # an hour later the same node was tried once more
    old = make_fragment(0, unfit=(AvoidedNode("n1", after(-3599)), AvoidedNode("n2", after(-3601))))
    assert grown(plan_for(make_job(old), nodes=make_nodes(2))) == {"n2"}


def test_a_mark_does_not_keep_unfit_nodes_that_are_offered_again() -> None:
    """Each node of a large machine could come to stand in it."""
    both = (AvoidedNode("n1", after(-3601)), AvoidedNode("n2", after(-3599)))
    held = make_fragment(0, unfit=both)
    again = replace(held, reason="BadConstraints", nodes=frozenset({"n3"}), mark=held.mark)
    for fragment, unfit in ((held, ["n2"]), (again, ["n2", "n3"])):
        (intent,) = plan_for(make_job(fragment), nodes=make_nodes(4)).actions
        assert intent.mark is not None
        assert [a.node for a in intent.mark.unfit] == unfit


def died_on(*names: str, ago_s: float = 100, **fields: object) -> MalleableJob:
    avoided = tuple(AvoidedNode(name, after(-ago_s)) for name in names)
    return make_job(make_fragment(0, deaths=avoided), **fields)  # type: ignore[arg-type]


def test_the_next_try_is_on_another_node() -> None:
    assert grown(plan_for(died_on("n1"), nodes=make_nodes(2))) == {"n2"}
    assert grown(plan_for(died_on("n1", ago_s=3600), nodes=make_nodes(1))) == {"n1"}


def test_without_another_node_a_job_is_tried_again_where_it_died() -> None:
    assert grown(plan_for(died_on("n1"), nodes=make_nodes(1))) == {"n1"}
    busy = (make_node("n1"), make_node("n2", NodeState.BUSY))
    assert grown(plan_for(died_on("n1"), nodes=busy)) == set()  # n2 will be free again
    down = (make_node("n1"), make_node("n2", NodeState.DOWN))
    assert grown(plan_for(died_on("n1"), nodes=down)) == {"n1"}


@pytest.mark.parametrize(
    ("deaths", "most", "nodes", "taken"),
    [
        (1, 2, ("n1", "n2"), {"n2"}),
        (1, 2, ("n1", "n2", "n3"), {"n3"}),
        (1, 3, ("n1", "n2", "n3"), {"n2", "n3"}),
        (2, 2, ("n1", "n2"), set()),
        (2, 3, ("n1", "n2", "n3"), {"n3"}),
    ],
)
def test_a_single_death_beside_a_training_keeps_it_from_no_node_that_it_wants(
    deaths: int, most: int, nodes: tuple[str, ...], taken: set[str]
) -> None:
    """A second death of any fragment on the node does."""
    request = make_request(1, most)
    died = [(AvoidedNode("n2", after(-400 - 60 * n)),) for n in range(deaths)]
    trains = make_fragment(0, RUNNING, ["n1"], said=Said.TRAINED, request=request, deaths=died[0])
    waits = make_fragment(1, request=request, deaths=died[-1] if deaths > 1 else ())
    job = make_job(trains, waits, held=2, request=request)
    there = tuple(make_node(n, NodeState.BUSY if n == "n1" else NodeState.FREE) for n in nodes)
    assert grown(plan_for(job, nodes=there)) == taken


def test_nodes_that_the_job_excludes_are_no_choice() -> None:
    """Otherwise it would wait for as long as it avoids the node."""
    request = replace(make_request(1, 1), excluded=frozenset({"n2", "n3"}))
    job = died_on("n1", request=request)
    assert grown(plan_for(job, nodes=make_nodes(3))) == {"n1"}
    assert grown(plan_for(job, nodes=make_nodes(4))) == {"n4"}


@pytest.mark.parametrize(
    ("cancelled", "text"),
    [
        (1, "it has its maximum of 2 nodes; 1 of its fragments is cancelled"),
        (2, "it has its maximum of 2 nodes; 2 of its fragments are cancelled"),
    ],
)
def test_a_node_that_only_a_cancelled_fragment_could_use_is_not_called_free(
    cancelled: int, text: str
) -> None:
    request = make_request(1, 2 + cancelled)
    runs = [make_fragment(i, RUNNING, [f"n{i + 1}"], request=request) for i in range(2)]
    gone = [make_fragment(2 + i, CANCELLED, request=request) for i in range(cancelled)]
    nodes = (*make_nodes(2, NodeState.BUSY), make_node("n3"))
    (planned,) = plan_for(make_job(*runs, *gone, request=request), nodes=nodes).jobs
    assert [reason_text(r) for r in planned.reasons] == [text]


def test_nodes_that_a_job_excludes_are_counted_as_excluded() -> None:
    """The count covers free, suitable nodes of others. A similar job does not name its
    exclusions.
    """
    nodes = (
        *make_nodes(5),
        make_node("busy", NodeState.BUSY),
        make_node("own", NodeState.BUSY),
        make_node("else", partitions=frozenset({"main"})),
    )
    request = replace(make_request(1, 9), excluded=frozenset({"n3", "n4", "busy", "own", "else"}))
    job = make_job(make_fragment(0, RUNNING, ["own"], request=request), request=request)
    other = make_job(request=make_request(1, 9), held=1, job_id=8)
    one, two = plan_for(job, other, nodes=nodes).jobs
    assert {reason_text(r) for r in one.reasons} == {
        "1 other node: busy",
        "2 other nodes: free, but the job excludes it (--exclude)",
        "3 other nodes: free and usable",
    }
    assert {reason_text(r) for r in two.reasons} == {
        "2 other nodes: busy",
        "5 other nodes: free and usable",
    }


def test_nodes_of_other_malleable_jobs_are_no_choice() -> None:
    other = make_job(make_fragment(0, RUNNING, ["n2"], job_id=8), job_id=8)
    nodes = (make_node("n1"), make_node("n2", NodeState.BUSY))
    assert grown(plan_for(died_on("n1"), other, nodes=nodes)) == {"n1"}


def test_deaths_of_different_users_jobs_count_against_a_node_for_all() -> None:
    first, second = (died_on("n1", job_id=i, user=f"user{i}") for i in (1, 2))
    third = make_job(held=2, job_id=7)
    plan = plan_for(first, second, third, nodes=make_nodes(4))
    assert "n1" not in grown(plan)
    assert any("n1: fragments of jobs 1, 2 died there" in note_text(note) for note in plan.notes)


def test_a_single_user_cannot_take_a_node_from_the_others() -> None:
    jobs = [died_on("n1", job_id=i) for i in (1, 2)]
    third = make_job(held=4, job_id=7)
    assert "n1" in grown(plan_for(*jobs, third, nodes=make_nodes(4)))


def test_a_failing_job_accuses_no_node() -> None:
    """Two users whose scripts fail everywhere would take the machine from all other users."""
    jobs = [
        make_job(
            make_fragment(0, deaths=(AvoidedNode("n1", after(-9)),), failures=1, job_id=i),
            job_id=i,
            user=f"user{i}",
        )
        for i in (1, 2)
    ]
    assert "n1" in grown(plan_for(*jobs, make_job(held=4, job_id=7), nodes=make_nodes(4)))


def test_an_accusation_of_most_of_the_machine_does_not_count() -> None:
    names = ("n1", "n2", "n3")
    jobs = [died_on(*names, job_id=i, user=f"user{i}") for i in (1, 2)]
    assert grown(plan_for(*jobs, make_job(held=4, job_id=7), nodes=make_nodes(4))) >= {"n1"}


def test_a_stopped_job_accuses_no_node() -> None:
    dead = make_fragment(0, deaths=(AvoidedNode("n1", after(-9)),), stopped="x", job_id=1)
    failing = make_job(dead, job_id=1)
    other = died_on("n1", job_id=2, user="another")
    plan = plan_for(failing, other, make_job(held=4, job_id=7), nodes=make_nodes(4))
    assert "n1" in grown(plan)


# -- jobs whose fragments do not meet


def apart(*starts: float) -> MalleableJob:
    fragments = [
        make_fragment(i, RUNNING, [f"n{i}"], start=after(-s), said=Said.NOTHING, has_agent=False)
        for i, s in enumerate(starts)
    ]
    waiting = make_fragment(9, has_agent=False)
    return make_job(*fragments, waiting)


def test_a_job_whose_fragments_do_not_meet_is_kept_to_a_single_fragment() -> None:
    nodes = [make_node(f"n{i}", NodeState.BUSY) for i in range(3)]
    plan = plan_for(apart(59, 59, 59), nodes=[*nodes, make_node("free")])
    assert noticed(plan) == {}
    plan = plan_for(apart(60, 59, 59), nodes=[*nodes, make_node("free")])
    assert len(noticed(plan)) == 2
    assert grown(plan) == set()
    assert any("no fragment has joined a round" in reason_text(r) for r in plan.jobs[0].reasons)


def test_a_failed_meeting_is_remembered_after_its_fragments_have_ended() -> None:
    plan = plan_for(apart(60), nodes=[make_node("n0", NodeState.BUSY)])
    (note,) = (a for a in plan.actions if a.mark is not None)
    assert note.mark is not None
    assert note.mark.is_apart
    waiting = [make_fragment(i, has_agent=False, is_apart=i == 2) for i in range(4)]
    assert len(grown(plan_for(make_job(*waiting), nodes=make_nodes(4)))) == 1


def test_a_reminded_fragment_gets_a_single_mark_with_all_news() -> None:
    """Two marks in the same tick would undo each other."""
    old = {"start": after(-90), "has_agent": False}
    first = make_fragment(0, RUNNING, ["n0"], noticed=after(-5), priority=9, **old)
    job = make_job(first, make_fragment(1, RUNNING, ["n1"], **old))
    plan = plan_for(job, nodes=[make_node(name, NodeState.BUSY) for name in ("n0", "n1")])
    (intent,) = (a for a in plan.actions if a.fragment.index == 0)
    assert intent.verb is Verb.NOTICE
    assert intent.mark is not None
    assert (intent.mark.is_apart, intent.mark.priority) == (True, 9)


@pytest.mark.parametrize("state", [FragmentState.FAILED, FragmentState.HELD])
def test_a_job_whose_nodes_share_no_directory_is_kept_to_the_fragment_that_trains(
    state: FragmentState,
) -> None:
    trains = make_fragment(0, RUNNING, ["n0"], said=Said.JOINED)
    gave_up = make_fragment(1, state, said=Said.APART, exit_code="1:0")
    job = make_job(trains, gave_up, held=2)
    plan = plan_for(job, nodes=[make_node("n0", NodeState.BUSY), *make_nodes(3)])
    assert noticed(plan) == {}
    assert grown(plan) == set()
    marks = [a.mark for a in plan.actions if a.mark is not None]
    assert not any(mark.failures or mark.deaths for mark in marks), "it is no failure of the job"
    back = [a.fragment.index for a in plan.actions if a.verb is Verb.PUT_BACK]
    assert back == ([1] if state is FragmentState.FAILED else [])
    assert any("do not share its work directory" in reason_text(r) for r in plan.jobs[0].reasons)


@pytest.mark.parametrize("failures", [0, 2])
def test_a_job_that_needs_several_fragments_fails_where_its_nodes_share_no_directory(
    failures: int,
) -> None:
    request = make_request(2, 4)
    gave_up = [
        make_fragment(
            i,
            FragmentState.FAILED,
            [f"n{i}"],
            request=request,
            said=Said.APART,
            exit_code="1:0",
            failures=failures,
        )
        for i in (0, 1)
    ]
    plan = plan_for(make_job(*gave_up, held=2, request=request), nodes=make_nodes(4))
    marks = [a.mark for a in plan.actions if a.is_ended and a.mark]
    assert len(marks) == 2
    if failures:
        assert {mark.stopped for mark in marks} == {"failed-3-times:exit-1:0-on-n0"}
        return
    assert {mark.failures for mark in marks} == {1}
    assert not any("1 fragment only" in reason_text(r) for r in plan.jobs[0].reasons)


def test_a_fragment_without_the_training_fragments_directory_fails_on_its_node() -> None:
    request = make_request(2, 3)
    train = [
        make_fragment(i, RUNNING, [f"n{i}"], request=request, said=Said.TRAINED) for i in (0, 1)
    ]
    gave_up = make_fragment(
        2, FragmentState.FAILED, ["n2"], request=request, said=Said.APART, exit_code="1:0"
    )
    nodes = [make_node("n0", NodeState.BUSY), make_node("n1", NodeState.BUSY), make_node("n2")]
    plan = plan_for(make_job(*train, gave_up, request=request), nodes=nodes)
    assert noticed(plan) == {}
    (mark,) = (a.mark for a in plan.actions if a.verb is Verb.PUT_BACK and a.mark)
    assert [death.node for death in mark.deaths] == ["n2"]
    assert mark.failures == 0


def test_a_fragment_that_gives_up_does_not_end_the_training_of_others() -> None:
    """Its script has not ended yet, and the lease of the training fragment is the shorter lease."""
    gives_up = make_fragment(0, RUNNING, ["n0"], end=after(900), said=Said.APART)
    trains = make_fragment(1, RUNNING, ["n1"], end=after(600), said=Said.JOINED)
    busy = [make_node(f"n{i}", NodeState.BUSY) for i in range(2)]
    plan = plan_for(make_job(gives_up, trains, held=2), nodes=busy)
    assert list(noticed(plan)) == [0]


def test_a_fragment_that_reported_an_unshared_directory_keeps_the_report() -> None:
    """Otherwise its next run would overwrite the report, and the job would train apart."""
    said = make_fragment(0, said=Said.APART)
    plan = plan_for(make_job(said, held=2), nodes=make_nodes(3))
    assert [a.fragment.index for a in plan.actions if a.verb is Verb.GROW] == [1]
    plan = plan_for(make_job(said, make_fragment(1, said=Said.APART)), nodes=make_nodes(3))
    assert len(grown(plan)) == 1, "it is to train all the same"


# -- gangs that cannot be complete


@pytest.mark.parametrize(("quiet_s", "gives_up"), [(299, False), (300, True)])
def test_a_gang_that_stays_incomplete_gives_its_nodes_back(quiet_s: float, gives_up: bool) -> None:
    """For example, an operator has suspended a fragment."""
    request = make_request(3, 3)
    here = [
        make_fragment(i, RUNNING, [f"n{i}"], request=request, start=after(-quiet_s)) for i in (0, 1)
    ]
    gone = make_fragment(2, FragmentState.SUSPENDED, ["n2"], request=request, start=after(-900))
    nodes = [make_node(f"n{i}", NodeState.BUSY) for i in range(3)]
    plan = plan_for(make_job(*here, gone, request=request), nodes=nodes)
    assert set(noticed(plan)) == ({0, 1} if gives_up else set())


def test_a_node_with_a_suspended_fragment_is_not_free() -> None:
    """Slurm shows IDLE for it (22.05)."""
    still = make_fragment(0, FragmentState.SUSPENDED, ["n1"])
    plan = plan_for(make_job(still), make_job(held=2, job_id=8), nodes=make_nodes(2))
    assert grown(plan, 8) == {"n2"}
