"""Ticks for the ledger on a Slurm that behaves. As a program it ticks until it is killed."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from fake_slurm import FakeSlurm
from planning import whole_ticks
from slurm_hooks.settings.values import Settings
from slurm_hooks.tick.bookkeeping import keep_books
from slurm_hooks.tick.reconcile import tick
from slurm_hooks.tick.report import TickReport

MARK = "malleable{{min=1,max={0},unit=1,engine=torchrun,frags={0},lease=600,hole=120}}"


def settings_in(directory: Path, max_mib: int = 256) -> Settings:
    plain = whole_ticks.settings_in(directory)
    return replace(plain, ledger=replace(plain.ledger, max_mib=max_mib))


def busy_slurm() -> FakeSlurm:
    """Two jobs that fill six nodes at once: no job waits for more, so no job is probed."""
    slurm = FakeSlurm({f"n{i}": "" for i in range(1, 7)})
    slurm.submit(1, 4, MARK.format(4))
    slurm.submit(2, 2, MARK.format(2))
    return slurm


def one_tick(slurm: FakeSlurm, settings: Settings) -> tuple[TickReport, tuple[str, ...]]:
    report = tick(slurm, settings)
    return report, keep_books(report, settings, slurm)


def main(directory: Path, ticks: int) -> None:
    settings = settings_in(directory)
    slurm = busy_slurm()
    for number in range(ticks):
        _, warnings = one_tick(slurm, settings)
        print(number, *warnings, sep="\t", flush=True)
        slurm.advance(10)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
