"""The state that the threads of a lighthouse's keeper share."""

from __future__ import annotations

import time
from typing import Any

import pytest

from slurm_hooks.elastic.engines.torchft.keeper import Keeper
from slurm_hooks.elastic.engines.torchft.keeper_state import KeeperState
from slurm_hooks.elastic.engines.torchft.lighthouse import LighthouseTiming
from slurm_hooks.elastic.rendezvous.state import State

from .lone_agent import OPTIONS, Agent


class Lighthouse:
    is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_a_loss_is_searched_for_from_its_first_sign_until_the_lighthouse_is_found() -> None:
    state = KeeperState()
    assert not state.is_urgent()
    state.lose(3)
    time.sleep(0.02)
    before = state.search_s()
    assert before >= 0.02
    state.lose(2)  # an older lighthouse: known
    assert state.lost_term == 3
    assert state.search_s() >= before
    assert state.is_urgent()
    state.find()
    assert not state.is_urgent()
    assert state.search_s() < 0.02  # it counts again
    assert state.lost_term == 3


def test_a_loss_wakes_the_waiting_thread() -> None:
    state = KeeperState()
    state.lose(1)
    state.wait(900)
    state.wait(0.01)


def test_a_change_is_reported_once_and_a_leave_begins_once() -> None:
    state = KeeperState()
    state.note_change(is_planned=True)
    assert [state.take_planned_change() for _ in range(2)] == [True, False]
    assert [state.begin_leave() for _ in range(2)] == [True, False]
    assert state.is_leaving
    assert state.is_urgent()


def test_a_single_lighthouse_at_a_time() -> None:
    state, first, second = KeeperState(), Lighthouse(), Lighthouse()
    served: Any = (first, second)
    for lighthouse in served:
        state.serve(lighthouse)
    assert (first.is_closed, second.is_closed) == (True, False)
    state.serve(None)
    assert second.is_closed


def test_a_keeper_goes_on_after_an_unexpected_error(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    keeper = Keeper(OPTIONS, LighthouseTiming(1.0, 1.0), agent.membership)
    looks: list[State] = []

    def look(state: State) -> None:
        looks.append(state)
        if len(looks) > 2:
            keeper._shared.stop()
        else:
            raise ValueError("odd")

    monkeypatch.setattr(keeper, "_look", look)
    keeper._run()
    assert len(looks) == 3
    assert capfd.readouterr().err.count("ValueError: odd") == 1
    keeper._relay.stop()
