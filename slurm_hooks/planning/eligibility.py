"""Which nodes are eligible for which jobs, and why the others are not.

Nodes that are alike (partitions, resources, hole) are judged once for jobs that are alike, so ten
thousand nodes and hundreds of jobs cost no more than there are kinds of either.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, Optional

from slurm_hooks.model import ON_NODES, MalleableJob, Needs, Node, NodeState
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.holes import MINUTE, lease_within
from slurm_hooks.planning.modes import NOT_A_CANARY_NODE
from slurm_hooks.planning.situation import Situation

DIED = "a fragment died there"
EXCLUDED = "the job excludes it (--exclude)"
UNFIT = "Slurm finds it unfit for the job"
HOLE_SHORT = "its hole is too short"
_IN_SERVICE = (NodeState.FREE, NodeState.BUSY)


@dataclass(frozen=True)
class _JobKind:
    partition: str
    needs: Needs
    shortest_hole: timedelta
    lease: timedelta
    gains_past: bool


class _NodeKind(NamedTuple):
    """What is judged of a node."""

    partitions: frozenset[str]
    features: frozenset[str]
    cpus: int
    memory_mib: int
    gres: tuple[tuple[str, int], ...]
    latest: Optional[datetime]
    until: Optional[datetime]


class Eligibility:
    """Which nodes are eligible, for the jobs that it was made with."""

    def __init__(self, ground: Ground, situations: Iterable[Situation]) -> None:
        ranked = sorted(situations, key=lambda situation: situation.job.job_id)
        jobs = [situation.job for situation in ranked]
        self._held = {name for job in jobs for name in _nodes_of(job)}
        self._ground = ground
        self._jobs = {s.job.job_id: _job_kind(s, ground) for s in ranked}
        self._asking = tuple(s.job.job_id for s in ranked if not s.upkeep.is_over)
        self._nodes = {name: _node_kind(node, ground) for name, node in ground.nodes.items()}
        self._counts = Counter(  # of nodes that no malleable job has
            self._nodes[name]
            for name, node in ground.nodes.items()
            if name not in self._held and self._is_open(node)
        )
        self._faults: dict[tuple[_NodeKind, _JobKind], tuple[str, str]] = {}
        self._fitting: dict[_NodeKind, tuple[int, ...]] = {}
        self._shunned: dict[int, dict[str, str]] = {}
        self._shunners: dict[str, set[int]] = {}
        self._excluders: dict[frozenset[str], set[int]] = {}
        for situation in ranked:
            job_id = situation.job.job_id
            self._shunned[job_id] = self._kept_from(situation)
            for name in self._shunned[job_id]:
                self._shunners.setdefault(name, set()).add(job_id)
            if situation.job.request.excluded:  # one set for many names, and often for many jobs
                self._excluders.setdefault(situation.job.request.excluded, set()).add(job_id)

    def jobs(self, name: str) -> tuple[int, ...]:
        """The ids of the jobs that are not over for which this node is eligible."""
        if name in self._ground.suspects or self._ground.mandate.bars_node(name):
            return ()
        kind = self._nodes[name]
        if kind not in self._fitting:
            fit = (j for j in self._asking if not any(self._judge(kind, self._jobs[j])))
            self._fitting[kind] = tuple(fit)
        fitting, shunners = self._fitting[kind], self._shunners.get(name, set())
        found = (jobs for names, jobs in self._excluders.items() if name in names)
        without = shunners.union(*found)
        return tuple(j for j in fitting if j not in without) if without else fitting

    def likeness(self, job_id: int) -> object:
        """Equal for jobs that have the same nodes, but for those that each keeps away from."""
        return self._jobs[job_id]

    def suits(self, name: str, kind: object) -> bool:
        """True if jobs of a likeness could use the node, were its hole long enough."""
        assert isinstance(kind, _JobKind)
        return not self._judge(self._nodes[name], kind)[0]

    def why_not_for_kind(self, name: str, kind: object) -> str:
        """Why a node is not eligible for any job of a likeness, whether free or not; empty if it is
        for those that do not keep away from it."""
        assert isinstance(kind, _JobKind)
        lack, hole = self._judge(self._nodes[name], kind)
        return lack or self._why_nobody(name) or hole

    def _why_nobody(self, name: str) -> str:
        """Why no malleable job uses the node for now; empty if some may."""
        barred = NOT_A_CANARY_NODE if self._ground.mandate.bars_node(name) else ""
        return barred or self._ground.suspects.get(name, "")

    def _is_open(self, node: Node) -> bool:
        return node.state in _IN_SERVICE and not self._ground.mandate.bars_node(node.name)

    def shunned(self, job: MalleableJob) -> Mapping[str, str]:
        """The nodes that a job keeps away from now, with the reasons."""
        return {**self._shunned[job.job_id], **dict.fromkeys(job.request.excluded or (), EXCLUDED)}

    def _judge(self, kind: _NodeKind, job: _JobKind) -> tuple[str, str]:
        """What nodes of a kind lack for jobs of a kind, and what is wrong with their holes."""
        if (kind, job) not in self._faults:
            fault = _hole_fault(kind, job, self._ground.now)
            self._faults[kind, job] = (_lack(kind, job), fault)
        return self._faults[kind, job]

    def _kept_from(self, situation: Situation) -> dict[str, str]:
        job, shunned = situation.job, situation.shunned
        found = dict.fromkeys(shunned.unfit, UNFIT)
        if shunned.died_once and self._has_others(situation):
            found.update(dict.fromkeys(shunned.died_once, DIED))
        if not shunned.died:
            return found
        kind, own = self._jobs[job.job_id], _nodes_of(job)
        fit = sum(n for traits, n in self._counts.items() if not self._judge(traits, kind)[0])
        bad = shunned.died.union(shunned.unfit, job.request.excluded or ())
        lost = sum(self._is_choice(name, kind) for name in bad - self._held)
        least = max(job.request.min_nodes, job.request.unit)
        if fit - lost + len(own - bad) >= least:
            found.update(dict.fromkeys(shunned.died, DIED))
        return found

    def _has_others(self, situation: Situation) -> bool:
        """True if the job can have all that it wants now without the nodes of single deaths."""
        shunned, excluded = situation.shunned, situation.job.request.excluded or frozenset()
        bad = shunned.died | shunned.died_once | shunned.unfit | excluded
        kind = self._jobs[situation.job.job_id]
        free = (n for n, node in self._ground.nodes.items() if node.state is NodeState.FREE)
        good = (n for n in free if n not in bad and not self.why_not_for_kind(n, kind))
        return len(list(good)) + situation.size >= situation.most

    def _is_choice(self, name: str, kind: _JobKind) -> bool:
        node = self._ground.nodes.get(name)
        return (
            node is not None and self._is_open(node) and not self._judge(self._nodes[name], kind)[0]
        )


def _nodes_of(job: MalleableJob) -> frozenset[str]:
    return frozenset(n for f in job.fragments if f.state in ON_NODES for n in f.nodes)


def _node_kind(node: Node, ground: Ground) -> _NodeKind:
    ends = ground.ends
    has = (node.partitions, node.features, node.cpus, node.memory_mib, node.gres)
    return _NodeKind(*has, ends.latest[node.name], ends.until[node.name])


def _job_kind(situation: Situation, ground: Ground) -> _JobKind:
    job, request = situation.job, situation.job.request
    lease, shortest = min(request.lease, ground.longest_lease), request.shortest_hole
    if situation.gains_past and shortest <= ground.shortest_hole:
        shortest = MINUTE  # the site's least is for those who must leave in time
    return _JobKind(job.partition, job.needs, shortest, lease, situation.gains_past)


def _lack(node: _NodeKind, job: _JobKind) -> str:
    if job.partition not in node.partitions:
        return f"not in partition {job.partition}, or the partition is down"
    if not has_features(node.features, job.needs.features):
        return f"without the features {job.needs.features}"
    has = dict(node.gres)
    short = [name for name, count in job.needs.gres if has.get(name, 0) < count]
    if short:
        return f"not enough {', '.join(short)}"
    if node.memory_mib < job.needs.memory_mib:
        return "not enough memory"
    return "not enough CPUs" if node.cpus < job.needs.cpus else ""


def _hole_fault(node: _NodeKind, job: _JobKind, now: datetime) -> str:
    last = node.until if job.gains_past else node.latest
    if last is not None and last - now < job.shortest_hole:
        return HOLE_SHORT
    return "" if lease_within(now, last, job.lease) else HOLE_SHORT


def has_features(features: frozenset[str], wanted: str) -> bool:
    """True if a node with these features can satisfy --constraint: names joined by & or by |.

    Anything else (counts, brackets, both at once) is for Slurm to judge.
    """
    if not wanted or not re.fullmatch(r"[\w.:-]+(?:([&|])[\w.:-]+(?:\1[\w.:-]+)*)?", wanted):
        return True
    names = re.split(r"[&|]", wanted)
    has = [name in features for name in names]
    return any(has) if "|" in wanted else all(has)
