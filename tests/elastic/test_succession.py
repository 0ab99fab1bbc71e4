"""Pure decisions about the keeper of the lighthouse."""

from __future__ import annotations

import pytest

from slurm_hooks.elastic.engines.torchft.succession import (
    at_work,
    begin_term,
    difference,
    enlist,
    first_quorum,
    keeper,
    successors,
)
from slurm_hooks.elastic.rendezvous.causes import text_of
from slurm_hooks.elastic.rendezvous.codec import decode, encode
from slurm_hooks.elastic.rendezvous.state import (
    Member,
    Outcome,
    Phase,
    State,
    announce_leave,
    depart,
    expire,
    find,
    join,
    succeed,
)

NOW = 1_700_000_000


def token(fragment: int) -> str:
    return f"{fragment:016x}"


def group(fragment: int, ends: int = 0) -> Member:
    return Member(token(fragment), fragment, 0, f"{fragment}.0", "127.0.0.1", ends=ends)


def trained_by(*members: Member) -> State:
    state = State(run="77")
    for member in members:
        state = enlist(join(state, member), member.token)
    return state


def kept(state: State, fragment: int, lost: int = 0) -> State:
    return begin_term(state, token(fragment), ("127.0.0.1", 4000 + fragment), NOW, lost)


def test_the_lighthouse_has_no_keeper_until_an_agent_takes_it() -> None:
    state = trained_by(group(1), group(2))
    assert keeper(state) is None
    state = kept(state, 1)
    assert state.round is not None
    assert (state.round.number, state.round.port, text_of(state.round.causes)) == (1, 4001, "start")
    assert keeper(state) == find(state, token(1))
    assert decode(encode(state)) == state


def test_only_a_training_agent_may_keep_the_lighthouse() -> None:
    state = join(State(run="77"), group(1))
    assert kept(state, 1) == state  # it waits still
    assert kept(state, 9) == state  # it is unknown to all
    assert successors(state) == ()


def test_the_longest_lease_is_next_and_then_slurm_order() -> None:
    state = trained_by(group(3, NOW + 600), group(2, NOW + 600), group(1, NOW + 60))
    assert successors(state) == (token(2), token(3), token(1))


def test_a_second_agent_does_not_take_a_kept_lighthouse() -> None:
    state = kept(trained_by(group(1), group(2)), 1)
    assert kept(state, 2) == state


@pytest.mark.parametrize("how", ["leaves", "dies", "departs", "does not answer"])
def test_the_lighthouse_is_handed_on(how: str) -> None:
    state = kept(trained_by(group(1), group(2)), 1)
    lost = 0
    if how == "leaves":
        state = announce_leave(state, token(1))
    elif how == "dies":
        state = expire(state, frozenset({token(1)}), NOW)
    elif how == "departs":
        state = depart(state, token(1), NOW, planned=False)
    else:
        lost = 1
    assert keeper(state, lost) is None
    assert successors(state, lost) == (token(2),)
    state = kept(state, 2, lost)
    assert state.round is not None
    assert state.round.number == 2
    assert text_of(state.round.causes) == ("left 1" if how == "leaves" else "lost 1")
    assert keeper(state, lost) == find(state, token(2))


def test_a_keeper_that_is_done_still_serves_the_others() -> None:
    state = kept(trained_by(group(1), group(2)), 1)
    state = succeed(state, token(1), NOW)
    assert keeper(state) == find(state, token(1))
    assert successors(state) == (token(2),)
    assert state.outcome is Outcome.OPEN
    assert succeed(state, token(2), NOW).outcome is Outcome.FINISHED


def test_an_ended_training_needs_no_lighthouse() -> None:
    state = succeed(trained_by(group(1)), token(1), NOW)
    assert state.outcome is Outcome.FINISHED
    assert kept(state, 1) == state


def test_enlisting_does_not_undo_a_leave() -> None:
    state = announce_leave(trained_by(group(1)), token(1))
    member = find(enlist(state, token(1)), token(1))
    assert member is not None
    assert member.phase is Phase.LEAVING


def test_ids_of_quorums_differ_from_term_to_term() -> None:
    begins = [first_quorum(term) for term in range(1, 17)]
    assert min(begins) >= 32
    assert max(begins) < 1000  # counted in turn at the start of a term
    gaps = [b - a for a, b in zip(sorted(begins), sorted(begins)[1:])]
    assert min(gaps) >= 32


def test_the_news_name_arrivals_and_departures_and_their_kind() -> None:
    state = trained_by(group(1), group(2), group(3), group(4))
    assert at_work(state) == (1, 2, 3, 4)
    state = announce_leave(state, token(1))
    state = expire(state, frozenset({token(2)}), NOW)
    assert at_work(state) == (3, 4)
    assert text_of(difference((1, 2, 3), (3, 4), state)) == "joined 4, left 1, lost 2"
    assert at_work(succeed(state, token(3), NOW)) == (3, 4)  # done is not gone
