"""The gates of holes: every reason why fragments may not be on a node, in a single table.

A row has two sides. One keeps jobs of a kind from starting on nodes of a kind. The other asks a
fragment that is there, or on its way, to leave. Starts, stays, the reasons of idle nodes,
`explain` and the active test ask the same rows. To add a reason, add a row here, a member of `Why`
and its sentence in `report/why.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, Optional

from slurm_hooks.model import (
    Fragment,
    FragmentState,
    Needs,
    NodeState,
    Resources,
    Slot,
    Verdict,
    Why,
)
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.holes import MINUTE, Hole, Holes, lease_within
from slurm_hooks.planning.slots import are_of
from slurm_hooks.planning.trouble import wrong_size

_SLACK = timedelta(seconds=60)  # from a release to its start. Time limits are whole minutes


@dataclass(frozen=True)
class JobKind:
    """The traits by which a job is judged. Jobs of a kind differ only in the nodes that they shun.

    Slurm takes no node from such a job for `exempt` after a start. A job without a `slot` has whole
    nodes, and its `unit` is 1. With `gpus`, all GPUs of a node have to be of that type.
    """

    partition: str
    needs: Needs
    shortest_hole: timedelta
    lease: timedelta
    gains_past: bool
    exempt: timedelta
    slot: Optional[Slot] = None
    unit: int = 1
    gpus: str = ""

    def fit(self, node: NodeKind, left: Resources, is_whole: bool) -> int:
        """The size that such a job can have in the `left` resources of a node, in whole units.

        Only if these are all of the node, the part `is_whole`.
        """
        if self.slot is None:
            return int(is_whole)
        return self.slot.fit(node, left) // self.unit * self.unit


@dataclass(frozen=True, eq=False)
class NodeKind:
    """The traits by which a node is judged. Equal nodes share a single object, for lookups.

    `suspects` are the jobs whose fragments died there, if no job should use the node for now. A
    node that `is_kept` is the headroom of others.
    """

    partitions: frozenset[str]
    features: frozenset[str]
    total: Resources
    latest: Optional[datetime]
    until: Optional[datetime]
    planned: Optional[datetime]
    suspects: tuple[int, ...] = ()
    is_kept: bool = False


class Entry(NamedTuple):
    """Jobs of a kind that would start on nodes of a kind."""

    node: NodeKind
    job: JobKind
    now: datetime


class Presence(NamedTuple):
    """A fragment in its `holes`, or on its way there."""

    ground: Ground
    nodes: Holes
    fragment: Fragment
    holes: list[Hole]

    @property
    def parts(self) -> list[Hole]:
        """Its holes if it has parts of nodes, and none otherwise."""
        return self.holes if self.fragment.mark.slots else []


class Gate(NamedTuple):
    """A row: why a node is closed for starts, and why a fragment there has to leave.

    What `lasts` is named first, also before the deaths of a job's own fragments.
    """

    start: Optional[Callable[[Entry], Optional[Verdict]]] = None
    stay: Optional[Callable[[Presence], Optional[Why]]] = None
    lasts: bool = True


def closed_by(entry: Entry) -> tuple[Optional[Verdict], Optional[Verdict]]:
    """The lasting and the passing reason why such jobs start on no such node. None: open."""
    asked = ((gate.lasts, gate.start(entry)) for gate in GATES if gate.start is not None)
    verdicts = [(lasts, verdict) for lasts, verdict in asked if verdict]
    lasting = next((verdict for lasts, verdict in verdicts if lasts), None)
    return lasting, next((verdict for lasts, verdict in verdicts if not lasts), None)


def why_to_leave(at: Presence) -> Optional[Why]:
    """Say why a fragment may not be where it is, or on its way there. None if it may."""
    for gate in GATES:
        if gate.stay is not None and (why := gate.stay(at)):
            return why
    return None


def why_no_part(node: NodeKind, job: JobKind, left: Resources) -> Verdict:
    """Name the resource that is short in the free part of a node. A full node is taken."""
    assert job.slot is not None
    gres, need = job.slot.gres, job.slot.on(node).times(job.unit)
    has = left.count(gres) if gres else left.cpus
    if not has:
        return Verdict(Why.TAKEN, NodeState.BUSY.value)
    if gres and has < job.unit:
        return Verdict(Why.PART_SMALL, "GPUs")
    return Verdict(Why.PART_SMALL, "memory" if left.memory_mib < need.memory_mib else "CPUs")


def has_features(features: frozenset[str], wanted: str) -> bool:
    """Tell whether a node with these features can satisfy --constraint: names joined by & or by |.

    Slurm judges everything else (counts, brackets, both at once).
    """
    if not wanted or not re.fullmatch(r"[\w.:-]+(?:([&|])[\w.:-]+(?:\1[\w.:-]+)*)?", wanted):
        return True
    names = re.split(r"[&|]", wanted)
    has = [name in features for name in names]
    return any(has) if "|" in wanted else all(has)


def is_ahead(ground: Ground, fragment: Fragment) -> bool:
    """Tell whether it started in the future, because slurmctld's clock was set back.

    Its lease is too long by as much. It cannot be cut, since Slurm (22.05) would make its time
    limit negative. The times of a fragment that does not run yet are Slurm's guess.
    """
    is_running = fragment.state is FragmentState.RUNNING
    if not is_running or fragment.start is None or fragment.end is None:
        return False
    longest = ground.now + ground.lane_of(fragment).longest_lease
    return fragment.end > longest + _SLACK and longest < fragment.start + MINUTE


def _leaves_service(at: Presence) -> Optional[Why]:
    for hole in at.holes:
        if hole.node.state is NodeState.LEAVING:
            return Why.NODE_LEAVES
    return None


def _is_astray(at: Presence) -> Optional[Why]:
    """An operator released it outside its lane, where no job can preempt it."""
    return Why.TO_LANE if at.ground.is_astray(at.fragment) else None


def _is_elsewhere(at: Entry) -> Optional[Verdict]:
    is_there = at.job.partition in at.node.partitions
    return None if is_there else Verdict(Why.PARTITION, at.job.partition)


def _has_left_lane(at: Presence) -> Optional[Why]:
    """Its node is no longer in its lane. A lane that is down has no nodes, and ends no fragment."""
    lane = at.fragment.lane
    for hole in at.holes:
        if lane not in hole.node.partitions:
            return Why.PARTITION if lane in at.ground.lanes_up else None
    return None


def _is_long(at: Presence) -> Optional[Why]:
    return Why.LEASE_LONG if is_ahead(at.ground, at.fragment) else None


def _lacks_features(at: Entry) -> Optional[Verdict]:
    wanted = at.job.needs.features
    return None if has_features(at.node.features, wanted) else Verdict(Why.FEATURES, wanted)


def _has_other_gpus(at: Entry) -> Optional[Verdict]:
    gpus = at.job.gpus
    return Verdict(Why.GRES, gpus) if gpus and not are_of(gpus, at.node) else None


def _is_small(at: Entry) -> Optional[Verdict]:
    """Name the resource of which a node has too little."""
    node, job, needs = at.node, at.job, at.job.needs
    if job.slot is not None:
        return None if job.fit(node, node.total, is_whole=True) else _why_no_slot(node, job.slot)
    short = [name for name, count in needs.gres if node.total.count(name) < count]
    if short:
        return Verdict(Why.GRES, ", ".join(short))
    if node.total.memory_mib < needs.memory_mib:
        return Verdict(Why.MEMORY)
    return Verdict(Why.CPUS) if node.total.cpus < needs.cpus else None


def _why_no_slot(node: NodeKind, slot: Slot) -> Verdict:
    if slot.gres and not node.total.count(slot.gres):
        return Verdict(Why.GRES, slot.gres)
    is_memory = node.total.memory_mib < slot.on(node).memory_mib
    return Verdict(Why.MEMORY if is_memory else Why.CPUS)


def _has_wrong_size(at: Presence) -> Optional[Why]:
    """Slurm gave it other resources than it asked for."""
    is_wrong = any(wrong_size(at.fragment, hole.node, at.ground.now) for hole in at.parts)
    return Why.WRONG_SIZE if is_wrong else None


def _scatters_others(at: Presence) -> Optional[Why]:
    """Its part of a shared node drives small jobs onto idle nodes. `manners` judges starts."""
    scatters = any(at.nodes.is_in_the_way(at.fragment, hole) for hole in at.parts)
    return Why.NODE_IDLE if scatters else None


def _is_suspect(at: Entry) -> Optional[Verdict]:
    jobs = at.node.suspects
    return Verdict(Why.SUSPECT, ", ".join(map(str, jobs))) if jobs else None


def _is_headroom(at: Entry) -> Optional[Verdict]:
    return Verdict(Why.KEPT_BACK) if at.node.is_kept else None


def _is_short(at: Entry) -> Optional[Verdict]:
    """The hole is too short for a start. `leases` judges stays, from the moment they have left."""
    node, job = at.node, at.job
    last = node.until if job.gains_past else node.latest
    is_short = last is not None and last - at.now < job.shortest_hole
    # The job with a planned start may start sooner, and needs the node then.
    is_needed = node.planned is not None and node.planned < at.now + job.exempt
    if is_short or is_needed or not lease_within(at.now, last, job.lease):
        return Verdict(Why.HOLE_SHORT)
    return None


GATES = (
    Gate(stay=_leaves_service),
    Gate(stay=_is_astray),
    Gate(_is_elsewhere, _has_left_lane),
    Gate(stay=_is_long),
    Gate(_lacks_features),
    Gate(_has_other_gpus),
    Gate(_is_small),
    Gate(stay=_has_wrong_size),
    Gate(stay=_scatters_others),
    Gate(_is_suspect, lasts=False),
    Gate(_is_short, lasts=False),
    Gate(_is_headroom, lasts=False),
)
