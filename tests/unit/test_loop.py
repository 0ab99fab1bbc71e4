"""`malleable reconcile --loop` survives a failed tick, and ends after a long time without
success.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_hooks.cli import main
from slurm_hooks.commands import reconcile
from slurm_hooks.errors import NoTickForLong, UsageError

BROKEN = "#!/bin/sh\necho Unable to contact >&2\nexit 1\n"


def test_a_loop_that_cannot_tick_for_long_ends(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its first tick does not end it: an old failure belongs to another loop."""
    (site / "bin" / "squeue").write_text(BROKEN)
    stamp = site / "tick.lock.done"
    stamp.touch(mode=0o600)
    os.utime(stamp, (time.time() - 600,) * 2)
    arguments = argparse.Namespace(settings=None, dry_run=False, json=False)
    reconcile._tolerant_tick(arguments, time.monotonic(), 1.0)
    printed = capsys.readouterr().err
    assert printed.startswith("malleable: no tick has been completed since ")
    assert "Unable to contact" in printed
    with pytest.raises(NoTickForLong, match=r"\(10 min\)"):
        reconcile._tolerant_tick(arguments, time.monotonic() - 400, 1.0)
    assert NoTickForLong.exit_code == 69


def test_ticks_for_a_while_end_with_the_code_of_the_last(site: Path) -> None:
    """As the timer runs them: many in a row, and the unit fails if the last tick did."""
    squeue = site / "bin" / "squeue"
    works = squeue.read_text()
    argv = [sys.executable, "-m", "slurm_hooks.cli", "reconcile", "--loop", "1", "--for", "2"]
    for text, code in ((works, 0), (BROKEN, 75)):
        squeue.write_text(text)
        began = time.monotonic()
        done = subprocess.run(argv, capture_output=True, text=True, timeout=150, check=False)
        assert done.returncode == code, done.stderr
        assert time.monotonic() - began >= 1.0
        assert (done.stderr.count("malleable: ") >= 2) == bool(code)


def test_the_line_of_cron_is_a_single_tick_and_ends_with_its_code(site: Path) -> None:
    line = (Path(__file__).parents[2] / "etc" / "cron" / "slurm-malleable").read_text()
    command = re.search(r"/malleable (reconcile .*?) 2>", line)
    assert command
    argv = [sys.executable, "-m", "slurm_hooks.cli", *command.group(1).split()]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=150, check=False)
    assert (done.returncode, done.stdout.count("tick at")) == (0, 1), done.stderr
    (site / "bin" / "squeue").write_text(BROKEN)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=150, check=False)
    assert (done.returncode, done.stderr.count("malleable: ")) == (75, 1), done.stderr


@dataclass
class Clock:
    """The value of `time.monotonic`. It moves during each sleep."""

    now: float = 1000.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("loop_s", "end_after", "every_s", "took_s", "expected"),
    [
        (0.0, 30.0, 30.0, 1.0, [(0.0, 30.0)]),  # the timer's
        (0.0, 30.0, 10.0, 1.0, [(0.0, 10.0), (10.0, 10.0), (20.0, 10.0)]),
        (5.0, 12.0, 30.0, 0.0, [(0.0, 5.0), (5.0, 5.0), (10.0, 5.0)]),
        (5.0, 22.0, 30.0, 7.0, [(0.0, 5.0), (7.0, 5.0), (14.0, 5.0), (21.0, 5.0)]),  # late
        (60.0, 1.0, 30.0, 0.0, [(0.0, 60.0)]),  # cron's
    ],
)
def test_a_tick_gets_the_time_of_the_next_tick(
    site: Path,
    monkeypatch: pytest.MonkeyPatch,
    loop_s: float,
    end_after: float,
    every_s: float,
    took_s: float,
    expected: list[tuple[float, float]],
) -> None:
    """The last tick of a loop expects that the timer or cron starts the loop again in time."""
    clock, calls = Clock(), []
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    settings = site / "malleable.toml"
    settings.write_text(f"{settings.read_text()}every_s = {every_s}\n")

    def tick(_: argparse.Namespace, began: float, until_next_s: float) -> int:
        calls.append((clock.now - began, until_next_s))
        clock.now += took_s
        return 0

    monkeypatch.setattr(reconcile, "_tolerant_tick", tick)
    given = argparse.Namespace(settings=None, loop=loop_s, end_after=end_after)
    reconcile._loop(given, clock.sleep)
    assert calls == expected


@pytest.mark.parametrize("every_s", [5.0, 7.0, 10.0, 13.0, 25.0, 30.0])
def test_the_timer_lets_no_tick_come_later_than_told(
    monkeypatch: pytest.MonkeyPatch, every_s: float
) -> None:
    """A tick that is told too short a time gives notices too late."""
    units = Path(__file__).parents[2] / "etc" / "systemd"
    service = (units / "slurm-malleable.service").read_text()
    timer = (units / "slurm-malleable.timer").read_text()
    end_after, period_s = (
        float(re.search(pattern, text)[1])  # type: ignore[index]
        for pattern, text in ((r"--for (\d+)", service), (r"OnUnitActiveSec=(\d+)", timer))
    )
    clock, ticks = Clock(), []
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(reconcile, "_every_s", lambda _: every_s)

    def tick(_: argparse.Namespace, __: float, until_next_s: float) -> int:
        ticks.append((clock.now, until_next_s))
        clock.now += 0.3
        return 0

    monkeypatch.setattr(reconcile, "_tolerant_tick", tick)
    for _ in range(4):
        started = clock.now
        reconcile._loop(argparse.Namespace(loop=0.0, end_after=end_after), clock.sleep)
        clock.now = max(clock.now, started + period_s)
    late = [
        (at, then) for (at, gap_s), (then, _) in zip(ticks, ticks[1:]) if then - at > gap_s + 1e-6
    ]
    assert not late


def test_for_without_loop_is_refused(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reconcile", "--for", "25"]) == UsageError.exit_code
    assert "give --loop too" in capsys.readouterr().err


def test_a_loop_ends_with_a_signal_and_survives_failures(site: Path) -> None:
    (site / "bin" / "squeue").write_text(BROKEN)
    process = subprocess.Popen(
        [sys.executable, "-m", "slurm_hooks.cli", "reconcile", "--loop", "1"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert [process.stderr.readline()[:11] for _ in range(2)] == ["malleable: "] * 2
        process.terminate()
        assert process.wait(timeout=150) == 0
    finally:
        process.kill()
        process.communicate(timeout=150)
