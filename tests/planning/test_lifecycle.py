"""The actions that each state of a fragment calls for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from care import care_for, marks
from readings import plan_for

from build import NOW, after, make_fragment, make_job, make_nodes, make_slurm, make_snapshot
from slurm_hooks.model import AvoidedNode, Fragment, FragmentState, Said, Verb, Why
from slurm_hooks.model.ends import is_finish
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.lifecycle import upkeep
from slurm_hooks.report.why import reason_text
from slurm_hooks.settings.values import Mode, Settings

SETTINGS = Settings(mode=Mode("on"))  # notice 20 s, start timeout 60 s, three failures
HELD, PENDING, RUNNING = FragmentState.HELD, FragmentState.PENDING, FragmentState.RUNNING
DONE, FAILED, TIMED_OUT = FragmentState.DONE, FragmentState.FAILED, FragmentState.TIMED_OUT
LOST, SPECIAL, ENDING = FragmentState.LOST, FragmentState.SPECIAL, FragmentState.ENDING
CANCELLED, UNKNOWN = FragmentState.CANCELLED, FragmentState.UNKNOWN
SUSPENDED = FragmentState.SUSPENDED


def steps(fragment: Fragment) -> list[tuple[str, Why]]:
    """Actions and reasons for a job with this fragment and a waiting fragment."""
    care = care_for(make_job(fragment, held=1))
    return [(", ".join(a.parts), a.cause) for a in care.actions]


@pytest.mark.parametrize(
    ("state", "fields", "wanted"),
    [
        (HELD, {}, []),
        (HELD, {"noticed": after(-5)}, []),
        (HELD, {"reason": "BadConstraints", "nodes": ["n1"]}, [("set mark", Why.UNFIT)]),
        (
            HELD,
            {"reason": "BadConstraints", "nodes": ["n1"], "unfit": (AvoidedNode("n1", after(-9)),)},
            [],
        ),
        (
            HELD,
            {"reason": "launch failed requeued held", "released": after(-5), "restarts": 1},
            [("set mark", Why.NOT_STARTED)],
        ),
        (HELD, {"reason": "launch failed requeued held", "released": after(-5)}, []),
        (PENDING, {"released": after(-5)}, []),
        (PENDING, {"released": after(-5), "eligible": after(-5)}, []),
        (PENDING, {"released": after(-5), "eligible": after(115)}, [("hold", Why.PREEMPTED)]),
        (
            PENDING,
            {"released": after(-61)},
            [("hold, set mark", Why.NOT_STARTED)],
        ),
        (
            PENDING,
            {"released": after(-5), "reason": "Dependency"},
            [("hold, set mark", Why.NOT_STARTED)],
        ),
        (PENDING, {"released": after(-5), "reason": "Resources"}, []),
        (PENDING, {}, [("hold, set mark", Why.NOT_STARTED)]),
        (RUNNING, {}, []),
        (RUNNING, {"priority": 7}, [("hold, set mark", Why.SECURED)]),
        (RUNNING, {"noticed": after(-19)}, [("notice", Why.REMINDED)]),
        (RUNNING, {"noticed": after(-19), "said": Said.LEAVING}, []),
        (RUNNING, {"noticed": after(-20)}, [("put back", Why.NOTICE_OVER)]),
        (RUNNING, {"noticed": after(3600)}, [("put back", Why.NOTICE_OVER)]),  # clock set back
        (SUSPENDED, {}, []),
        (ENDING, {}, []),
        (ENDING, {"noticed": after(-100)}, []),
        (UNKNOWN, {}, []),
        (UNKNOWN, {"noticed": after(-100)}, []),
        (TIMED_OUT, {}, [("put back", Why.LEASE_ENDED)]),
        (TIMED_OUT, {"noticed": after(-100)}, [("put back", Why.LEFT)]),
        (DONE, {"noticed": after(-10)}, [("put back", Why.LEFT)]),
        (DONE, {"said": Said.LEAVING}, [("put back", Why.LEFT)]),
        (DONE, {"said": Said.TRAINED}, [("put back", Why.DIED)]),
        (DONE, {}, [("put back", Why.DIED)]),  # of a job with rounds
        (DONE, {"said": Said.FINISHED}, [("cancel", Why.FINISHED)]),
        (FAILED, {"exit_code": "1:0"}, [("put back", Why.DIED)]),
        (FAILED, {"noticed": after(-10)}, [("put back", Why.LEFT)]),
        (LOST, {}, [("put back", Why.DIED)]),
        (SPECIAL, {"released": after(-90), "restarts": 1}, [("set mark", Why.DIED)]),
        (SPECIAL, {"released": after(-90), "restarts": 1, "noticed": after(-9)}, []),
        (
            HELD,
            {"released": after(-90), "restarts": 1, "exit_code": "3:0"},
            [("set mark", Why.DIED)],
        ),
        (HELD, {"released": after(-90), "restarts": 1, "run": 1, "exit_code": "3:0"}, []),
        (HELD, {"released": after(-90), "restarts": 1, "exit_code": "143:0"}, []),
        (HELD, {"released": after(-90), "restarts": 1, "exit_code": "0:15"}, []),
    ],
)
def test_the_action_for_a_fragment_in_each_state(
    state: FragmentState, fields: dict[str, Any], wanted: list[tuple[str, Why]]
) -> None:
    nodes = fields.pop("nodes", [] if state is HELD else ["n1"])
    assert steps(make_fragment(0, state, nodes, **fields)) == wanted


@pytest.mark.parametrize(
    ("fields", "has_agent", "wanted"),
    [
        ({"said": Said.FINISHED}, True, True),
        (
            {"said": Said.FINISHED, "noticed": after(-2)},
            True,
            True,
        ),  # finished before it left
        ({"said": Said.TRAINED}, True, False),
        ({"said": Said.LEAVING}, True, False),
        ({"said": Said.NOTHING}, True, False),  # others have joined: its script gave up early
        ({"said": Said.NOTHING}, False, True),  # an ordinary script
    ],
)
def test_the_round_s_own_word_decides(
    fields: dict[str, Any], has_agent: bool, wanted: bool
) -> None:
    """It may exit any time before the end of its lease."""
    other = make_fragment(1, has_agent=has_agent)
    done = make_fragment(0, DONE, ["n1"], has_agent=False, **fields)
    assert is_finish(done, make_job(done, other)) is wanted


@pytest.mark.parametrize("state", [s for s in FragmentState if s is not DONE])
def test_only_a_clean_exit_can_finish(state: FragmentState) -> None:
    fragment = make_fragment(0, state, ["n1"], said=Said.FINISHED, has_agent=False)
    assert not is_finish(fragment, make_job(fragment))


def test_a_finish_cancels_waiting_fragments_and_lets_the_rest_end() -> None:
    job = make_job(
        make_fragment(0, DONE, ["n1"], said=Said.FINISHED),
        make_fragment(1, RUNNING, ["n2"]),
        make_fragment(2, PENDING, ["n3"], released=after(-5)),
        make_fragment(3, TIMED_OUT, ["n4"]),
        held=1,
    )
    care = care_for(job)
    assert care.has_ended
    assert care.growable == ()
    note, *finish = care.actions
    assert note.mark is not None  # Slurm may first forget the fragment that reported it
    assert (note.fragment.index, note.verb, note.mark.is_finished) == (1, Verb.STAY, True)
    assert {a.verb for a in finish} == {Verb.CANCEL}
    assert [a.fragment.index for a in finish] == [2, 4]


def test_a_finish_is_remembered_after_its_fragments_are_forgotten() -> None:
    job = make_job(make_fragment(1, RUNNING, ["n2"], is_finished=True))
    job = replace(job, request=replace(job.request, fragments=3))
    assert care_for(job).has_ended


def test_a_finish_that_is_done_is_not_repeated() -> None:
    job = make_job(make_fragment(0, DONE, ["n1"], said=Said.FINISHED), make_fragment(1, CANCELLED))
    assert care_for(job).actions == ()


# -- fragments that can grow


def test_arriving_and_growable_fragments() -> None:
    job = make_job(
        make_fragment(0, PENDING, ["n1"], released=after(-5)),
        make_fragment(1, DONE, ["n3"], noticed=after(-3)),
        make_fragment(2, HELD, reason="JobHeldAdmin"),
        held=2,
    )
    care = care_for(job)
    assert [f.id.index for f in care.arriving] == [0]
    assert [f.id.index for f in care.growable] == [3, 4]
    assert any("malleable release 7" in reason_text(reason) for reason in care.reasons)


def test_no_fragment_grows_before_a_dependency_is_met() -> None:
    job = make_job(make_fragment(0, HELD, depends=True), held=1)
    assert care_for(job).growable == ()
    assert "waits for its dependency" in map(reason_text, care_for(job).reasons)


@pytest.mark.parametrize(
    ("vain", "ago_s", "can_grow"),
    [(0, 1, True), (1, 29, False), (1, 30, True), (2, 59, False), (2, 60, True), (99, 3601, True)],
)
def test_the_delay_after_a_release_in_vain_doubles(vain: int, ago_s: float, can_grow: bool) -> None:
    job = make_job(make_fragment(0, HELD, vain=vain, released=after(-ago_s)), held=1)
    assert bool(care_for(job).growable) is can_grow


def test_a_node_that_could_not_start_a_fragment_is_avoided_once_it_is_known() -> None:
    failed = {"reason": "launch failed requeued held", "released": after(-5), "restarts": 1}
    job = make_job(make_fragment(0, HELD, **failed), held=1)
    mark = marks(care_for(job).actions)[0]
    assert (mark.vain, mark.obstacle, mark.run) == (1, "LaunchFailed", 1)
    assert not mark.unfit  # Slurm does not say where it was
    waits = make_job(make_fragment(0, HELD, mark=mark, restarts=1))
    (start,) = plan_for(make_snapshot(waits, nodes=make_nodes(1)), SETTINGS).actions
    assert start.mark
    assert [a.node for a in start.mark.unfit] == ["n1"]
    runs = make_job(make_fragment(0, RUNNING, ["n1"], mark=start.mark, restarts=1))
    assert not marks(care_for(runs).actions)[0].unfit


@pytest.mark.parametrize(
    ("state", "fields", "avoided"),
    [
        (HELD, {"reason": "launch failed requeued held", "restarts": 2}, ["n1"]),
        (PENDING, {"reason": "Resources", "restarts": 1}, []),  # another job took the node
    ],
)
def test_a_node_is_avoided_only_if_the_launch_failed_again(
    state: FragmentState, fields: dict[str, Any], avoided: list[str]
) -> None:
    since = after(-61)
    mark = {"vain": 1, "obstacle": "LaunchFailed", "released": since, "run": 1}
    fragment = make_fragment(0, state, unfit=(AvoidedNode("n1", since),), **mark, **fields)
    mended = marks(care_for(make_job(fragment, held=1)).actions)[0]
    assert (mended.vain, [a.node for a in mended.unfit]) == (2, avoided)


def test_a_release_in_vain_is_remembered_with_slurm_s_reason() -> None:
    job = make_job(
        make_fragment(0, PENDING, ["n1"], released=after(-5), reason="JobArrayTaskLimit")
    )
    mark = marks(care_for(job).actions)[0]
    assert (mark.vain, mark.obstacle, mark.released) == (1, "JobArrayTaskLimit", NOW)


def test_a_start_ends_the_pauses() -> None:
    job = make_job(make_fragment(0, RUNNING, ["n1"], vain=3, obstacle="Licenses"))
    assert marks(care_for(job).actions)[0].vain == 0


def test_the_priority_is_remembered_before_the_hold_erases_it() -> None:
    job = make_job(make_fragment(0, RUNNING, ["n1"], priority=70), held=1)
    assert marks(care_for(job).actions)[0].priority == 70
    assert job.priority == 70


def test_notice_is_repeated_with_the_first_time() -> None:
    fragment = make_fragment(0, RUNNING, ["n1"], noticed=after(-7))
    (action,) = care_for(make_job(fragment)).actions
    assert action.verb is Verb.NOTICE
    assert action.mark is None  # the moment of the first notice stays


@pytest.mark.parametrize(
    ("fields", "rested"),
    [
        ({}, True),
        ({"eligible": after(121)}, False),  # requeued this second
        ({"eligible": after(119)}, False),
        ({"eligible": after(118)}, True),
        ({"eligible": after(-5)}, True),
        ({"eligible": after(3600)}, True),  # slurmctld's clock was set back
        ({"noticed": after(-2)}, False),  # found dead two seconds ago
        ({"noticed": after(-3)}, True),
        ({"noticed": after(3000)}, True),
    ],
)
def test_a_fragment_waits_before_it_runs_again(fields: dict[str, Any], rested: bool) -> None:
    """A node refuses the credential of a job that ended there in this second."""
    job = make_job(make_fragment(0, HELD, **fields))
    assert bool(care_for(job).growable) is rested


def test_the_rest_follows_slurm_s_own_wait() -> None:
    job = make_job(make_fragment(0, HELD, eligible=after(300)))
    assert care_for(job).growable
    slow = make_snapshot(job, slurm=make_slurm(requeue_wait=after(300) - NOW))
    assert not upkeep(Ground(slow, SETTINGS), job).growable


def test_only_fragments_that_could_come_back_unheld_are_held() -> None:
    job = make_job(
        make_fragment(0, RUNNING, ["n1"]), make_fragment(1, RUNNING, ["n2"], priority=5), held=1
    )
    held = [a.fragment.index for a in care_for(job).actions if "hold" in a.parts]
    assert held == [1]
