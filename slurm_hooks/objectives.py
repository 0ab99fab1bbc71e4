"""The names that an objective of a site imports, as docs/developers/objective.md shows."""

from __future__ import annotations

from slurm_hooks.allocation.objectives import JobFacts, Objective, Worth

__all__ = ["JobFacts", "Objective", "Worth"]
