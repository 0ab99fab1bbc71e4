"""Whole ticks by default settings, with their books in the test's own directory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fake_slurm import FakeSlurm
from slurm_hooks.settings.values import Mode, Settings
from slurm_hooks.tick.bookkeeping import booked_tick
from slurm_hooks.tick.reconcile import tick
from slurm_hooks.tick.report import TickReport


def settings_in(directory: Path) -> Settings:
    shipped = Settings(mode=Mode("on"))
    lock, state = directory / "run" / "tick.lock", directory / "state"
    return replace(shipped, tick=replace(shipped.tick, lock=str(lock), state_dir=str(state)))


def one_tick(slurm: FakeSlurm) -> TickReport:
    """A tick that keeps no books, in the current directory. Raises as `tick` does."""
    return tick(slurm, settings_in(Path.cwd()))


def one_booked_tick(slurm: FakeSlurm) -> TickReport:
    """A tick as commands run it: the ledger is written, and reports of jobs are remembered."""
    report, warnings = booked_tick(slurm, settings_in(Path.cwd()))
    assert warnings == ()
    return report
