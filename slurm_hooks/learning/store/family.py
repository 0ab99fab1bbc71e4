"""Groups jobs that should scale equally: the same user, name, unit, engine and kind of node."""

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
    """The traits that its jobs share.

    `name` is the job's name without a counter at its end, so that trial-7 and trial-8 are the same
    family. `needs` are the required traits of nodes.
    """

    user: str
    name: str
    unit: int = 1
    engine: str = ""
    needs: str = ""

    def __str__(self) -> str:
        """The form that `malleable profile --family` takes."""
        return f"{self.user}/{self.name}"

    @property
    def kind(self) -> str:
        """The traits of the nodes of its jobs."""
        return self.needs.partition(_SLOT)[0]

    @property
    def size_unit(self) -> str:
        """The unit of its jobs' sizes: node, gpu or task."""
        return self.needs.partition(_SLOT)[2].partition(":")[0] or NODE


def family_of(job: MalleableJob, gres: str) -> Family:
    """The family of a job whose slots have this resource (model/gpu_types.py).

    The number of nodes that it asks for makes no difference.
    """
    request = job.request
    name = _COUNTER.sub("", request.name) or request.name
    needs = _needs(job.needs, request.slot, gres)
    return Family(job.user, name, request.unit, request.engine, needs)


def _needs(needs: Needs, slot: Optional[Slot], gres: str) -> str:
    """The traits that tell kinds of nodes apart.

    Memory and number of processors do not. A rate per worker differs from a rate per node, and a
    GPU of another type is another worker. A fragment's other needs change with its size.
    """
    if slot is not None:
        return f"{needs.features}{_SLOT}{gres or 'task'}"
    return ";".join((needs.features, *(f"{name}:{count}" for name, count in needs.gres)))
