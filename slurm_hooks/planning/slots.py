"""Finds the slot of a job in this tick, and how many slots a fragment can hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Optional

from slurm_hooks.model import (
    Detail,
    MalleableJob,
    Node,
    NodeState,
    Reason,
    Slot,
    Why,
)
from slurm_hooks.model.cluster import IN_SERVICE
from slurm_hooks.model.resources import GPU, HasTotal
from slurm_hooks.planning.ground import Ground


@dataclass(frozen=True)
class Share:
    """The `slot` of a job. A fragment can hold at most `width` slots on any node.

    A gang that takes any GPU stays on nodes whose GPUs all have the type `gpus`, since the slowest
    would set its pace. Slurm refuses a type for a fragment that was submitted without a type, so
    the gang's slot names no type.
    """

    slot: Slot
    width: int
    gpus: str = ""


class Slots:
    """The slots of jobs on the nodes of a machine, computed once for each kind."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._widths: dict[tuple[str, Slot, str], int] = {}

    def of(self, job: MalleableJob) -> Optional[Share]:
        """The share of a job. None if it has whole nodes."""
        asked = job.request.slot
        if asked is None:
            return None
        is_any = asked.gres == GPU and job.way.works_as_one
        gpus = self._type(job) if is_any else ""
        unit = job.request.unit
        width = self._width(job.partition, asked, gpus) // unit * unit
        return Share(asked, max(unit, width), gpus)

    def _type(self, job: MalleableJob) -> str:
        """The GPU of a gang that takes any, such as `gpu:a100`: the type that it has, or else the
        most frequent type of the machine. Its rates belong to that type."""
        counts = self._held(job) or self._by_partition.get(job.partition, Counter())
        return min(counts, key=lambda name: (-counts[name], name), default=GPU)

    def _held(self, job: MalleableJob) -> Counter[str]:
        counts: Counter[str] = Counter()
        for fragment in job.stirring:
            for name in fragment.nodes & self._named.keys() if fragment.size else ():
                counts.update(dict.fromkeys(_types_of(self._named[name]), fragment.size))
        return counts

    @cached_property
    def _named(self) -> dict[str, Node]:
        return {node.name: node for node in self._nodes}

    @cached_property
    def _by_partition(self) -> dict[str, Counter[str]]:
        """The number of GPUs of each type on nodes in service, by partition."""
        by_partition: dict[str, Counter[str]] = {}
        for node in self._nodes:
            types = _types_of(node) if node.state in IN_SERVICE else ()
            for partition in node.partitions if types else ():
                counts = by_partition.setdefault(partition, Counter())
                counts.update({name: node.total.count(name) for name in types})
        return by_partition

    def _width(self, partition: str, slot: Slot, gpus: str) -> int:
        key = (partition, slot, gpus)
        if key not in self._widths:
            fits = (
                slot.fit(node, node.total)
                for node in set(self._kinds)
                if partition in node.partitions and (not gpus or are_of(gpus, node))
            )
            self._widths[key] = max(fits, default=0)
        return self._widths[key]

    @cached_property
    def _kinds(self) -> Counter[Node]:
        """Count the nodes in service of each kind."""
        nodes = (n for n in self._nodes if n.state in IN_SERVICE)
        return Counter(
            Node("", NodeState.FREE, n.partitions, frozenset(), n.cpus, n.memory_mib, n.gres)
            for n in nodes
        )


def are_of(gpus: str, node: HasTotal) -> bool:
    """True if all GPUs of the node have this type. Of two types Slurm would choose."""
    return (_types_of(node) or [GPU]) == [gpus]


def _types_of(node: HasTotal) -> list[str]:
    return [name for name, count in node.total.gres if name.startswith(f"{GPU}:") and count]


def why_no_parts(ground: Ground, job: MalleableJob) -> Optional[Reason]:
    """Say why a job that counts slots gets no slots. None if it may have some, or counts nodes."""
    if job.request.slot is None:
        return None
    if not ground.settings.site.part_nodes:
        return no_parts("site.part_nodes is empty")
    missing = ground.seen.no_parts
    return no_parts(missing[0]) if missing else None


def no_parts(said: str) -> Reason:
    """Say that parts of nodes are not taken, for this reason."""
    return Reason(Why.NO_PARTS, Detail(said=said))
