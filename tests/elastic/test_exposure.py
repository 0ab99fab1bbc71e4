"""Copies are taken while all processes run, if a lost peer often leaves no whole state.

They are also taken where a lost peer ends the process without a signal.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_hooks.elastic.script.exposure import COST, EVERY_S, TRIFLE, Exposure


def trained(exposed_s: float, steps: int = 100, step_s: float = 0.1) -> tuple[Exposure, float]:
    """A training after so many steps, each with the state exposed for so long."""
    exposure, now = Exposure(0.0), 0.0
    for _ in range(steps):
        exposure.close(now)  # the first optimizer begins
        exposure.open(now)
        exposure.open(now + exposed_s / 2)  # it counts from the first
        exposure.close(now + exposed_s)
        now += step_s
    return exposure, now


@pytest.mark.parametrize(
    ("exposed_s", "is_due"), [(0.0, False), (0.09 * TRIFLE, False), (0.02, True), (0.09, True)]
)
def test_copies_are_for_trainings_that_are_exposed(exposed_s: float, is_due: bool) -> None:
    exposure, now = trained(exposed_s)
    assert exposure.share(now) == pytest.approx(exposed_s / 0.1)
    assert exposure.is_copy_due(now, 100) is is_due


def test_copies_are_for_all_processes_that_may_end_without_a_signal() -> None:
    exposure, now = trained(0.0)
    assert exposure.is_copy_due(now, 100, always=True)


def test_no_copy_before_its_time() -> None:
    exposure, now = trained(0.05, steps=int(EVERY_S / 2 / 0.1) - 1)
    assert not exposure.is_copy_due(now, 100)


@pytest.mark.parametrize("took_s", [0.0, 0.001, 2.0])
def test_copies_have_almost_no_cost(took_s: float) -> None:
    exposure, now = trained(0.05)
    exposure.copied(now, took_s)
    assert exposure.pause_s >= EVERY_S
    assert took_s <= COST * exposure.pause_s * 1.001
    exposure.open(now)
    exposure.close(now + exposure.pause_s * 0.49)
    assert not exposure.is_copy_due(now + exposure.pause_s * 0.49, 1)
    assert exposure.is_copy_due(now + exposure.pause_s, 2)


def test_without_room_there_are_no_more() -> None:
    exposure, now = trained(0.05)
    exposure.give_up()
    assert not exposure.is_copy_due(now + 1e6, 100, always=True)


@settings(deadline=None)
@given(
    st.lists(st.floats(0.5, 2.0), min_size=2, max_size=6),
    st.sampled_from([0.03, 0.4, 3.0, 50.0]),
    st.integers(1, 10),
)
def test_nodes_whose_copies_take_unequal_time_copy_together(
    took_s: list[float], step_s: float, count_by: int
) -> None:
    """All wait for the slowest node, so all of them lose each step in which any node copies.

    A kept state is never older than the reported age.
    """
    nodes = [Exposure(0.0) for _ in took_s]
    now, stalls_s, kept, lags = 0.0, 0.0, [0.0] * len(nodes), [float("inf")] * len(nodes)
    for step in range(count_by, 2_000 * count_by, count_by):
        now += step_s
        assert all(now - at <= lag + step_s for at, lag in zip(kept, lags))
        due = [n for n, node in enumerate(nodes) if node.is_copy_due(now, step, always=True)]
        for n in due:
            lags[n] = nodes[n].copied(now + took_s[n], took_s[n])
            kept[n] = now
        stall_s = max((took_s[n] for n in due), default=0.0)
        now, stalls_s = now + stall_s, stalls_s + stall_s
    assert stalls_s <= 2 * COST * now + sum(took_s)
