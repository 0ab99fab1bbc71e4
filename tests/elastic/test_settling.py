"""When a round stops for newcomers: after its first step, while steps go on, and together."""

from __future__ import annotations

import pytest

from slurm_hooks.elastic.agent.settling import Settling, Training, may_begin
from slurm_hooks.elastic.agent.sight import Sight
from slurm_hooks.elastic.batch.own_element import OwnElement
from slurm_hooks.elastic.mailbox import Mailbox, MailboxReader
from slurm_hooks.elastic.observed import Observed
from slurm_hooks.elastic.rendezvous.causes import Cause, CauseKind, joined
from slurm_hooks.elastic.rendezvous.rounds import Limits, form, stop_reason
from slurm_hooks.elastic.rendezvous.state import Round, Stop, expect, join
from slurm_hooks.elastic.signals import SignalListener
from slurm_hooks.elastic.speed import Speed

from .members import gathered, member, token

LIMITS = Limits(1, 16)


@pytest.mark.parametrize(
    ("training", "may"),
    [
        (Training(59.0, patience_s=60.0), False),  # no step yet
        (Training(61.0, patience_s=60.0), True),  # it hangs, or its steps cannot be seen
        (Training(20.0, start_s=10.0, step_s=0.0), True),  # its pace is not known
        (Training(20.0, start_s=10.0, step_s=0.1, idle_s=2.0), True),
        (Training(20.0, start_s=10.0, step_s=0.1, idle_s=3.0), False),
        (Training(99.0, start_s=10.0, step_s=20.0, idle_s=50.0), True),
        (Training(9999.0, start_s=10.0, step_s=20.0, idle_s=70.0), False),  # a long evaluation
    ],
)
def test_a_growth_begins_while_steps_are_made(training: Training, may: bool) -> None:
    assert may_begin(training) is may


@pytest.mark.parametrize(
    ("start_s", "waits_s"), [(0.3, 5), (4.0, 5), (10.0, 10), (40.0, 40), (90.0, 60)]
)
def test_a_missing_fragment_is_worth_a_wait_as_long_as_a_start(
    start_s: float, waits_s: int
) -> None:
    state = expect(join(form(gathered(1), LIMITS, "h", 1, 0), member(2)), (1, 2, 3))
    settling, training = Settling(1.0), Training(99.0, start_s)
    looks = [settling.is_over(state, float(now), training) for now in range(100)]
    assert looks.index(True) == waits_s


def test_a_growth_that_has_begun_goes_on_while_the_workers_wait_for_it() -> None:
    state = join(form(gathered(1), LIMITS, "h", 1, 0), member(2))
    settling = Settling(0.0)
    assert not settling.is_over(state, 0.0, Training(9.0, 1.0, idle_s=9.0, step_s=0.1))
    assert settling.is_over(state, 1.0, Training(9.0, 1.0, idle_s=0.0, step_s=0.1))
    assert settling.is_over(state, 9.0, Training(9.0, 1.0, idle_s=8.0, step_s=0.1))


def test_a_growth_waits_a_minute_at_most_for_warm_workers() -> None:
    state = join(form(gathered(1), LIMITS, "h", 1, 0), member(2))
    training = Training(9.0, 1.0, step_s=0.1)
    for warm_at, begins_at in ((0, 0), (20, 20), (100, 60)):
        settling = Settling(0.0)
        looks = [
            settling.is_over(state, float(now), training, lambda: now < warm_at)  # noqa: B023
            for now in range(100)
        ]
        assert looks.index(True) == begins_at
        assert all(looks[begins_at:])


def test_looks_before_a_newcomer_came_begin_no_growth_in_an_evaluation() -> None:
    alone = form(gathered(1), LIMITS, "h", 1, 0)
    settling = Settling(1.0)
    for now in range(20):
        assert not settling.is_over(alone, float(now), Training(99.0, 1.0, step_s=0.1))
    state, evaluates = join(alone, member(2)), Training(99.0, 1.0, idle_s=9.0, step_s=0.1)
    assert not any(settling.is_over(state, float(now), evaluates) for now in range(20, 60))
    assert settling.is_over(state, 60.0, Training(99.0, 1.0, step_s=0.1))


