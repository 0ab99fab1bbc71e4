"""Answers of a real Slurm, kept in tests/captured/VERSION/SITUATION.{squeue,scontrol}.txt."""

from __future__ import annotations

from pathlib import Path

from slurm_hooks.slurm.recorded import Recorded

CAPTURED = Path(__file__).with_name("captured")
SITUATIONS = sorted(p.name.split(".")[0] for p in (CAPTURED / "22.05").glob("*.squeue.txt"))


def recorded(situation: str, version: str = "22.05") -> Recorded:
    """That Slurm in that situation."""
    base = CAPTURED / version
    return Recorded(
        {
            "squeue": (base / f"{situation}.squeue.txt").read_text(),
            "scontrol show": (base / f"{situation}.scontrol.txt").read_text(),
        }
    )
