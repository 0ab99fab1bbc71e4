"""What the threads of a lighthouse's keeper share."""

from __future__ import annotations

import time
from typing import Any

from slurm_hooks.elastic.engines.torchft.keeper_state import KeeperState


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
    state.lose(2)  # an older one: known
    assert state.lost_term == 3
    assert state.search_s() >= before
    assert state.is_urgent()
    state.find()
    assert not state.is_urgent()
    assert state.search_s() < 0.02  # it counts anew
    assert state.lost_term == 3


def test_a_loss_wakes_who_waits() -> None:
    state = KeeperState()
    state.lose(1)
    began = time.monotonic()
    state.wait(20)
    assert time.monotonic() - began < 5
    state.wait(0.01)


def test_a_change_is_told_once_and_a_leave_begins_once() -> None:
    state = KeeperState()
    state.note_change(is_planned=True)
    assert [state.take_planned_change() for _ in range(2)] == [True, False]
    assert [state.begin_leave() for _ in range(2)] == [True, False]
    assert state.is_leaving
    assert state.is_urgent()


def test_one_lighthouse_at_a_time() -> None:
    state, first, second = KeeperState(), Lighthouse(), Lighthouse()
    served: Any = (first, second)
    for lighthouse in served:
        state.serve(lighthouse)
    assert (first.is_closed, second.is_closed) == (True, False)
    state.serve(None)
    assert second.is_closed
