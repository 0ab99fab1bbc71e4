"""Tracks the parts of each node that malleable jobs have, that others have, and that are free.

When a part of a node is taken, Slurm puts the next small job of others elsewhere. An idle node is
then no longer whole for the job after that. So malleable jobs take no part of a shared node while a
node is idle that the others could use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from functools import cached_property

from slurm_hooks.model import (
    LIVE_STATES,
    Fragment,
    FragmentState,
    Hole,
    Node,
    NodeState,
    Resources,
)
from slurm_hooks.model.resources import NO_RESOURCES
from slurm_hooks.planning.ground import Ground


class Places:
    """The nodes of a ground, as far as jobs have parts of them."""

    def __init__(self, ground: Ground, holes: Mapping[str, Hole]) -> None:
        self._ground, self._holes = ground, holes
        self._nodes = {node.name: node for node in ground.seen.nodes}
        self._here: dict[str, list[Fragment]] = {}
        self._gangs: set[int] = set()
        self._shared: dict[str, bool] = {}
        for job in ground.seen.jobs:
            if job.way.works_as_one:
                self._gangs.add(job.job_id)
            for fragment in job.stirring:
                for name in fragment.nodes if fragment.state in LIVE_STATES else ():
                    self._here.setdefault(name, []).append(fragment)

    def left(self, name: str) -> Resources:
        """The free part of the node once all fragments on their way to it have started."""
        left = self._nodes[name].free
        for fragment in self._here.get(name, ()):
            if fragment.mark.request.slot is None:
                return NO_RESOURCES
            if fragment.state is not FragmentState.RUNNING:
                left -= fragment.asks
        return left

    def is_shared(self, name: str) -> bool:
        """Tell whether others have a processor or a GPU of it, as far as is known.

        While a fragment ends there, all of the node counts as used.
        """
        if name not in self._shared:
            self._shared[name] = self._has_others(name)
        return self._shared[name]

    def _has_others(self, name: str) -> bool:
        node, here = self._nodes[name], self._here.get(name, ())
        if node.state is NodeState.FREE or any(map(_hides_others, here)):
            return False
        ours = self._ours(name)
        return node.used.cpus > ours.cpus or node.used.gpus > ours.gpus

    def lane(self, name: str) -> str:
        """The partition for a part of this node.

        Slurm takes fragments of the lower tier first. Those are the fragments on shared nodes, so
        that nodes which only malleable jobs use stay whole.
        """
        site, node = self._ground.settings.site, self._nodes[name]
        whole = site.partitions[0]
        is_ours = whole in node.partitions and not self.is_shared(name)
        return whole if is_ours else site.part_nodes

    def is_whole(self, name: str) -> bool:
        """Tell whether a job of whole nodes has the node, or could have it."""
        here = self._here.get(name, ())
        has_whole = any(f.mark.request.slot is None for f in here)
        return has_whole or not (here or self._nodes[name].state is not NodeState.FREE)

    def left_without_ours(self, name: str) -> Resources:
        """The part of the node that would be free if all our running fragments had left."""
        node = self._nodes[name]
        return node.total - (node.used - self._ours(name))

    def _ours(self, name: str) -> Resources:
        """The part of the node that fragments of jobs that count slots have."""
        here = self._here.get(name, ())
        running = (f.asks for f in here if f.state is FragmentState.RUNNING)
        return sum(running, start=NO_RESOURCES)

    def count(self, name: str) -> int:
        """Count the fragments on the node or on their way."""
        return len(self._here.get(name, ()))

    def gangs(self, name: str) -> frozenset[int]:
        """The gangs that have a fragment there. Each has at most a single fragment on a node."""
        here = (f.id.job_id for f in self._here.get(name, ()))
        return frozenset(here) & self._gangs

    def idle_beside(self, name: str, given: Collection[str] = ()) -> str:
        """An idle node that the users of this shared node could have, and that we do not take.

        Empty if there is no such node.
        """
        node = self._nodes[name]
        rows = (self._idle.get(lane, ()) for lane in self._others(node))
        names = (n for row in rows for n in row if n not in given)
        return min((n for n in names if _serves(self._nodes[n], node)), default="")

    def is_in_the_way(self, fragment: Fragment, name: str) -> bool:
        """Tell whether the fragment scatters jobs of others.

        It does on a shared node while a node stays idle. It also does on a node that others have
        left, where Slurm would take it before fragments on shared nodes.
        """
        if self.is_shared(name):
            return self._left_idle(name)
        return fragment.lane == self._ground.settings.site.part_nodes != self.lane(name)

    def _left_idle(self, name: str) -> bool:
        """Tell whether such a node has been idle since the last tick or longer."""
        since, node = self._ground.now - self._ground.until_next, self._nodes[name]
        rows = (self._idle.get(lane, ()) for lane in self._others(node))
        idle = (self._nodes[n] for row in rows for n in row)
        return any(
            other.idle_since is not None and other.idle_since <= since and _serves(other, node)
            for other in idle
        )

    @cached_property
    def _idle(self) -> dict[str, list[str]]:
        """Idle nodes by the partitions of others."""
        by_lane: dict[str, list[str]] = {}
        for node in self._idle_nodes():
            for lane in self._others(node):
                by_lane.setdefault(lane, []).append(node.name)
        return by_lane

    def _idle_nodes(self) -> Iterator[Node]:
        """The nodes that others could have for as long as a hole has to be.

        A reservation or a planned start that comes earlier closes its nodes.
        """
        least = timedelta(seconds=self._ground.settings.lease.shortest_hole_s)
        for node in self._nodes.values():
            end = self._holes[node.name].end
            is_closed = end is not None and end < self._ground.now + least
            if node.state is NodeState.FREE and not is_closed and node.name not in self._here:
                yield node

    def _others(self, node: Node) -> frozenset[str]:
        return node.partitions.difference(self._ground.settings.site.partitions)


def _serves(idle: Node, node: Node) -> bool:
    """Tell whether jobs on the node could use the idle node: not without GPUs in place of a node
    with GPUs."""
    return bool(idle.total.gpus) or not node.total.gpus


def _hides_others(fragment: Fragment) -> bool:
    return fragment.mark.request.slot is None or fragment.state is FragmentState.ENDING
