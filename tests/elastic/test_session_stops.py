"""Whether the workers of an agent must stop, with other agents or at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from slurm_hooks.elastic.mailbox import PlannedChange
from slurm_hooks.elastic.rendezvous.state import Phase, Stop, expect
from slurm_hooks.protocol.comment import Standing

from .lone_agent import (
    OPTIONS,
    Agent,
    directory_fails,
    is_at_its_end,
    is_told_to_go,
    newcomer_is_lost,
    newcomer_waits,
    nothing,
    other_has_stopped,
    other_is_lost,
    other_leaves,
    training_has_failed,
)


@pytest.mark.parametrize(
    ("happens", "expected"),
    [
        (nothing, Stop.NO),
        (other_is_lost, Stop.NOW),
        (other_has_stopped, Stop.NOW),
        (training_has_failed, Stop.NOW),
        (other_leaves, Stop.PLANNED),
        (is_told_to_go, Stop.PLANNED),
        (is_at_its_end, Stop.PLANNED),
        (newcomer_waits, Stop.NO),  # others may be on their way
        (directory_fails, Stop.NO),
    ],
)
def test_each_event_stops_the_workers_or_not(
    agent: Agent, happens: Callable[[Agent], None], expected: Stop
) -> None:
    agent.train()
    happens(agent)
    assert agent.look() is expected
    assert agent.reports.trained == (expected is Stop.PLANNED)
    is_going = happens in (is_told_to_go, is_at_its_end)
    assert agent.session.is_leaving is is_going
    assert (Standing.LEAVING in agent.reports.standings) is is_going


@pytest.mark.parametrize(
    ("wanted", "seconds"),
    [
        ((), 1.0),  # unknown: after settle_s without another newcomer
        ((1, 2, 3), 0.0),  # all are here
        ((1, 2, 3, 4), 5.0),  # the fourth may never start
    ],
)
def test_training_stops_for_newcomers_once_their_arrival_has_settled(
    agent: Agent, wanted: tuple[int, ...], seconds: float
) -> None:
    agent.train()
    newcomer_waits(agent)
    agent.directory.update(lambda s: expect(s, wanted))
    reasons = [agent.look(0.5)]
    while reasons[-1] is Stop.NO and len(reasons) < 20:
        reasons.append(agent.look(0.5))
    assert reasons == [Stop.NO] * int(2 * seconds) + [Stop.GROW]
    assert agent.reports.trained == 1


@pytest.mark.parametrize("seconds", [0.5, 1.5])
@pytest.mark.parametrize(("happens", "why"), [(other_leaves, "leave"), (newcomer_waits, "grow")])
def test_workers_get_time_to_reach_a_boundary_within_bounds(
    agent: Agent, happens: Callable[[Agent], None], why: str, seconds: float
) -> None:
    agent.train()
    happens(agent)
    agent.directory.update(lambda s: expect(s, (1, 2, 3)))
    agent.workers.is_on_the_way = True
    assert agent.look() is Stop.NO
    assert agent.look(0.5) is Stop.NO
    assert agent.workers.posted == [PlannedChange(why, OPTIONS.boundary_s)]
    assert agent.reports.trained == 0
    if seconds < OPTIONS.boundary_s:
        agent.workers.is_on_the_way = False
    assert agent.look(seconds) in (Stop.GROW, Stop.PLANNED)
    assert agent.reports.trained == 1


@pytest.mark.parametrize(
    ("happens", "expected"), [(newcomer_waits, Stop.NO), (other_leaves, Stop.PLANNED)]
)
def test_a_training_that_has_made_its_last_step_is_not_grown(
    agent: Agent, happens: Callable[[Agent], None], expected: Stop
) -> None:
    agent.train()
    happens(agent)
    agent.directory.update(lambda s: expect(s, (1, 2, 3)))
    agent.workers.have_trained = True
    assert agent.look() is expected
    agent.workers.have_trained = False  # it goes on: another training in the same script
    if happens is newcomer_waits:
        assert agent.look(0.5) is Stop.GROW


@pytest.mark.parametrize("next_one", [newcomer_waits, other_leaves])
def test_a_growth_that_is_called_off_is_withdrawn_and_costs_the_next_change_no_patience(
    agent: Agent, next_one: Callable[[Agent], None]
) -> None:
    agent.train()
    agent.workers.is_on_the_way = True
    newcomer_waits(agent)
    assert [agent.look(0.5) for _ in range(4)] == [Stop.NO] * 4  # known once it has settled
    assert agent.workers.posted
    newcomer_is_lost(agent)
    assert agent.look(0.5) is Stop.NO
    assert not agent.workers.posted
    agent.look(60.0)
    next_one(agent)
    patience_s = OPTIONS.boundary_s + (OPTIONS.settle_s if next_one is newcomer_waits else 0.0)
    looks = [agent.look(0.5) for _ in range(int(2 * patience_s) + 1)]
    assert set(looks) == {Stop.NO}
    assert agent.look(0.5) in (Stop.GROW, Stop.PLANNED)


def test_the_news_of_a_newcomer_is_withdrawn_while_another_newcomer_settles(agent: Agent) -> None:
    agent.train()
    agent.workers.is_on_the_way = True
    newcomer_waits(agent)
    agent.directory.update(lambda s: expect(s, (1, 2, 3)))
    agent.look()
    assert agent.workers.posted
    agent.directory.update(lambda s: expect(s, (1, 2, 3, 4)))
    assert agent.look() is Stop.NO
    assert not agent.workers.posted


@pytest.mark.parametrize(
    ("happens", "is_leaving"), [(nothing, False), (newcomer_waits, True), (other_leaves, True)]
)
def test_a_lease_that_ends_soon_ends_with_a_planned_change(
    agent: Agent, happens: Callable[[Agent], None], is_leaving: bool
) -> None:
    agent.train()
    agent.lease.ends_soon = True
    happens(agent)
    agent.directory.update(lambda s: expect(s, (1, 2, 3)))
    agent.look()
    assert agent.mine().phase is (Phase.LEAVING if is_leaving else Phase.ACTIVE)
    assert agent.session.is_leaving is is_leaving


def test_between_two_checks_no_state_is_read_unless_notice_arrives(agent: Agent) -> None:
    agent.train()
    assert agent.look() is Stop.NO
    reads = agent.directory.reads
    other_leaves(agent)
    agent.directory.reads = reads
    assert agent.look(0.1) is Stop.NO
    assert agent.directory.reads == reads
    is_told_to_go(agent)
    assert agent.look(0.0) is Stop.PLANNED
