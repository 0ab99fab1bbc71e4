"""Collects the basis for all jobs: the nodes, how long each is open, and general limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slurm_hooks.planning.failures import suspects
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.holes import Holes
from slurm_hooks.planning.interruptions import Interruptions, interruptions_of
from slurm_hooks.planning.limits import Queue, queue_of
from slurm_hooks.planning.modes import Mandate, mandate_of
from slurm_hooks.planning.slots import Slots


@dataclass(frozen=True)
class Survey:
    """The common basis for every job.

    `interruptions` says which jobs mind planned starts. `suspects` are nodes that no job should use
    for now, with the jobs whose fragments died there. `mandate` is the tick's rights. `queue` holds
    the jobs that wait for a limit on running jobs. `slots` gives the needs of a job's worker.
    """

    ground: Ground
    holes: Holes
    interruptions: Interruptions
    suspects: Mapping[str, tuple[int, ...]]
    mandate: Mandate
    queue: Queue
    slots: Slots


def survey_of(ground: Ground) -> Survey:
    """The survey of a ground."""
    return Survey(
        ground,
        holes=Holes(ground),
        interruptions=interruptions_of(ground),
        suspects=suspects(ground),
        mandate=mandate_of(ground),
        queue=queue_of(ground),
        slots=Slots(ground.seen.nodes),
    )
