"""Copies are taken although nobody goes, where a lost peer would often leave no whole state."""

from __future__ import annotations

import pytest

from slurm_hooks.elastic.script.exposure import COST, EVERY_S, TRIFLE, Exposure


def trained(exposed_s: float, steps: int = 100, step_s: float = 0.1) -> tuple[Exposure, float]:
    """After so many steps, in each of which the state is exposed for so long."""
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
    assert exposure.is_copy_due(now) is is_due


def test_no_copy_before_its_time() -> None:
    exposure, now = trained(0.05, steps=int(EVERY_S / 0.1) - 1)
    assert not exposure.is_copy_due(now)


@pytest.mark.parametrize("took_s", [0.0, 0.001, 2.0])
def test_copies_cost_next_to_nothing(took_s: float) -> None:
    exposure, now = trained(0.05)
    pause_s = exposure.copied(now, took_s)
    assert pause_s >= EVERY_S
    assert took_s <= COST * pause_s * 1.001
    exposure.open(now)
    exposure.close(now + pause_s * 0.99)
    assert not exposure.is_copy_due(now + pause_s * 0.99)
    assert exposure.is_copy_due(now + pause_s)


def test_without_room_there_are_no_more() -> None:
    exposure, now = trained(0.05)
    exposure.give_up()
    assert not exposure.is_copy_due(now + 1e6)
