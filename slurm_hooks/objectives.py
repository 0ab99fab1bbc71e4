"""What a site's own objective may import; see docs/admins/objectives.md."""

from __future__ import annotations

from slurm_hooks.allocation.objectives import JobFacts, Objective, Worth

__all__ = ["JobFacts", "Objective", "Worth"]
