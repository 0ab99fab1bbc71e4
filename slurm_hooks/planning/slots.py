"""The slot of a job in this tick, and how many of them one fragment can hold.

All GPUs of a gang are of one type: the slower ones would set its pace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
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
from slurm_hooks.model.resources import GPU
from slurm_hooks.planning.ground import Ground

_IN_SERVICE = (NodeState.FREE, NodeState.SHARED, NodeState.BUSY)


@dataclass(frozen=True)
class Share:
    """The `slot` of a job; `width` is the most of them that one fragment can hold anywhere."""

    slot: Slot
    width: int


class Slots:
    """The slots of jobs on the nodes of a machine, alike ones found once."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes
        self._widths: dict[tuple[str, Slot], int] = {}

    def of(self, job: MalleableJob) -> Optional[Share]:
        """The share of a job; None if it has whole nodes."""
        asked = job.request.slot
        if asked is None:
            return None
        slot = self._typed(job, asked) if job.way.works_as_one and asked.gres == GPU else asked
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
        found = (n for n in self._nodes.values() if n.state in _IN_SERVICE)
        return Counter(
            Node("", NodeState.FREE, n.partitions, frozenset(), n.cpus, n.memory_mib, n.gres)
            for n in found
        )

    def _typed(self, job: MalleableJob, slot: Slot) -> Slot:
        """With the type of GPU that the gang has, or else that of which there is most."""
        counts: Counter[str] = Counter()
        for fragment in job.stirring:
            for name in fragment.nodes & self._nodes.keys() if fragment.size else ():
                counts.update(dict.fromkeys(types_of(self._nodes[name].gres), fragment.size))
        if not counts:
            for node, number in self._kinds.items():
                if job.partition in node.partitions:
                    found = {name: node.total.count(name) * number for name in types_of(node.gres)}
                    counts.update(found)
        best = min(counts, key=lambda name: (-counts[name], name), default=GPU)
        return replace(slot, gres=best)


def why_no_parts(ground: Ground, job: MalleableJob) -> Optional[Reason]:
    """Why a job that counts slots has none; None if it may have some, or counts nodes."""
    if job.request.slot is None:
        return None
    if not ground.settings.site.part_nodes:
        return Reason(Why.NO_PARTS, Detail(said="site.part_nodes is empty"))
    missing = ground.seen.no_parts
    return Reason(Why.NO_PARTS, Detail(said=missing[0])) if missing else None


def types_of(gres: Iterable[tuple[str, int]]) -> list[str]:
    """The names of typed GPUs, as `gpu:a100`."""
    return [name for name, count in gres if name.startswith(f"{GPU}:") and count]


def is_asked(asks: Resources, wanted: Resources) -> bool:
    """True if Slurm gives an element just what is wanted for it: no GPU of another type beside."""
    same = (asks.cpus, asks.memory_mib) == (wanted.cpus, wanted.memory_mib)
    counts = all(asks.count(name) == count for name, count in wanted.gres)
    gpus = sum(count for _, count in wanted.gres)
    return same and counts and asks.gpus == gpus
