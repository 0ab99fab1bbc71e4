"""A loop's own pace: quick at low cost, slow where slurmctld is busy, and a call starts a tick."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captured_slurm import recorded
from slurm_hooks.errors import RetryLater
from slurm_hooks.planning.interval import BUSY_THREADS, gap_s
from slurm_hooks.settings.values import Tick
from slurm_hooks.slurm.sdiag import parse_threads
from slurm_hooks.tick.pace import Bell, ask_threads, soonest_s, wait

SDIAG = """*******************************************************
sdiag output at Sun Nov 22 07:00:00 2026 (1795330800)
*******************************************************
Server thread count:  3
Agent queue size:     0
"""


@pytest.mark.parametrize(
    ("tick_s", "threads", "expected"),
    [
        (0.05, 1, 5.0),  # free: as often as is allowed
        (0.2, 1, 10.0),  # 2 % of the time
        (9.0, 1, 30.0),  # dear: as seldom as by the timer
        (0.05, BUSY_THREADS, 30.0),
        (0.05, None, 30.0),  # unknown
    ],
)
def test_cheap_ticks_run_often(tick_s: float, threads: int | None, expected: float) -> None:
    assert gap_s(tick_s, threads, Tick()) == expected


@given(st.floats(0, 1e4), st.none() | st.integers(0, 10**6), st.floats(1, 600), st.floats(1, 600))
def test_a_wait_is_within_the_settings(
    tick_s: float, threads: int | None, one: float, other: float
) -> None:
    chosen = Tick(shortest_s=min(one, other), every_s=max(one, other))
    gap = gap_s(tick_s, threads, chosen)
    assert chosen.shortest_s <= gap <= chosen.every_s
    assert gap == chosen.every_s or tick_s <= chosen.share * gap * (1 + 1e-9)


def test_a_site_may_set_a_quicker_timer() -> None:
    assert gap_s(0.0, 0, Tick(every_s=2)) == 2.0


def test_slurmctld_says_how_many_requests_it_answers() -> None:
    assert parse_threads(SDIAG) == 3
    assert parse_threads("Server thread count: many") is None
    port = recorded("running")
    port.answers = {**port.answers, "sdiag": SDIAG}
    assert ask_threads(port) == 3
    port.answers = {**port.answers, "sdiag": RetryLater("no answer")}
    assert ask_threads(port) is None


def test_a_touch_is_heard_once(tmp_path: Path) -> None:
    path = tmp_path / "wake"
    bell = Bell()
    assert not bell.is_hung
    bell.listen_at(str(path))
    assert not bell.has_rung()
    path.touch()
    assert bell.has_rung()
    assert not bell.has_rung()
    os.utime(path, (1, 1))
    assert bell.has_rung()
    bell.listen_at(str(path))  # as before each tick: an earlier call is kept
    assert not bell.has_rung()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    behind = tmp_path / "behind"
    behind.touch()
    (tmp_path / "wake").symlink_to(behind)
    bell = Bell(str(tmp_path / "wake"))
    os.utime(behind, (1, 1))
    assert not bell.has_rung()


def test_a_call_ends_a_wait_but_not_at_once(tmp_path: Path) -> None:
    path = tmp_path / "wake"
    path.touch()
    bell, pauses = Bell(str(path)), []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1:
            os.utime(path, (1, 1))

    assert wait(30.0, soonest_s(0.05), bell, sleep) is False
    assert pauses == [1.0]
    assert soonest_s(2.0) == pytest.approx(20.0)


def test_without_a_call_a_wait_has_its_length_and_a_signal_ends_it(tmp_path: Path) -> None:
    pauses: list[float] = []
    assert wait(30.0, 1.0, Bell(), pauses.append) is False
    assert pauses == [30.0]
    pauses.clear()
    assert wait(2.6, 1.0, Bell(str(tmp_path / "none")), pauses.append) is False
    assert sum(pauses) == pytest.approx(2.6)
    assert wait(30.0, 1.0, Bell(), lambda gap: True) is True
