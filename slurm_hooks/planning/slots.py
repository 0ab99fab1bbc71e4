"""The slot of a job in this tick, and how many of them one fragment can hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Optional

from slurm_hooks.model import (
    Detail,
    MalleableJob,
    Node,
    NodeState,
    Reason,
    Resources,
    Slot,
    Why,
)
from slurm_hooks.model.gpu_types import IN_SERVICE, GpuTypes
from slurm_hooks.planning.ground import Ground


@dataclass(frozen=True)
class Share:
    """The `slot` of a job; `width` is the most of them that one fragment can hold anywhere."""

    slot: Slot
    width: int


class Slots:
    """The slots of jobs on the nodes of a machine, alike ones found once."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes
        self._types = GpuTypes(nodes.values())
        self._widths: dict[tuple[str, Slot], int] = {}

    def of(self, job: MalleableJob) -> Optional[Share]:
        """The share of a job; None if it has whole nodes."""
        asked = job.request.slot
        if asked is None:
            return None
        slot = replace(asked, gres=self._types.of(job))
        unit = job.request.unit
        return Share(slot, max(unit, self._width(job.partition, slot) // unit * unit))

    def _width(self, partition: str, slot: Slot) -> int:
        if (partition, slot) not in self._widths:
            fits = (
                slot.fit(node, node.total)
                for node in set(self._kinds)
                if partition in node.partitions
            )
            self._widths[partition, slot] = max(fits, default=0)
        return self._widths[partition, slot]

    @cached_property
    def _kinds(self) -> Counter[Node]:
        """How many nodes in service there are of each kind."""
        found = (n for n in self._nodes.values() if n.state in IN_SERVICE)
        return Counter(
            Node("", NodeState.FREE, n.partitions, frozenset(), n.cpus, n.memory_mib, n.gres)
            for n in found
        )


def why_no_parts(ground: Ground, job: MalleableJob) -> Optional[Reason]:
    """Why a job that counts slots has none; None if it may have some, or counts nodes."""
    if job.request.slot is None:
        return None
    if not ground.settings.site.part_nodes:
        return Reason(Why.NO_PARTS, Detail(said="site.part_nodes is empty"))
    missing = ground.seen.no_parts
    return Reason(Why.NO_PARTS, Detail(said=missing[0])) if missing else None


def is_asked(asks: Resources, wanted: Resources) -> bool:
    """True if Slurm gives an element just what is wanted for it: no GPU of another type beside."""
    same = (asks.cpus, asks.memory_mib) == (wanted.cpus, wanted.memory_mib)
    counts = all(asks.count(name) == count for name, count in wanted.gres)
    gpus = sum(count for _, count in wanted.gres)
    return same and counts and asks.gpus == gpus
