"""Counts unused GPUs and processors: on idle nodes, on partly used nodes, and stranded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass

from slurm_hooks.model.cluster import IN_SERVICE, Node, NodeState, Snapshot
from slurm_hooks.model.decision import Intent, Verb
from slurm_hooks.model.resources import GPU, NO_RESOURCES, Resources
from slurm_hooks.model.state import LIVE_STATES, FragmentState

CPU = "cpu"


@dataclass(frozen=True)
class Unused:
    """An unused amount of a resource: a number, or a number times seconds.

    `idle` is on idle nodes, `part` on partly used nodes. A `stranded` amount has no processor or no
    memory left beside it on its node, so no job can use it.
    """

    idle: float = 0
    part: float = 0
    stranded: float = 0

    @property
    def total(self) -> float:
        return self.idle + self.part + self.stranded

    def __add__(self, other: Unused) -> Unused:
        return Unused(
            self.idle + other.idle, self.part + other.part, self.stranded + other.stranded
        )

    def times(self, factor: float) -> Unused:
        return Unused(self.idle * factor, self.part * factor, self.stranded * factor)


NOT_UNUSED = Unused()


def unused_of(
    seen: Snapshot, partitions: Set[str], actions: Iterable[Intent] = ()
) -> dict[str, Unused]:
    """The unused amount of each resource, `gpu` if there are GPUs and `cpu`, on nodes in service of
    these partitions. Fragments use their nodes from their release on, also if `actions` release
    them."""
    whole, parts = _given(seen, actions)
    amounts: dict[str, Unused] = {}
    for node in seen.nodes:
        if node.state in IN_SERVICE and node.partitions & partitions:
            given = node.total if node.name in whole else parts.get(node.name, NO_RESOURCES)
            for name, unused in _on(node, given):
                amounts[name] = amounts.get(name, NOT_UNUSED) + unused
    return dict(sorted(amounts.items(), reverse=True))


def _given(seen: Snapshot, actions: Iterable[Intent]) -> tuple[set[str], dict[str, Resources]]:
    """The nodes that fragments have as a whole, and the parts of nodes that are already given away.
    Slurm itself counts the part of a running fragment as used."""
    fragments = [f for job in seen.jobs for f in job.fragments if f.state in LIVE_STATES]
    coming = [(f.nodes, f.asks) for f in fragments if f.state is FragmentState.PENDING]
    grows = [i for i in actions if i.verb is Verb.GROW]
    whole = {n for f in fragments if f.mark.request.slot is None for n in f.nodes}
    whole |= {n for i in grows if i.asks == NO_RESOURCES for n in i.nodes}
    parts: dict[str, Resources] = {}
    for nodes, asks in (*coming, *((i.nodes, i.asks) for i in grows)):
        for name in nodes:
            parts[name] = parts.get(name, NO_RESOURCES) + asks
    return whole, parts


def _on(node: Node, given: Resources) -> Iterator[tuple[str, Unused]]:
    """The unused amounts of a node, less the parts given away. No job starts on a BUSY node. Its
    rest is stranded if its processors or its memory are used up, and otherwise unknown."""
    free = node.total - node.used - given
    for name in (CPU, GPU) if node.total.gpus else (CPU,):
        yield name, _placed(node, amount(name, free), usable(name, free, node.total))


def amount(name: str, of: Resources) -> int:
    return of.gpus if name == GPU else of.cpus


def usable(name: str, free: Resources, total: Resources) -> int:
    """How many of the GPUs or CPUs that are free on a node have a CPU and memory beside them. The
    others are stranded."""
    if total.memory_mib and not free.memory_mib:
        return 0
    return min(free.gpus, free.cpus) if name == GPU else free.cpus


def _placed(node: Node, left: int, usable: int) -> Unused:
    if node.state is NodeState.FREE:
        return Unused(idle=left)
    return Unused(part=usable if node.state is NodeState.SHARED else 0, stranded=left - usable)
