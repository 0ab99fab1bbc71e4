"""Runs a tick for commands, and writes it into the ledger."""

from __future__ import annotations

from functools import partial

from slurm_hooks.settings.values import Settings
from slurm_hooks.slurm.live import Port
from slurm_hooks.tick.bookkeeping import keep_books, summaries
from slurm_hooks.tick.reconcile import tick
from slurm_hooks.tick.report import TickReport


def booked_tick(port: Port, settings: Settings) -> tuple[TickReport, tuple[str, ...]]:
    """Run a tick and book it. Return the report, and warnings about everything not written.

    Raises as `tick` does.
    """
    report = tick(port, settings, sum_up=partial(summaries, settings))
    lines = keep_books(report, settings, port)
    return report, tuple(f"malleable: warning: {line}" for line in lines)
