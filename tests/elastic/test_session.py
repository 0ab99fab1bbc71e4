"""An agent's way through the training: joining, waiting, leaving, and its counted failures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Optional

import pytest

from slurm_hooks.elastic.agent import membership
from slurm_hooks.elastic.agent.actions import (
    UNTIL_ADMITTED,
    Form,
    GiveUp,
    Leave,
    Outlived,
    Over,
    Rejoin,
    Wait,
)
from slurm_hooks.elastic.liveness.ping import Answer
from slurm_hooks.elastic.rendezvous.causes import Cause, CauseKind
from slurm_hooks.elastic.rendezvous.directory import DirectoryError
from slurm_hooks.elastic.rendezvous.rounds import form
from slurm_hooks.elastic.rendezvous.state import (
    Member,
    Outcome,
    Phase,
    State,
    Stop,
    expire,
    find,
    join,
)
from slurm_hooks.protocol.comment import Standing

from .lone_agent import (
    ME,
    OPTIONS,
    OTHER,
    Agent,
    directory_fails,
    is_at_its_end,
    is_told_to_go,
    nothing,
    other_has_stopped,
    other_is_lost,
    other_leaves,
)

# -- leaving


@pytest.mark.parametrize("why", [is_told_to_go, is_at_its_end])
@pytest.mark.parametrize(
    ("happens", "after_s", "expected"),
    [
        (nothing, 0.0, Wait(0.1)),
        (nothing, 0.75, Wait(0.1)),
        (nothing, 1.0, Leave()),
        (other_has_stopped, 0.0, Leave()),
        (other_is_lost, 0.0, Leave()),
        (directory_fails, 0.0, Leave()),
    ],
)
def test_a_leaver_waits_until_the_others_have_stopped_but_not_for_long(
    agent: Agent,
    why: Callable[[Agent], None],
    happens: Callable[[Agent], None],
    after_s: float,
    expected: object,
) -> None:
    agent.train()
    agent.session.begin_wait(143)
    why(agent)
    assert agent.session.next_action() == Wait(0.1)
    happens(agent)
    agent.clock.now += after_s
    assert agent.session.next_action() == expected
    assert agent.mine().phase is Phase.ACTIVE  # not on the waiting list


def test_an_agent_without_notice_waits_for_the_next_round(agent: Agent) -> None:
    agent.train()
    agent.session.begin_wait(143)
    agent.clock.now += 5.0
    assert isinstance(agent.session.next_action(), Wait)
    assert agent.mine().phase is Phase.READY


def test_an_agent_with_notice_before_its_join_never_joins(agent: Agent) -> None:
    is_told_to_go(agent)
    assert agent.session.next_action() == Leave()
    assert agent.directory.state.members == ()


def test_a_leave_that_has_begun_lasts_and_the_lease_is_not_read_again(agent: Agent) -> None:
    agent.train()
    agent.session.begin_wait(143)
    is_at_its_end(agent)
    assert agent.session.next_action() == Wait(0.1)
    questions, agent.lease.has_ended = agent.lease.questions, False  # renewed
    agent.clock.now += 0.5
    assert agent.session.next_action() == Wait(0.1)
    agent.clock.now += 0.5
    assert agent.session.next_action() == Leave()
    assert agent.lease.questions == questions


def test_an_agent_that_has_announced_its_leave_leaves_also_with_a_new_lease(agent: Agent) -> None:
    agent.train()
    is_at_its_end(agent)
    assert agent.look() is Stop.PLANNED
    agent.lease.has_ended = False
    agent.session.begin_wait(143)
    assert agent.session.next_action() == Wait(0.1)
    other_has_stopped(agent)
    assert agent.session.next_action() == Leave()


def test_an_agent_that_leaves_is_no_member_any_more(
    agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.train()
    agent.session.leave()
    assert agent.directory.state.members == (replace(OTHER, phase=Phase.ACTIVE, round=1),)
    assert agent.directory.state.gone == (Cause(CauseKind.LEFT, ME.fragment),)
    assert not agent.heartbeat.is_beating
    assert "fragment 1 leaves because its lease ends" in capsys.readouterr().err


# -- joining


def test_an_agent_that_is_too_early_waits_until_it_is_admitted(agent: Agent) -> None:
    agent.directory.stage = 2  # the others are at the training before
    for _ in range(2):
        assert agent.session.next_action() == UNTIL_ADMITTED
        assert not agent.session.is_in
    agent.directory.state = State(run="7", stage=2)
    assert isinstance(agent.session.next_action(), Wait)
    assert agent.session.is_in
    assert agent.mine() == ME


def test_the_time_before_the_admission_is_no_waiting_for_others(agent: Agent) -> None:
    """Otherwise a newcomer would form a round without the agents that are on their way."""
    agent.directory.stage = 2
    assert agent.session.next_action() == UNTIL_ADMITTED
    patience_s = 10 * OPTIONS.limits.last_call_s
    agent.clock.now += patience_s
    agent.directory.state = State(run="7", stage=2, wanted=(1, 2))
    assert isinstance(agent.session.next_action(), Wait)
    agent.clock.now += patience_s
    assert isinstance(agent.session.next_action(), Form)


@pytest.mark.parametrize(
    "state",
    [
        State(run="7", outcome=Outcome.FINISHED, outcome_at=1000),
        State(run="7", stage=2, members=(OTHER,)),  # the others are at the next round
    ],
)
def test_a_finished_training_leaves_no_state(agent: Agent, state: State) -> None:
    agent.directory.state = state
    assert agent.session.next_action() == Over()
    assert agent.directory.state == state
    agent.session.skip()
    assert agent.directory.stage == 2
    assert not agent.heartbeat.is_beating


def test_a_training_cannot_be_skipped_in_a_directory_that_lastingly_fails(agent: Agent) -> None:
    agent.train()
    directory_fails(agent)
    with pytest.raises(DirectoryError):
        agent.session.skip()
    assert agent.clock.now >= 1060.0


def test_an_agent_that_has_not_joined_has_no_round_to_skip(agent: Agent) -> None:
    directory_fails(agent)
    agent.session.skip()
    assert agent.directory.stage == 1
    assert agent.directory.reads == 0


def test_a_failed_training_starts_again(agent: Agent, capsys: pytest.CaptureFixture[str]) -> None:
    agent.directory.state = State(run="7", members=(OTHER,), rounds=5, outcome=Outcome.FAILED)
    assert isinstance(agent.session.next_action(), Wait)
    assert agent.directory.state == State(run="7", members=(ME,), rounds=5)
    assert "an earlier training in /nowhere ended; this is a new one" in capsys.readouterr().err


def test_an_agent_that_enters_has_joined_once(agent: Agent) -> None:
    agent.train()
    agent.session.begin_wait()
    agent.enter()
    assert agent.reports.standings == [Standing.JOINED]
    assert agent.session.round == agent.directory.state.round


# -- two agents of a fragment at the same time

TWIN = replace(ME, token="d" * 16, ping_port=7)


@pytest.fixture
def lives(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Tell whether TWIN is alive."""

    def set_life(is_alive: bool) -> None:
        answer = Answer.ALIVE if is_alive else Answer.GONE
        monkeypatch.setattr(membership, "ping", lambda *_: answer)

    return set_life


