"""Counts what no job uses: GPUs and processors of idle nodes, of partly used ones, and stranded."""

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
    """An amount of one resource that no job uses: a number, or a number times seconds.

    `idle` is on idle nodes, `part` on partly used ones. What is `stranded` has no processor or no
    memory left beside it on its node, so no job can use it.
    """

    idle: float = 0
    part: float = 0
    stranded: float = 0

    @property
    def total(self) -> float:
        """All three together."""
        return self.idle + self.part + self.stranded

    def __add__(self, other: Unused) -> Unused:
        """Both together."""
        return Unused(
            self.idle + other.idle, self.part + other.part, self.stranded + other.stranded
        )

    def times(self, factor: float) -> Unused:
        """So many times these."""
        return Unused(self.idle * factor, self.part * factor, self.stranded * factor)


NOT_UNUSED = Unused()


def unused_of(
    seen: Snapshot, partitions: Set[str], actions: Iterable[Intent] = ()
) -> dict[str, Unused]:
    """What no job uses of the nodes of these partitions that are in service, by resource: `gpu` if
    one of the nodes has any, and `cpu`. Fragments use their nodes from their release on, and so do
    those that `actions` release."""
    whole, parts = _given(seen, actions)
    found: dict[str, Unused] = {}
    for node in seen.nodes:
        if node.state in IN_SERVICE and node.partitions & partitions:
            given = node.total if node.name in whole else parts.get(node.name, NO_RESOURCES)
            for name, unused in _on(node, given):
                found[name] = found.get(name, NOT_UNUSED) + unused
    return dict(sorted(found.items(), reverse=True))


def _given(seen: Snapshot, actions: Iterable[Intent]) -> tuple[set[str], dict[str, Resources]]:
    """Nodes that fragments have as a whole, and what others are to get of a node. What a fragment
    has that runs in a part of a node, Slurm counts as used."""
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
    """Of a node, less what is given away. Nothing starts on one that is BUSY, so all that is left
    there is stranded if its processors or its memory are gone, and else not known to be there."""
    free = node.total - node.used - given
    for name in (CPU, GPU) if node.total.gpus else (CPU,):
        yield name, _placed(node, amount(name, free), usable(name, free, node.total))


def amount(name: str, of: Resources) -> int:
    """How many GPUs or CPUs these are."""
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
