"""The shared state and its decisions, without torch, files or clocks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_hooks.elastic.rendezvous.causes import left, lost
from slurm_hooks.elastic.rendezvous.codec import decode, encode
from slurm_hooks.elastic.rendezvous.rounds import (
    PROVEN_S,
    Limits,
    form,
    has_running_peers,
    is_progress,
    is_stranded,
    may_form,
    ranked,
    stop_reason,
)
from slurm_hooks.elastic.rendezvous.rounds_log import describe, describe_failures
from slurm_hooks.elastic.rendezvous.state import (
    Admission,
    Outcome,
    Phase,
    State,
    Stop,
    admit,
    advance,
    announce_leave,
    come_back,
    depart,
    expect,
    expire,
    find,
    forgive,
    is_superseded,
    is_unfinished,
    join,
    restart,
    succeed,
)

from .members import LIMITS, NOW, gathered, member, running, token


def test_ranks_follow_lease_then_slurm_order_never_names() -> None:
    state = State(run="7")
    for number, ends in ((66, 600), (7, 610), (9, 1200), (10, 0)):
        state = join(state, member(number, ends))
    assert [m.fragment for m in ranked(state, LIMITS)] == [9, 7, 66, 10]


def test_a_full_round_keeps_the_members_that_train() -> None:
    state = running(3, 4)
    for number in (0, 1, 2):
        state = join(state, member(number))
    for number in (3, 4):
        state = join(state, member(number))
    assert [m.fragment for m in ranked(state, LIMITS)] == [0, 1, 3, 4]


POWERS = replace(LIMITS, largest=8, sizes=frozenset({2, 4, 8}))


def test_a_round_has_an_allowed_size() -> None:
    """After a loss the others continue at once at the next smaller size. The other agents wait."""
    state = expire(running(*range(8)), frozenset({token(7)}), NOW)
    for number in range(7):
        state = join(state, member(number))
    assert may_form(state, POWERS, 0, 0)
    state = form(state, POWERS, "h", 1, NOW)
    assert state.round is not None
    assert state.round.fragments == (0, 1, 2, 3)
    assert not may_form(state, POWERS, 99, 99)  # for the agents left out
    assert stop_reason(state, token(0), POWERS) is Stop.NO
    assert stop_reason(join(state, member(8)), token(0), POWERS) is Stop.GROW


@given(st.lists(st.integers(1, 4), max_size=6), st.frozensets(st.integers(1, 8), min_size=1))
def test_members_of_any_number_of_workers_make_a_round_of_an_allowed_size_or_no_round(
    workers: list[int], sizes: frozenset[int]
) -> None:
    """A round stops for newcomers only if a larger round follows."""
    limits = replace(POWERS, smallest=min(sizes), sizes=sizes)
    state, before = State(run="7"), 0
    for number, count in enumerate(workers):
        state = join(state, replace(member(number), workers=count))
        if state.round and stop_reason(state, state.round.order[0], limits) is not Stop.GROW:
            continue
        for each in state.members:
            state = join(state, each)
        assert may_form(state, limits, 99, 99) or not before
        if may_form(state, limits, 99, 99):
            state = form(state, limits, "h", 1, NOW)
            assert state.round is not None
            assert state.round.size in sizes - set(range(before + 1))
            before = state.round.size


def test_the_first_round_waits_for_the_last_call_unless_full() -> None:
    assert not may_form(gathered(1), LIMITS, 99, 99)
    assert not may_form(gathered(1, 2), LIMITS, 1, 99)
    assert may_form(gathered(1, 2), LIMITS, 3, 3)
    assert may_form(gathered(1, 2, 3, 4), LIMITS, 0, 0)


def test_the_next_round_waits_for_stopping_members_but_not_endlessly() -> None:
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
        (lambda s: join(succeed(s, token(2), NOW), member(3)), Stop.NO),
    ],
)
def test_reasons_to_stop(change: object, reason: Stop) -> None:
    assert stop_reason(change(running(1, 2, 3)), token(1), LIMITS) is reason  # type: ignore[operator]


@pytest.mark.parametrize(("done", "reason"), [(1, Stop.NOW), (2, Stop.NO)])
def test_a_loss_in_the_end_of_a_training_stops_those_who_can_repeat_the_end(
    done: int, reason: Stop
) -> None:
    state = running(1, 2, 3, 4)
    for number in range(4, 4 - done, -1):
        state = succeed(state, token(number), NOW)
    state = expire(state, frozenset({token(2 if done == 2 else 3)}), NOW)
    assert stop_reason(state, token(1), LIMITS) is reason


def test_a_training_is_not_finished_while_rank_0_was_lost_at_work() -> None:
    """It often works on alone after the last step. What it would write must not be missing."""
    state = running(1, 2, 3)
    assert state.round is not None
    first, *others = state.round.order
    for each in others:
        state = succeed(state, each, NOW)
    lost_first = expire(state, frozenset({first}), NOW)
    assert lost_first.outcome is Outcome.OPEN
    assert is_unfinished(lost_first)
    newcomer = replace(member(1, incarnation="1.1"), token="f" * 16)
    assert admit(lost_first, newcomer, 1, NOW) is Admission.RESTART
    done = succeed(state, first, NOW)
    assert (done.outcome, is_unfinished(done)) == (Outcome.FINISHED, False)
    state = running(1, 2, 3)
    for each in (first, others[0]):
        state = succeed(state, each, NOW)
    assert expire(state, frozenset({others[1]}), NOW).outcome is Outcome.FINISHED


def test_a_run_that_a_later_run_has_replaced_does_not_join() -> None:
    state = running(1, 2)
    later = join(state, replace(member(2, incarnation="1.1"), token="f" * 16))
    late = replace(member(2), token="e" * 16)
    assert admit(later, late, 1, NOW) is Admission.OUTLIVED
    assert admit(state, late, 1, NOW) is Admission.JOIN


@pytest.mark.parametrize(
    ("age_s", "verdict"), [(5.0, Admission.RESTART), (60.0, Admission.NOTHING_LEFT)]
)
def test_a_run_that_was_on_its_way_when_the_training_ended_has_nothing_to_do(
    age_s: float, verdict: Admission
) -> None:
    state = running(1, 2)
    for number in (1, 2):
        state = succeed(state, token(number), NOW)
    again = replace(member(2, incarnation="1.1"), token="f" * 16)
    assert admit(state, again, 1, NOW + 30, age_s) is verdict


def test_a_full_round_does_not_stop_for_newcomers() -> None:
    state = join(running(1, 2, 3, 4), member(5))
    assert stop_reason(state, token(1), LIMITS) is Stop.NO


def held(*workers: int) -> State:
    """A state with waiting members, with so many workers each, numbered from 0."""
    state = State(run="7")
    for number, count in enumerate(workers):
        state = join(state, member(number, workers=count))
    return state


@pytest.mark.parametrize(
    ("workers", "may", "inside"),
    [
        ((3,), False, (0,)),
        ((1, 3), True, (0, 1)),  # MIN is 4 workers, and two agents have them
        ((4,), True, (0,)),
        ((8, 1), True, (0,)),  # MAX is 8
        ((5, 4, 2, 1), True, (0, 2, 3)),  # there is no room for all 4 beside the first
        ((9, 4), True, (1,)),
        ((3, 9), False, (0,)),  # so many are there, but they do not fit together
    ],
)
def test_rounds_count_workers(workers: tuple[int, ...], may: bool, inside: tuple[int, ...]) -> None:
    state, limits = held(*workers), Limits(4, 8)
    assert may_form(state, limits, 99, 99) is may
    assert tuple(m.fragment for m in ranked(state, limits)) == inside
    if may:
        formed = form(state, limits, "n1", 4000, NOW).round
        assert formed is not None
        assert formed.size == sum(workers[n] for n in inside)


def test_a_full_round_is_formed_at_once_and_a_small_round_after_the_last_call() -> None:
    limits = Limits(4, 8)
    assert may_form(held(3, 5), limits, 0, 0)
    assert not may_form(held(3, 4), limits, 0, 0)
    assert may_form(held(3, 4), limits, 3, 3)
    assert not may_form(join(running(1, 2), member(1, workers=3)), limits, 99, 99)


@pytest.mark.parametrize(("newcomer", "reason"), [(2, Stop.GROW), (3, Stop.NO)])
def test_only_a_newcomer_that_fits_stops_the_others(newcomer: int, reason: Stop) -> None:
    state = form(held(3, 3), Limits(4, 8), "n1", 4000, NOW)
    state = join(state, member(5, workers=newcomer))
    assert stop_reason(state, token(0), Limits(4, 8)) is reason


def test_too_few_workers_are_stranded() -> None:
    limits = Limits(4, 8)
    state = succeed(form(held(3, 4), limits, "n1", 4000, NOW), token(1), NOW)
    assert is_stranded(join(state, member(0, workers=3)), token(0), limits)
    assert not is_stranded(join(state, member(0, workers=4)), token(0), limits)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=6),
    st.lists(st.integers(1, 5), min_size=1, max_size=6),
)
def test_a_round_that_stops_for_newcomers_continues_with_more_members(
    first: list[int], later: list[int]
) -> None:
    limits = Limits(4, 12)
    state = held(*first)
    if not may_form(state, limits, 99, 99):
        assert sum(first) < limits.smallest
        return
    state = form(state, limits, "n1", 4000, NOW)
    before = state.round
    assert before is not None
    for number, count in enumerate(later, start=len(first)):
        state = join(state, member(number, workers=count))
    if stop_reason(state, before.order[0], limits) is Stop.NO:
        waiting = [m.workers for m in state.members if m.phase is Phase.READY]
        assert before.size + min(waiting) > limits.largest
        return
    for name in before.order:
        mine = find(state, name)
        assert mine is not None
        state = join(state, mine)
    assert may_form(state, limits, 0, 0)
    after = form(state, limits, "n1", 4000, NOW).round
    assert after is not None
    assert before.size < after.size <= limits.largest
    assert set(before.order) < set(after.order)


def test_a_leaver_has_the_last_rank() -> None:
    state = announce_leave(running(1, 2, 3), token(3))
    last = state.round
    assert has_running_peers(state, last, token(3))
    state = join(join(state, member(1)), member(2))
    assert not has_running_peers(state, last, token(3))
    state = form(state, LIMITS, "n1", 4001, NOW)
    assert not has_running_peers(state, last, token(3))
    assert state.round is not None
    assert state.round.causes == (left(3),)
    assert describe(last, state.round).endswith("2 fragments (1 2), was 3, cause: left 3")
    state = depart(state, token(3), NOW, planned=True)
    assert state.gone == ()  # in the cause already
    assert stop_reason(state, token(1), LIMITS) is Stop.NO


def test_a_new_incarnation_replaces_the_dead_incarnation() -> None:
    state = join(running(1, 2), replace(member(1, incarnation="1.1"), token="f" * 16))
    assert find(state, token(1)) is None
    assert state.gone == (lost(1),)


def test_an_old_agent_gives_way_to_the_newer_run_of_its_fragment() -> None:
    newer = replace(member(1, incarnation="1.10"), token="f" * 16)
    state = join(running(1, 2), newer)
    assert is_superseded(state, member(1, incarnation="1.9"))
    assert not is_superseded(state, newer)
    assert come_back(state, member(1, incarnation="1.9")) == state


def test_a_training_is_finished_when_all_its_workers_are_done_or_lost() -> None:
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


def failed(state: State, *numbers: int, at: int) -> State:
    """Let the workers of these fragments fail, and form the next round."""
    for number in numbers:
        state = join(state, replace(member(number), failed=1 + 7))
    return form(state, LIMITS, "n1", 4000, at)


def test_workers_that_always_fail_end_the_training_at_any_pace() -> None:
    state = running(1, 2)
    for turn in range(1, 4):
        assert state.outcome is Outcome.OPEN, turn
        state = failed(state, 1, 2, at=NOW + 86_400 * turn)
    assert state.outcome is Outcome.FAILED
    assert (state.crashes, state.crashed_in) == (3, 1)
    assert describe_failures(state, 3) == (
        "the workers failed 3 times in a row, in rounds 1 to 3, last exit code 7"
    )


def broken(
    state: State, *failed: int, unsure: tuple[int, ...] = (), hanging: tuple[int, ...] = ()
) -> State:
    """Let the workers of these fragments fail, and form the next round. The others stop theirs,
    which have failed as well if they are `unsure`.
    """
    for number in state.round.fragments if state.round else ():
        if number not in hanging:
            is_sound = number not in (*failed, *unsure)
            back = replace(member(number), failed=8 * (number in failed), sound=int(is_sound))
            state = join(state, back)
    assert may_form(state, LIMITS, 60, 60)
    return form(decode(encode(state)), LIMITS, "n1", 4000, NOW + 10 * state.rounds)


def blamed(*rounds: tuple[int, ...]) -> State:
    """Let the workers of these fragments of three fail, round after round."""
    state = running(1, 2, 3)
    for numbers in rounds:
        state = broken(state, *numbers)
    return state


@pytest.mark.parametrize(
    ("rounds", "expelled", "crashes"),
    [
        ([(2,), (2,)], 2, 0),
        ([(2,), (1, 2), (2,)], 0, 3),  # not in a row
        ([(2,), (3,), (2,)], 0, 3),  # the script, in one process at a time
        ([(1, 2, 3), (1, 2, 3)], 0, 2),  # a collective error: nobody was first
    ],
)
def test_who_alone_fails_twice_in_a_row_is_expelled(
    rounds: list[tuple[int, ...]], expelled: int, crashes: int
) -> None:
    state = decode(encode(blamed(*rounds)))
    assert state.expelled == (token(expelled) if expelled else "")
    assert state.crashes == crashes


@pytest.mark.parametrize("others", [((1,), (1,)), ((1,), ()), ((), (3,))], ids=str)
@pytest.mark.parametrize("how", ["unsure", "hanging"])
def test_nobody_is_blamed_unless_all_others_are_known_healthy_in_both_rounds(
    how: str, others: tuple[tuple[int, ...], ...]
) -> None:
    """They stopped workers that had failed by then, or they have not come back."""
    state = running(1, 2, 3, 4)
    for numbers in others:
        state = broken(state, 2, **{how: numbers})
    assert (state.expelled, state.crashes) == ("", 2)


def test_the_others_go_on_without_the_expelled_and_expel_no_second() -> None:
    state = blamed((2,), (2,))
    assert may_form(state, LIMITS, 0, 0)
    state = form(state, LIMITS, "n1", 4000, NOW)
    assert state.round is not None
    assert (state.round.fragments, state.round.causes) == ((1, 3), (lost(2),))
    assert stop_reason(state, token(1), LIMITS) is Stop.NO
    state = depart(state, token(2), NOW, planned=False)
    assert state.gone == ()  # in the cause already
    state = join(state, replace(member(2, incarnation="1.1"), token="f" * 16))
    assert stop_reason(state, token(1), LIMITS) is Stop.GROW  # it runs on another node
    for crashes in (1, 2):
        for number in (1, 3):
            back = replace(member(number), failed=8 * (number == 3), sound=int(number != 3))
            state = join(state, back)
        state = form(depart(state, "f" * 16, NOW, planned=True), LIMITS, "n1", 4000, NOW)
        assert (state.crashes, state.expelled) == (crashes, token(2))
    assert forgive(state).expelled == ""


def test_nobody_is_expelled_if_the_others_would_be_too_few() -> None:
    state = broken(broken(running(1, 2), 2), 2)
    assert (state.expelled, state.crashes) == ("", 2)


def test_a_failure_that_a_loss_may_have_caused_neither_counts_nor_forgives() -> None:
    state = failed(running(1, 2, 3), 1, 2, 3, at=NOW + 10)
    assert state.crashes == 1
    state = failed(expire(state, frozenset({token(3)}), NOW), 1, 2, at=NOW + 20)
    assert state.crashes == 1
    state = failed(join(state, member(4)), 1, 2, at=NOW + 30)  # the fragment that came
    assert state.crashes == 1
    for number in (1, 2):  # no worker failed, but 4 is lost: unplanned
        state = join(expire(state, frozenset({token(4)}), NOW), member(number))
    assert form(state, LIMITS, "n1", 4000, NOW + 9999).crashes == 1


@pytest.mark.parametrize(("lasted_s", "crashes"), [(9, 1), (10, 1), (11, 0)])
def test_a_planned_change_forgives_if_the_training_got_farther(lasted_s: int, crashes: int) -> None:
    state = failed(running(1, 2), 1, 2, at=NOW + 10)
    state = join(state, member(3))
    for number in (1, 2):
        state = join(state, member(number))
    state = form(state, LIMITS, "n1", 4000, NOW + 10 + lasted_s)
    assert state.crashes == crashes


def test_a_long_round_is_progress_whenever_the_last_round_broke() -> None:
    state = failed(running(1, 2), 1, 2, at=NOW + 86_400)
    assert not is_progress(state, PROVEN_S)
    assert is_progress(state, PROVEN_S + 1)
    assert is_progress(running(1, 2), 0)


def test_another_try_of_a_failed_training_must_make_more_progress() -> None:
    state = running(1, 2)
    for turn in (1, 2, 3):
        state = failed(state, 1, 2, at=NOW + 30 * turn)
    again = restart(state, 1)
    assert (again.crashes, again.outcome) == (0, Outcome.OPEN)
    assert not is_progress(again, 30)
    assert is_progress(restart(replace(state, outcome=Outcome.FINISHED), 2), 1)
    assert is_progress(forgive(state), 1)


def test_only_more_samples_than_ever_before_are_progress() -> None:
    state = failed(running(1, 2), 1, 2, at=NOW + 10)
    crashes = []
    for samples in (5, 4, 5):  # the first number and the text after it say nothing
        state = advance(state, samples)
        crashes.append(state.crashes)
    assert crashes == [1, 1, 1]
    again = restart(replace(state, outcome=Outcome.FAILED, crashes=1), 1)
    assert advance(replace(again, crashes=1), 5).crashes == 1
    assert advance(replace(again, crashes=1), 6).crashes == 0
    assert restart(replace(state, outcome=Outcome.FINISHED), 2).farthest == 0


@pytest.mark.parametrize(
    ("crashes", "first", "last", "code", "text"),
    [
        (1, 4, 4, 1, "the workers failed once, in round 4, last exit code 1"),
        (2, 3, 9, 137, "the workers failed 2 times in a row, in rounds 3 to 9, last exit code 137"),
        (2, 3, 4, 0, "the workers failed 2 times in a row, in rounds 3 to 4"),
    ],
)
def test_the_report_of_failing_workers(
    crashes: int, first: int, last: int, code: int, text: str
) -> None:
    state = State(run="7", crashes=crashes, crashed_in=first, crashed_with=code)
    assert describe_failures(state, last) == text


def test_the_most_informative_exit_code_is_reported() -> None:
    state = running(1, 2, 3)
    for number, code in ((1, 134), (2, 3), (3, 0)):
        state = join(state, replace(member(number), failed=1 + code))
    assert form(state, LIMITS, "n1", 4000, NOW).crashed_with == 3


def test_a_waiting_fragment_never_takes_a_healthy_round_over() -> None:
    """A bug once: with --nnodes=1, or 2 of 4, it did so every minute, from step 0 each time."""
    one = Limits(1, 1)
    state = form(gathered(1), one, "n1", 4000, NOW)
    state = join(join(state, member(2)), member(3))
    assert not may_form(state, one, 9999, 9999)
    assert stop_reason(state, token(1), one) is Stop.NO
    two = join(join(running(1, 2, 3, 4), member(5)), member(6))
    assert not may_form(two, LIMITS, 9999, 9999)
    assert not may_form(succeed(two, token(1), NOW), LIMITS, 9999, 9999)  # it is ending
    assert may_form(join(two, member(1)), LIMITS, 60, 60)  # broken, and 2 to 4 are late


WORKERS = (1, 3, 2, 5, 1, 4, 8, 2)  # of members by number
events = st.lists(
    st.tuples(
        st.sampled_from(["join", "leave", "depart", "expire", "form", "succeed"]),
        st.integers(0, 7),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(events, st.sampled_from([(LIMITS, (1,) * 8), (Limits(4, 8), WORKERS)]))
def test_rounds_are_sound_after_any_events(
    sequence: list[tuple[str, int]], held_by: tuple[Limits, tuple[int, ...]]
) -> None:
    (limits, workers), state, leaving = held_by, State(run="7"), set()
    for event, number in sequence:
        before, name = state.round, token(number)
        if event == "join":
            mine = find(state, name)
            if mine is None or mine.phase is Phase.ACTIVE:
                mine = member(number, workers=workers[number])
                state = expect(come_back(state, mine), (number, number + 1))
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
        elif may_form(state, limits, 99, 99):
            state = form(state, limits, "n1", 4000, NOW)
        assert decode(encode(state)) == state
        assert len({m.token for m in state.members}) == len(state.members)
        if state.round is None or state.round == before:
            continue
        order = state.round.order
        assert len(set(order)) == len(order)
        assert state.round.size == sum(workers[int(name, 16)] for name in order)
        assert limits.smallest <= state.round.size <= limits.largest
        assert not leaving & set(order)
        assert all(find(state, t) is not None for t in order)