@pytest.mark.parametrize(("start_s", "most"), [(1.0, 7), (10.0, 2), (40.0, 2), (59.0, 1)])
def test_newcomers_one_after_another_throw_no_round_away(start_s: float, most: int) -> None:
    """Seven newcomers, 8 s apart, of a training that needs so long to its first step."""
    state = expect(form(gathered(0), LIMITS, "h", 1, 0), tuple(range(8)))
    began, settling, rounds = 0.0, Settling(1.0), 0
    for tenths in range(3000):
        now = tenths / 10
        if tenths % 80 == 79 and now < 60:
            state = join(state, member(tenths // 80 + 1))
        age_s = now - began
        has_begun = age_s >= start_s
        training = Training(age_s, start_s if has_begun else None, step_s=0.1)
        is_over = settling.is_over(state, now, training)
        if is_over and stop_reason(state, token(0), LIMITS) is Stop.GROW:
            assert has_begun
            for each in state.members:
                state = join(state, each)
            state = form(state, LIMITS, "h", 1, int(now))
            began, settling, rounds = now, Settling(1.0), rounds + 1
    assert len(state.members) == 8
    assert rounds <= most


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


def sight(mailbox: Mailbox) -> Sight:
    return Sight(mailbox, OwnElement({}, SignalListener()), keep_state=False)


def begin(seen: Sight, now: float, is_first: bool = True, joins: bool = False) -> None:
    cause = joined(1) if joins else Cause(CauseKind.START)
    seen.begin_round(now, Round(1, (token(1),), (1,), "h", 1, (cause,), 0), is_first)


def test_an_agent_sees_the_first_step_of_its_round_and_how_old_the_newest_is(
    mailbox: Mailbox,
) -> None:
    seen, worker = sight(mailbox), MailboxReader(mailbox.environment())
    begin(seen, 1000.0)
    worker.write_speed(Speed())  # as a worker does before its program begins
    assert seen.training(1030.0) == Training(30.0, None, 60.0)
    worker.write_speed(Speed(first_at=1050.0))
    worker.write_observed(Observed(9, step_s=0.4, stepped_at=1070.0))
    assert seen.training(1075.0) == Training(75.0, 50.0, idle_s=5.0, step_s=0.4)
    worker.write_observed(Observed(9, 1, step_s=0.4, stepped_at=1070.0, saved_at=1060.0))
    assert seen.training(1075.0).saved_s == 60.0
    begin(seen, 1080.0, is_first=False)
    mailbox.clear()
    worker.write_speed(Speed())
    assert seen.training(1090.0).patience_s == 100.0  # twice the last start


def test_a_script_whose_steps_are_never_seen_costs_a_growth_a_minute_only_once(
    mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its workers are observed, but it has no optimizer of torch."""
    monkeypatch.setattr("slurm_hooks.elastic.agent.sight.fragment_began", lambda _: 992.0)
    seen, worker = sight(mailbox), MailboxReader(mailbox.environment())
    worker.write_speed(Speed())
    begin(seen, 1000.0)
    assert seen.training(1001.0).patience_s == 60.0
    begin(seen, 1030.0, is_first=False)  # too early to know
    assert seen.training(1031.0).patience_s == 60.0
    for now in (1100.0, 1200.0):
        begin(seen, now, is_first=False)
        assert seen.training(now + 1).patience_s == 8.0
    worker.write_speed(Speed(first_at=1210.0))
    begin(seen, 1300.0, is_first=False)
    assert seen.training(1301.0).patience_s >= 60.0


def test_an_agent_that_joins_lets_the_others_say_when_a_first_step_is_late(
    mailbox: Mailbox,
) -> None:
    seen = sight(mailbox)
    begin(seen, 1000.0, joins=True)
    MailboxReader(mailbox.environment()).write_speed(Speed())
    assert seen.training(1001.0).patience_s > 300.0


def test_workers_that_cannot_be_observed_are_taken_to_start_like_their_fragment(
    mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_hooks.elastic.agent.sight.fragment_began", lambda _: 980.0)
    for now, patience_s in ((1000.0, 20.0), (9999.0, 60.0)):
        seen = sight(mailbox)
        begin(seen, now)
        assert seen.training(now + 5.0) == Training(5.0, patience_s=patience_s)
