"""A tick, killed anywhere, and two ticks at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

from captured_slurm import SITUATIONS, recorded
from fake_slurm import FakeSlurm
from planning.whole_ticks import settings_in
from slurm_hooks.errors import RetryLater
from slurm_hooks.settings.values import Settings
from slurm_hooks.tick.reconcile import tick

MARK = "malleable{min=1,max=4,unit=1,engine=torchrun,frags=4,lease=600,hole=120}"


class Killed(Exception):
    """A tick that ended between two writes."""


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_dry_run_only_reads(situation: str, tmp_path: Path) -> None:
    port = recorded(situation)
    report = tick(port, settings_in(tmp_path), is_dry=True)
    assert report.is_dry
    assert len(port.asked) <= 3
    assert all(c.argv[0] == "squeue" or c.stdin.startswith("show ") for c in port.commands)
    assert list(tmp_path.iterdir()) == []
    assert report.rpcs == sum(a.rpcs for a in port.asked)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_reads_are_three_commands_and_a_last_reading_of_the_fragments(
    situation: str, tmp_path: Path
) -> None:
    port = recorded(situation)
    tick(port, settings_in(tmp_path))
    is_read = [c.argv[0] == "squeue" or c.stdin.startswith("show ") for c in port.commands]
    first = is_read.index(False) if False in is_read else len(is_read)
    assert sum(is_read) <= 4
    assert sum(is_read[first:]) <= 1


def two_jobs() -> FakeSlurm:
    """Two jobs that fill the machine together."""
    slurm = FakeSlurm({f"n{i}": "" for i in range(1, 9)})
    slurm.submit(1, 4, MARK)
    slurm.submit(2, 4, MARK)
    return slurm


def live_on(slurm: FakeSlurm, settings: Settings, seconds: int) -> None:
    for _ in range(seconds // 10):
        tick(slurm, settings)
        slurm.advance(10)


def trouble(slurm: FakeSlurm) -> None:
    slurm.preempt("1_0")
    slurm.nodes["n8"] = "+DRAIN"
    slurm.elements["2_1"].state = "FAILED"
    slurm.elements["2_1"].end = slurm.now
    slurm.advance(10)


@pytest.mark.parametrize("writes", range(9))
def test_a_tick_killed_between_any_two_writes(writes: int, tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    slurm = two_jobs()
    left = [writes]

    def pause(command: str) -> None:
        if left[0] == 0:
            raise Killed
        left[0] -= 1

    killed = 0
    for _ in range(40):
        try:
            tick(slurm, settings, announce=pause)
        except Killed:
            killed += 1
            break
        slurm.advance(10)
        if slurm.now % 300 == 0:
            trouble(slurm)
    live_on(slurm, settings, 400)
    slurm.nodes["n8"] = ""
    live_on(slurm, settings, 300)
    assert killed == 1
    assert slurm.violations == []
    running = [e for e in slurm.elements.values() if e.state == "RUNNING"]
    assert len(running) == 8
    assert len({n for e in running for n in e.nodes}) == 8


def test_two_ticks_at_the_same_moment_do_no_more_than_a_single_tick(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    slurm = two_jobs()
    tick(slurm, settings)
    before = len(slurm.commands)
    tick(slurm, settings)
    assert all(c.argv[0] == "squeue" or c.stdin.startswith("show") for c in slurm.commands[before:])


def test_slurm_does_not_answer(tmp_path: Path) -> None:
    port = recorded("running")
    port.answers = {**port.answers, "squeue": RetryLater("no answer")}
    with pytest.raises(RetryLater):
        tick(port, settings_in(tmp_path))
    assert len(port.asked) == 1
