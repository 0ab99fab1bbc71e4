"""The fragments of a replayed job: a whole node, or some of the slots of a node.

Sizes of jobs count slots in both cases. If nodes have a single slot each, a slot is a node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional

from slurm_hooks.errors import UsageError
from slurm_hooks.model import Curve
from slurm_hooks.model.resources import GPU, NO_RESOURCES, Resources, Slot
from slurm_hooks.replay.work import Kind, Queue, kind

CPUS, MEMORY_MIB = 8, 65_536
"""What a node has beside each of its GPUs: as much as is never the bottleneck."""


@dataclass(frozen=True)
class Grain:
    """Nodes have `slots` each. Fragments have a multiple of `unit` of them, or all if it is 0."""

    slots: int = 1
    unit: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.unit <= self.slots:
            raise UsageError(f"--unit {self.unit}gpu: the nodes have {self.slots} GPUs each")

    @property
    def slot(self) -> Optional[Slot]:
        """The needs of a worker of a job, None if jobs count nodes."""
        return Slot(GPU) if self.unit else None

    @property
    def _step(self) -> int:
        return self.unit or self.slots

    @property
    def per(self) -> int:
        """The number of slots in a unit of the jobs' requests."""
        return 1 if self.unit else self.slots

    def of(self, slots: int) -> Resources:
        """This number of slots of a node."""
        if self.slots == 1:
            return NO_RESOURCES
        return Resources(slots * CPUS, slots * MEMORY_MIB, ((GPU, slots),))

    def fragments(self, kind: Kind) -> int:
        """The largest number of fragments of such a job."""
        return kind.max_nodes // self._step

    def queue(self, queue: Queue) -> Queue:
        """The same jobs, with sizes that such fragments can reach. Raises UsageError."""
        return replace(queue, parts=tuple(map(self._coarse, queue.parts)))

    def _coarse(self, fine: Kind) -> Kind:
        step = self._step
        least, most = -(-fine.min_nodes // step) * step, fine.max_nodes // step * step
        if step == 1:
            return fine
        if least > most:
            raise UsageError(
                f"model {fine.name}: no multiple of {step} GPUs is within "
                f"{fine.min_nodes} to {fine.max_nodes}"
            )
        coarse = kind(fine.name, fine.curve, (least, most), fine.images)
        return replace(coarse, checkpoint_s=fine.checkpoint_s)

    def curve(self, kind: Kind) -> Curve:
        """The scaling of such a job by the units of its request."""
        if self.per == 1:
            return kind.curve
        sizes = range(kind.max_nodes // self.per + 1)
        return Curve(tuple((n, kind.curve(n * self.per)) for n in sizes))
