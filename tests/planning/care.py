"""Upkeep of a job, as its tests ask for it."""

from __future__ import annotations

from build import make_snapshot
from slurm_hooks.model import Intent, MalleableJob, Mark
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.lifecycle import Upkeep, upkeep
from slurm_hooks.settings.values import Mode, Settings

SETTINGS = Settings(mode=Mode("on"))  # notice 20 s, start timeout 60 s, three failures


def care_for(job: MalleableJob, settings: Settings = SETTINGS) -> Upkeep:
    return upkeep(ground_under(job, settings), job)


def ground_under(job: MalleableJob, settings: Settings = SETTINGS) -> Ground:
    return Ground(make_snapshot(job), settings)


def marks(intents: tuple[Intent, ...]) -> dict[int, Mark]:
    """The written marks, by index."""
    return {i.fragment.index: i.mark for i in intents if i.mark is not None}
