"""The name that older versions documented for `slurm_hooks.objectives`; goes with version 1."""

from __future__ import annotations

from slurm_hooks.objectives import JobFacts, Objective, Worth

__all__ = ["JobFacts", "Objective", "Worth"]