def test_an_agent_that_meets_a_working_agent_of_its_fragment_gives_up(
    agent: Agent, lives: Callable[[bool], None]
) -> None:
    lives(True)
    agent.directory.state = State(run="7", members=(TWIN,))
    action = agent.session.next_action()
    assert isinstance(action, GiveUp)
    assert "start one after the other" in action.why
    assert agent.directory.state.members == (TWIN,)


@pytest.mark.parametrize(
    ("twin", "is_alive"),
    [
        (TWIN, False),  # killed; the script has started another agent
        (
            replace(TWIN, incarnation="0.9"),
            True,
        ),  # of the last run; Slurm runs a single run at a time
        (replace(TWIN, phase=Phase.DONE), True),  # it is ending
        (replace(TWIN, ping_port=0), True),
    ],
)
def test_a_later_agent_of_a_fragment_replaces_the_earlier(
    agent: Agent, lives: Callable[[bool], None], twin: Member, is_alive: bool
) -> None:
    lives(is_alive)
    agent.directory.state = State(run="7", members=(twin,))
    assert isinstance(agent.session.next_action(), Wait)
    assert agent.mine() == ME


def test_a_single_agent_of_two_that_join_at_the_same_moment_stays(
    agent: Agent, lives: Callable[[bool], None]
) -> None:
    lives(True)
    agent.session.next_action()
    agent.directory.update(lambda s: join(s, TWIN))
    assert isinstance(agent.session.next_action(), GiveUp)
    agent.session.begin_wait()
    assert isinstance(agent.session.next_action(), GiveUp)
    assert agent.directory.state.members == (TWIN,)


