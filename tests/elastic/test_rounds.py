"""The shared state and its decisions, without torch, files or clocks."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_hooks.elastic.codec import StateFormatError, decode, encode
from slurm_hooks.elastic.rounds import (
    Limits,
    form,
    has_running_peers,
    is_stranded,
    may_form,
    ranked,
    stop_reason,
)
from slurm_hooks.elastic.rounds_log import describe
from slurm_hooks.elastic.state import (
    Admission,
    Member,
    Outcome,
    Phase,
    State,
    Stop,
    admit,
    announce_leave,
    come_back,
    depart,
    expect,
    expire,
    find,
    is_superseded,
    join,
    restart,
    succeed,
)

LIMITS = Limits(2, 4)
NOW = 1_000_000


def member(number: int, ends: int = 0, incarnation: str = "1.0") -> Member:
    return Member(f"{number:016x}", number, 0, incarnation, f"n{number}", ends)


def gathered(*numbers: int) -> State:
    state = State(run="7")
    for number in numbers:
        state = join(state, member(number))
    return state


def running(*numbers: int) -> State:
    return form(gathered(*numbers), LIMITS, "n1", 4000, NOW)


def token(number: int) -> str:
    return member(number).token


def test_ranks_follow_lease_then_slurm_order_never_names() -> None:
    state = State(run="7")
    for number, ends in ((66, 600), (7, 610), (9, 1200), (10, 0)):
        state = join(state, member(number, ends))
    assert [m.fragment for m in ranked(state, LIMITS)] == [9, 7, 66, 10]


def test_too_many_keep_those_that_train() -> None:
    state = running(3, 4)
    for number in (0, 1, 2):
        state = join(state, member(number))
    for number in (3, 4):
        state = join(state, member(number))
    assert [m.fragment for m in ranked(state, LIMITS)] == [0, 1, 3, 4]


def test_first_round_makes_a_last_call_unless_full() -> None:
    assert not may_form(gathered(1), LIMITS, 99, 99)
    assert not may_form(gathered(1, 2), LIMITS, 1, 99)
    assert may_form(gathered(1, 2), LIMITS, 3, 3)
    assert may_form(gathered(1, 2, 3, 4), LIMITS, 0, 0)


def test_next_round_waits_for_those_who_still_stop_but_not_for_ever() -> None:
    state = join(join(running(1, 2, 3), member(1)), member(2))
    assert not may_form(state, LIMITS, 30, 30)
    assert may_form(state, LIMITS, 60, 60)
    assert may_form(expire(state, frozenset({token(3)}), NOW), LIMITS, 0, 0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda s: s, Stop.NO),
        (lambda s: join(s, member(9)), Stop.GROW),
        (lambda s: announce_leave(s, token(2)), Stop.PLANNED),
        (lambda s: announce_leave(s, token(1)), Stop.PLANNED),
        (lambda s: depart(s, token(2), NOW, False), Stop.NOW),
        (lambda s: depart(s, token(1), NOW, False), Stop.NOW),
        (lambda s: join(s, member(2)), Stop.NOW),
        (lambda s: announce_leave(succeed(s, token(2), NOW), token(3)), Stop.NO),
        (lambda s: join(succeed(s, token(2), NOW), member(9)), Stop.NO),
    ],
)
def test_reasons_to_stop(change: object, reason: Stop) -> None:
    assert stop_reason(change(running(1, 2, 3)), token(1), LIMITS) is reason  # type: ignore[operator]


def test_a_full_round_does_not_stop_for_newcomers() -> None:
    state = join(running(1, 2, 3, 4), member(5))
    assert stop_reason(state, token(1), LIMITS) is Stop.NO


def test_leaver_goes_last() -> None:
    state = announce_leave(running(1, 2, 3), token(3))
    last = state.round
    assert has_running_peers(state, last, token(3))
    state = join(join(state, member(1)), member(2))
    assert not has_running_peers(state, last, token(3))
    state = form(state, LIMITS, "n1", 4001, NOW)
    assert not has_running_peers(state, last, token(3))
    assert state.round is not None
    assert state.round.cause == "left 3"
    assert describe(last, state.round).endswith("2 fragments (1 2), was 3, cause: left 3")
    state = depart(state, token(3), NOW, planned=True)
    assert state.gone == ()  # told already
    assert stop_reason(state, token(1), LIMITS) is Stop.NO


def test_a_new_incarnation_replaces_the_dead_one() -> None:
    state = join(running(1, 2), replace(member(1, incarnation="1.1"), token="f" * 16))
    assert find(state, token(1)) is None
    assert state.gone == ("lost 1",)


def test_an_old_agent_gives_way_to_the_newer_run_of_its_fragment() -> None:
    newer = replace(member(1, incarnation="1.10"), token="f" * 16)
    state = join(running(1, 2), newer)
    assert is_superseded(state, member(1, incarnation="1.9"))
    assert not is_superseded(state, newer)
    assert come_back(state, member(1, incarnation="1.9")) == state


def test_finished_when_all_who_worked_are_done_or_gone() -> None:
    state = succeed(running(1, 2, 3), token(1), NOW)
    assert state.outcome is Outcome.OPEN
    state = succeed(join(state, member(9)), token(2), NOW)
    state = expire(state, frozenset({token(3)}), NOW)
    assert state.outcome is Outcome.FINISHED
    assert come_back(state, member(3)) == state


def test_failing_after_others_finished_is_noticed() -> None:
    state = succeed(running(1, 2, 3), token(1), NOW)
    state = join(state, replace(member(2), failed=True))
    assert not is_stranded(state, token(2), LIMITS)  # 3 may come back as well
    assert is_stranded(succeed(state, token(3), NOW), token(2), LIMITS)


@pytest.mark.parametrize(
    ("outcome", "done", "stage", "age", "expected"),
    [
        (Outcome.OPEN, (), 1, 0, Admission.JOIN),
        (Outcome.FINISHED, (), 1, 0, Admission.NOTHING_LEFT),
        (Outcome.FINISHED, ((1, 0, "1.0"),), 1, 0, Admission.NOTHING_LEFT),
        (Outcome.FINISHED, ((1, 0, "0.9"),), 1, 0, Admission.RESTART),
        (Outcome.FINISHED, (), 1, 100_000, Admission.RESTART),
        (Outcome.FINISHED, ((1, 0, "1.0"),), 2, 0, Admission.RESTART),
        (Outcome.FAILED, (), 1, 0, Admission.RESTART),
    ],
)
def test_admission(
    outcome: Outcome,
    done: tuple[tuple[int, int, str], ...],
    stage: int,
    age: int,
    expected: Admission,
) -> None:
    state = State(run="7", outcome=outcome, outcome_at=NOW - age, done=done)
    assert admit(state, member(1), stage, NOW) is expected


def test_a_newcomer_steps_over_trainings_that_are_behind_the_others() -> None:
    second = join(restart(running(1, 2), 2), member(1))
    assert admit(second, member(3), 1, NOW) is Admission.NOTHING_LEFT
    assert admit(second, member(3), 2, NOW) is Admission.JOIN
    assert admit(second, member(3), 3, NOW) is Admission.WAIT


def test_workers_that_only_ever_fail_end_the_training() -> None:
    state = running(1, 2)
    for turn in range(3):
        assert state.outcome is Outcome.OPEN, turn
        for number in (1, 2):
            state = join(state, replace(member(number), failed=True))
        state = form(state, LIMITS, "n1", 4000, NOW + turn)
    assert state.outcome is Outcome.FAILED


def test_failures_by_loss_or_long_after_the_start_do_not_count() -> None:
    state = expire(running(1, 2, 3), frozenset({token(3)}), NOW)
    for number in (1, 2):
        state = join(state, replace(member(number), failed=True))
    state = form(state, LIMITS, "n1", 4000, NOW)
    assert state.crashes == 0
    for turn in range(1, 6):
        for number in (1, 2):
            state = join(state, replace(member(number), failed=True))
        state = form(state, LIMITS, "n1", 4000, NOW + 400 * turn)
        assert state.crashes == 1


events = st.lists(
    st.tuples(
        st.sampled_from(["join", "leave", "depart", "expire", "form", "succeed"]),
        st.integers(0, 7),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(events)
def test_whatever_happens_rounds_are_sound(sequence: list[tuple[str, int]]) -> None:
    state, leaving = State(run="7"), set()
    for event, number in sequence:
        before, name = state.round, token(number)
        if event == "join":
            mine = find(state, name)
            if mine is None or mine.phase is Phase.ACTIVE:
                state = expect(come_back(state, member(number)), (number, number + 1))
                leaving.discard(name)
        elif event == "leave":
            state = announce_leave(state, name)
            mine = find(state, name)
            if mine is not None and mine.phase is Phase.LEAVING:
                leaving.add(name)
        elif event == "depart":
            state = depart(state, name, NOW, planned=True)
        elif event == "expire":
            state = expire(state, frozenset({name, token(0)}), NOW)
        elif event == "succeed":
            state = succeed(state, name, NOW)
        elif may_form(state, LIMITS, 99, 99):
            state = form(state, LIMITS, "n1", 4000, NOW)
        assert decode(encode(state)) == state
        assert len({m.token for m in state.members}) == len(state.members)
        if state.round is None or state.round == before:
            continue
        order = state.round.order
        assert len(set(order)) == len(order)
        assert LIMITS.smallest <= len(order) <= LIMITS.largest
        assert not leaving & set(order)
        assert all(find(state, t) is not None for t in order)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(json.loads(encode(running(1, 2))))), junk)
def test_nothing_but_a_state_is_read(field: str, value: object) -> None:
    document = json.loads(encode(running(1, 2)))
    document[field] = value
    with contextlib.suppress(StateFormatError):
        decode(json.dumps(document))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format":2}', "[" * 100_000])
def test_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(StateFormatError):
        decode(text)
