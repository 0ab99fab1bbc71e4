"""Which jobs are expected to scale alike: of one user, name, unit, engine and kind of node."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from slurm_hooks.model import MalleableJob, Needs, Slot
from slurm_hooks.model.job import NODE

_COUNTER = re.compile(r"[-_.]\d+$")
_SLOT = ";slot:"


@dataclass(frozen=True, order=True)
class Family:
    """What its jobs have in common. `name` is the job's without a counter at its end, so that
    trial-7 and trial-8 are one family; `needs` is what nodes must have."""

    user: str
    name: str
    unit: int = 1
    engine: str = ""
    needs: str = ""

    def __str__(self) -> str:
        """As `malleable profile --family` takes it."""
        return f"{self.user}/{self.name}"

    @property
    def kind(self) -> str:
        """What the nodes of its jobs have."""
        return self.needs.partition(_SLOT)[0]

    @property
    def size_unit(self) -> str:
        """What the sizes of its jobs count: node, gpu or task."""
        return self.needs.partition(_SLOT)[2].partition(":")[0] or NODE


def family_of(job: MalleableJob, gres: str) -> Family:
    """The family of a job whose slots have this resource (model/gpu_types.py). How many nodes it
    asks for makes no difference."""
    request = job.request
    name = _COUNTER.sub("", request.name) or request.name
    needs = _needs(job.needs, request.slot, gres)
    return Family(job.user, name, request.unit, request.engine, needs)


def _needs(needs: Needs, slot: Optional[Slot], gres: str) -> str:
    """Kinds of nodes; how much memory and how many processors are not kinds. Rates by workers are
    none by nodes, and a GPU of another type is another worker. What a fragment asks for beside
    that changes with its size."""
    if slot is not None:
        return f"{needs.features}{_SLOT}{gres or 'task'}"
    return ";".join((needs.features, *(f"{name}:{count}" for name, count in needs.gres)))