# -- failures that count


@pytest.mark.parametrize(
    ("happens", "exit_code", "failed", "sound"),
    [
        (nothing, 3, 4, 0),
        (nothing, 0, 1, 0),  # the code is unknown
        (nothing, None, 0, 0),  # the round broke before it began
        (other_leaves, 143, 0, 0),
        (other_is_lost, 143, 0, 0),
        (other_has_stopped, 143, 0, 0),
        (other_has_stopped, 0, 0, 1),
        (directory_fails, 3, 4, 0),  # no reason to stop was seen
    ],
)
def test_workers_failed_unless_they_were_stopped_or_had_not_begun(
    agent: Agent,
    happens: Callable[[Agent], None],
    exit_code: Optional[int],
    failed: int,
    sound: int,
) -> None:
    agent.train()
    happens(agent)
    agent.look()
    agent.directory.is_in_trouble = False
    agent.session.begin_wait(exit_code)
    for _ in range(2):  # listed once
        agent.session.next_action()
    mine = agent.mine()
    assert (mine.phase, mine.failed, mine.sound) == (Phase.READY, failed, sound)
    assert agent.membership.restarts == bool(failed)


@pytest.mark.parametrize(
    ("saved_s", "outcome"), [(100.0, Outcome.FAILED), (700.0, Outcome.OPEN), (None, Outcome.FAILED)]
)
def test_failures_days_apart_end_no_training_that_saves_in_between(
    agent: Agent, saved_s: Optional[float], outcome: Outcome
) -> None:
    """A checkpoint of the first minutes proves nothing: the script may fail soon after it."""
    agent.train()
    for _ in range(3):
        agent.sight.seen = replace(agent.sight.seen, saved_s=saved_s)
        for _ in range(3):
            agent.look()
        agent.clock.now += 5 * 86_400.0
        agent.session.begin_wait(1)
        agent.session.next_action()
        other_has_stopped(agent)
        agent.directory.update(lambda s: form(s, OPTIONS.limits, "n1", 1, int(agent.clock.now)))
        agent.session.next_action()
    assert agent.directory.state.outcome is outcome
    assert bool(agent.reports.trained) is (saved_s is not None)


def test_before_the_first_round_there_is_no_failure(agent: Agent) -> None:
    agent.session.begin_wait(0)
    agent.session.next_action()
    assert agent.mine() == ME
    assert agent.membership.restarts == 0


def test_a_failure_is_charged_once_and_a_planned_stop_excuses_no_later_failure(
    agent: Agent,
) -> None:
    agent.train()
    failed = []
    for exit_code in (3, None, 5):  # the round after the first failure breaks
        agent.session.begin_wait(exit_code)
        agent.session.next_action()
        failed.append(agent.mine().failed)
        other_has_stopped(agent)
        agent.enter()
    assert failed == [4, 0, 6]
    other_leaves(agent)
    assert agent.look() is Stop.PLANNED
    agent.session.begin_wait(143)
    agent.enter()
    agent.session.begin_wait(7)
    agent.session.next_action()
    assert agent.mine().failed == 8
    assert agent.membership.restarts == 3


@pytest.mark.parametrize("is_outlived", [True, False])
@pytest.mark.parametrize("does_train", [True, False])
def test_an_agent_that_was_given_up_asks_slurm_before_it_joins_again(
    agent: Agent, is_outlived: bool, does_train: bool
) -> None:
    """Its node was out of reach. Meanwhile Slurm may have requeued its fragment."""
    agent.train() if does_train else agent.session.next_action()
    others_go_on(agent)
    agent.reports.has_other_run = is_outlived
    if does_train:
        assert agent.look() is Stop.NOW
        agent.session.begin_wait()
    action = agent.session.next_action()
    assert isinstance(action, Outlived) == is_outlived, action
    if isinstance(action, Rejoin):
        agent.session.rejoin()
    assert (find(agent.directory.state, ME.token) is None) == is_outlived


def others_go_on(agent: Agent) -> None:
    """The others go on without this agent."""
    agent.directory.update(lambda s: expire(join(s, OTHER), frozenset({ME.token}), 0))
