"""GPUs, processors and memory of a node and of a worker.

Only whole GPUs count. A `gpu:a100` counts as a `gpu` too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

Gres = tuple[tuple[str, int], ...]
GPU = "gpu"


@dataclass(frozen=True)
class Resources:
    """Amounts of each resource. `gres` are counts by name, sorted."""

    cpus: int = 0
    memory_mib: int = 0
    gres: Gres = ()

    def count(self, name: str) -> int:
        return dict(self.gres).get(name, 0)

    @property
    def gpus(self) -> int:
        return self.count(GPU)

    @property
    def gpus_by_type(self) -> Gres:
        """Each GPU once: by its type, if that is known."""
        typed = tuple(row for row in self.gres if row[0].startswith(f"{GPU}:"))
        return typed or tuple(row for row in self.gres if row[0] == GPU)

    def __sub__(self, other: Resources) -> Resources:
        """The rest of these resources, never below zero."""
        gone = dict(other.gres)
        return Resources(
            max(0, self.cpus - other.cpus),
            max(0, self.memory_mib - other.memory_mib),
            tuple((name, max(0, n - gone.get(name, 0))) for name, n in self.gres),
        )

    def __add__(self, other: Resources) -> Resources:
        sums = dict(self.gres)
        for name, n in other.gres:
            sums[name] = sums.get(name, 0) + n
        gres = tuple(sorted(sums.items()))
        return Resources(self.cpus + other.cpus, self.memory_mib + other.memory_mib, gres)

    def fits(self, left: Resources) -> bool:
        """True if there is as much of each left."""
        is_there = all(left.count(name) >= n for name, n in self.gres)
        return is_there and self.cpus <= left.cpus and self.memory_mib <= left.memory_mib

    def part_of(self, total: Resources) -> float:
        """The largest share of a whole node that these are, over all resources."""
        pairs = [(self.cpus, total.cpus), (self.gpus, total.gpus)]
        pairs.append((self.memory_mib, total.memory_mib))
        return min(1.0, max((some / whole for some, whole in pairs if whole), default=1.0))

    def times(self, count: int) -> Resources:
        gres = tuple((name, n * count) for name, n in self.gres)
        return Resources(self.cpus * count, self.memory_mib * count, gres)


NO_RESOURCES = Resources()


class HasTotal(Protocol):
    """A node, or a kind of nodes."""

    @property
    def total(self) -> Resources:
        """All resources of such a node."""


@dataclass(frozen=True)
class Slot:
    """The resources of a worker. A zero stands for its share of the node.

    `gres` is `gpu`, `gpu:a100`, or empty for a worker without a GPU. The share of a worker is the
    node divided by its GPUs, or by its processors if the worker asks for no GPU.
    """

    gres: str = ""
    cpus: int = 0
    memory_mib: int = 0

    def __post_init__(self) -> None:
        """Refuse a slot that could be cut any number of times from any node."""
        if not self.gres and self.cpus < 1:
            raise ValueError("a slot is a GPU or a processor at least")

    def gpus(self, count: int) -> Gres:
        """That many GPUs of the slot's type, which also count as GPUs of any type."""
        names = sorted({GPU, self.gres}) if self.gres and count else ()
        return tuple((name, count) for name in names)

    def on(self, node: HasTotal) -> Resources:
        """A slot on this node, with the resources of its GPUs."""
        total = node.total
        parts, whole = (1, total.gpus) if self.gres else (self.cpus, total.cpus)
        whole = max(whole, 1)
        cpus = self.cpus or max(1, total.cpus * parts // whole)
        memory = self.memory_mib or total.memory_mib * parts // whole
        return Resources(cpus, memory, self.gpus(1))

    def fit(self, node: HasTotal, left: Resources) -> int:
        """The number of slots that fit into the resources `left` on the node."""
        one = self.on(node)
        counts = [left.cpus // one.cpus]
        if one.memory_mib:
            counts.append(left.memory_mib // one.memory_mib)
        if self.gres:
            counts += [left.count(self.gres), left.gpus]
        return max(0, min(counts))
