"""The type of GPU that a job's workers have.

All GPUs of a gang have the same type, since the slowest would set its pace. Its rates belong to
that type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cached_property

from slurm_hooks.model.cluster import IN_SERVICE, Node
from slurm_hooks.model.job import MalleableJob
from slurm_hooks.model.resources import GPU, HasTotal


class GpuTypes:
    """The types of GPUs on the nodes of a machine."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._nodes = {node.name: node for node in nodes}

    def of(self, job: MalleableJob) -> str:
        """The GPU of a slot of the job, such as `gpu:a100`, or empty if it has no GPU or the job
        counts nodes. A gang that takes any GPU gets the type that it has, or else the most frequent
        type of the machine."""
        asked = job.request.slot.gres if job.request.slot else ""
        if asked != GPU or not job.way.works_as_one:
            return asked
        counts = self._held(job) or self._by_partition.get(job.partition, Counter())
        return min(counts, key=lambda name: (-counts[name], name), default=GPU)

    def _held(self, job: MalleableJob) -> Counter[str]:
        counts: Counter[str] = Counter()
        for fragment in job.stirring:
            for name in fragment.nodes & self._nodes.keys() if fragment.size else ():
                counts.update(dict.fromkeys(_types_of(self._nodes[name]), fragment.size))
        return counts

    @cached_property
    def _by_partition(self) -> dict[str, Counter[str]]:
        """The number of GPUs of each type on nodes in service, by partition."""
        by_partition: dict[str, Counter[str]] = {}
        for node in self._nodes.values():
            types = _types_of(node) if node.state in IN_SERVICE else ()
            for partition in node.partitions if types else ():
                counts = by_partition.setdefault(partition, Counter())
                counts.update({name: node.total.count(name) for name in types})
        return by_partition


def are_of(gpus: str, node: HasTotal) -> bool:
    """True if all GPUs of the node have this type. Of two types Slurm would choose."""
    return (_types_of(node) or [GPU]) == [gpus]


def _types_of(node: HasTotal) -> list[str]:
    return [name for name, count in node.total.gres if name.startswith(f"{GPU}:") and count]
