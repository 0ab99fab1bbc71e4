"""Decides which nodes are eligible for which jobs, and says why the others are not.

Nodes with equal partitions, resources and holes are judged once for all jobs of a kind. So the cost
follows the number of kinds, even with ten thousand nodes and hundreds of jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from itertools import filterfalse
from typing import NamedTuple, Optional

from slurm_hooks.model import (
    LIVE_STATES,
    USABLE,
    Claim,
    ClaimKind,
    Fragment,
    MalleableJob,
    NodeState,
    Resources,
    Verdict,
    Why,
)
from slurm_hooks.model.cluster import IN_SERVICE
from slurm_hooks.model.resources import NO_RESOURCES
from slurm_hooks.planning.gates import Entry, JobKind, NodeKind, closed_by, why_no_part
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.holes import MINUTE
from slurm_hooks.planning.situation import Situation
from slurm_hooks.planning.survey import Survey

_TAKEN = {state: Verdict(Why.TAKEN, state.value) for state in NodeState}


class Eligibility:
    """Tells which nodes are eligible, for the jobs that it was made with.

    `taken` nodes have fragments on them or on their way. Nodes `in_service` are free, or some job
    uses them. A node counts as `per_node` units where jobs that count slots may use it, and each
    slot as 1. Where no job counts slots, a node is 1 unit. Jobs that are `late` have lost patience,
    so nodes are cut for them first.
    """

    def __init__(
        self, survey: Survey, situations: Iterable[Situation], late: Collection[int] = ()
    ) -> None:
        ranked = sorted(situations, key=lambda situation: situation.job.job_id)
        self.taken = frozenset(name for name, hole in survey.holes.items() if hole.here)
        self._survey = survey
        kinds: dict[JobKind, JobKind] = {}  # equal kinds share an object, for quick lookups
        made = ((s.job.job_id, _job_kind(survey.ground, s)) for s in ranked)
        self._jobs = {job_id: kinds.setdefault(kind, kind) for job_id, kind in made}
        self._asking = tuple(s.job.job_id for s in ranked if not s.upkeep.has_ended)
        self._nodes = _node_kinds(survey)
        waits = survey.mandate.waits
        self._usable = Verdict(waits[0].why) if waits else USABLE
        holes = survey.holes.items()
        self.in_service = {name for name, hole in holes if hole.node.state in IN_SERVICE}
        self._others = self.in_service - self.taken
        self._verdicts: dict[JobKind, Mapping[str, Verdict]] = {}
        self._room_by_kind: dict[JobKind, tuple[int, Mapping[str, int]]] = {}
        self._faults: dict[
            tuple[NodeKind, JobKind], tuple[Optional[Verdict], Optional[Verdict]]
        ] = {}
        self._fitting: dict[NodeKind, tuple[int, ...]] = {}
        self._wants = {s.job.job_id: max(0, s.most - s.size) for s in ranked}
        self.per_node = self._units_per_node()
        self._late = frozenset(late)
        self._counted: dict[object, Mapping[int, tuple[int, ...]]] = {}
        self._heirs: dict[object, tuple[int, ...]] = {}
        self._offered: Counter[tuple[int, ...]] = Counter()
        self._shunned: dict[int, dict[str, Verdict]] = {}
        self._shunners: dict[str, set[int]] = {}
        self._excluders: dict[frozenset[str], set[int]] = {}
        for situation in ranked:
            job_id = situation.job.job_id
            self._shunned[job_id] = self._kept_from(situation)
            for name in self._shunned[job_id]:
                self._shunners.setdefault(name, set()).add(job_id)
            if situation.job.request.excluded:  # a set of many names, often for many jobs
                self._excluders.setdefault(situation.job.request.excluded, set()).add(job_id)

    def verdict(self, name: str, kind: JobKind, shunned: Mapping[str, Verdict] = {}) -> Verdict:
        """Tell whether jobs of a kind could start a fragment on the node now.

        If not, name the obstacle that would last longest. The job keeps away from `shunned` nodes.
        """
        if not self._room_for(name, kind):
            return self._no_room(name, kind)
        lasting, passing = self._judge(self._nodes[name], kind)
        verdict = lasting or shunned.get(name) or passing or self._usable
        if verdict.why is not Why.HOLE_SHORT:
            return verdict
        return Verdict(verdict.why, _said(self._survey.holes[name].claim, kind.exempt))

    def verdicts(self, kind: JobKind) -> Mapping[str, Verdict]:
        """The verdicts on all nodes of the partition, equal for all jobs of a kind."""
        if kind not in self._verdicts:
            names = (n for n, node in self._nodes.items() if kind.partition in node.partitions)
            self._verdicts[kind] = {name: self.verdict(name, kind) for name in names}
        return self._verdicts[kind]

    def _no_room(self, name: str, kind: JobKind) -> Verdict:
        """Say why a node has no room for jobs of a kind, which may need only a part of it."""
        hole = self._survey.holes[name]
        if kind.slot is None or hole.node.state not in (NodeState.FREE, NodeState.SHARED):
            return _TAKEN[NodeState.BUSY if hole.here else hole.node.state]
        lasting, _ = self._judge(self._nodes[name], kind)
        return lasting or why_no_part(self._nodes[name], kind, hole.left)

    def _room_for(self, name: str, kind: JobKind) -> int:
        """The size that jobs of a kind could have on the free part of the node now."""
        hole = self._survey.holes[name]
        left = NO_RESOURCES if kind.slot is None else hole.left
        return kind.fit(self._nodes[name], left, hole.is_idle)

    def size(self, name: str, job_id: int) -> int:
        """The size that a job can have on a whole node: 1, or its slots there."""
        node = self._nodes[name]
        return self._jobs[job_id].fit(node, node.total, is_whole=True)

    def units(self, job: MalleableJob) -> int:
        """The units in a node or slot of the job."""
        return self.per_node if job.request.slot is None else 1

    def counts_gpus(self, jobs: Iterable[int]) -> bool:
        """Tell whether the slots of the jobs are GPUs."""
        slots = (self._jobs[job_id].slot for job_id in jobs)
        return any(slot is not None and slot.gres for slot in slots)

    def bidders(self, name: str) -> Bidders:
        """The jobs that could start on the free part of the node now."""
        hole = self._survey.holes[name]
        if self._is_whole_only:
            return Bidders(self.jobs(name), 1) if hole.is_idle else _NO_BIDDERS
        left = hole.node.total if hole.is_idle else hole.left
        return self._best(self._groups(name, left, hole.is_idle, hole.gangs))

    def successors(self, name: str, fragment: Fragment) -> Bidders:
        """The jobs that could take a fragment's place on the node if it left.

        They would cut the node as its job does, or have waited for too long.
        """
        if self._is_whole_only:
            return Bidders(self.jobs(name), 1)
        hole, is_whole = self._survey.holes[name], fragment.mark.request.slot is None
        if is_whole:
            units, has = self.per_node, hole.node.total
            after = has
        else:
            units, has, after = fragment.size, fragment.asks, hole.left_without_ours
            is_alone = not hole.is_shared and len(hole.here) == 1
            is_whole = is_alone and units >= self.per_node
        fit = self._groups(name, has, is_whole, frozenset()).get(units, ())
        groups = self._groups(name, after, is_whole, frozenset()).values()
        twins = next((jobs for jobs in groups if fragment.id.job_id in jobs), ())
        key = (self._nodes[name].total, fit, twins, self._slot_on(name, fragment.id.job_id))
        if key not in self._heirs:
            self._heirs[key] = self._heirs_of(name, *key[1:])
        there = hole.gangs - {fragment.id.job_id}
        heirs = self._heirs[key]
        return Bidders(tuple(j for j in heirs if j not in there) if there else heirs, units)

    def _heirs_of(
        self,
        name: str,
        fit: tuple[int, ...],
        twins: Collection[int],
        own: Optional[Resources],
    ) -> tuple[int, ...]:
        """The jobs that fit, and that are `twins` (cut the node equally) or have lost patience."""
        twins, is_uniform = frozenset(twins), self._is_uniform
        return tuple(
            j
            for j in fit
            if j in self._late or (j in twins and (is_uniform or self._slot_on(name, j) == own))
        )

    @cached_property
    def _is_uniform(self) -> bool:
        """Tell whether all jobs cut every node in service in the same way.

        Otherwise a node that a job gives up might be cut for another and back again, without end.
        """
        kinds = {self._nodes[name]: name for name in self.in_service}
        wholes = ((name, node.total) for node, name in kinds.items())
        return all(len(self._groups(n, total, True, frozenset())) < 2 for n, total in wholes)

    def _slot_on(self, name: str, job_id: int) -> Optional[Resources]:
        """A single slot of the job on this node. None if the job has whole nodes."""
        slot = self._jobs[job_id].slot
        return None if slot is None else slot.on(self._nodes[name])

    def all_units(self, names: Iterable[str], jobs: frozenset[int]) -> int:
        """Count the units that malleable jobs have or could have, however the nodes are cut.

        Of these `jobs`, the job that gets most units from a node decides.
        """
        if self._is_whole_only:
            return sum(1 for _ in names)
        return sum(self._most_units(name, jobs) for name in names)

    def _most_units(self, name: str, jobs: frozenset[int]) -> int:
        hole = self._survey.holes[name]
        left = hole.node.total if hole.is_whole else hole.left_without_ours
        groups = self._groups(name, left, hole.is_whole, frozenset())
        return max((n for n, ids in groups.items() if not jobs.isdisjoint(ids)), default=0)

    def _groups(
        self, name: str, left: Resources, is_whole: bool, without: frozenset[int]
    ) -> Mapping[int, tuple[int, ...]]:
        """Group the jobs by the units that they count in the free part of a node."""
        key = (self._nodes[name], left, is_whole, self.jobs(name), without)
        counted = self._counted.get(key)  # a single lookup: such a key takes long to hash
        if counted is None:
            counted = self._counted[key] = self._count(*key)
        return counted

    def _count(
        self,
        node: NodeKind,
        left: Resources,
        is_whole: bool,
        jobs: Iterable[int],
        without: frozenset[int],
    ) -> Mapping[int, tuple[int, ...]]:
        jobs_by_count: dict[int, list[int]] = {}
        counts: dict[int, int] = {}
        for job_id in jobs:
            kind = self._jobs[job_id]
            if id(kind) not in counts:
                each = self.per_node if kind.slot is None else 1
                counts[id(kind)] = each * kind.fit(node, left, is_whole)
            count = counts[id(kind)]
            if count and job_id not in without:
                jobs_by_count.setdefault(count, []).append(job_id)
        return {count: tuple(ids) for count, ids in jobs_by_count.items()}

    def _best(self, counted: Mapping[int, tuple[int, ...]]) -> Bidders:
        """The jobs whose wants exceed their offers by most."""
        if len(counted) < 2:
            return next((Bidders(jobs, count) for count, jobs in counted.items()), _NO_BIDDERS)
        wants = {n: self._wanted(jobs) - self._offered[jobs] for n, jobs in counted.items()}
        late = {n: not self._late.isdisjoint(jobs) for n, jobs in counted.items()}
        best = max(counted, key=lambda n: (late[n] and wants[n] > 0, wants[n], n))
        self._offered[counted[best]] += best
        return Bidders(counted[best], best)

    def _wanted(self, jobs: Iterable[int]) -> int:
        """Count the units that jobs want in addition to their present units."""
        slots = ((j, self._jobs[j].slot) for j in jobs)
        return sum(self._wants[j] * (self.per_node if slot is None else 1) for j, slot in slots)

    @cached_property
    def _is_whole_only(self) -> bool:
        return all(kind.slot is None for kind in self._jobs.values())

    def _units_per_node(self) -> int:
        """The number of slots that most nodes have, if jobs count slots."""
        if self._is_whole_only:
            return 1
        kinds = {kind for kind in self._jobs.values() if kind.slot is not None}
        counts: Counter[int] = Counter()
        for node, number in Counter(self._nodes[n] for n in self.in_service).items():
            fits = (k.fit(node, node.total, True) for k in kinds if k.partition in node.partitions)
            counts.update(dict.fromkeys(fits, number))
        del counts[0]
        return max(counts, key=lambda fit: (counts[fit], fit), default=1)

    def jobs(self, name: str) -> tuple[int, ...]:
        """The ids of the unfinished jobs that could use this node, whether it has room or not."""
        kind = self._nodes[name]
        if kind not in self._fitting:
            fit = (j for j in self._asking if not any(self._judge(kind, self._jobs[j])))
            self._fitting[kind] = tuple(fit)
        fitting, without = self._fitting[kind], self.shunners(name)
        return tuple(filterfalse(without.__contains__, fitting)) if without else fitting

    def shunners(self, name: str) -> set[int]:
        """The ids of the jobs that keep away from the node."""
        excluders = (jobs for names, jobs in self._excluders.items() if name in names)
        return self._shunners.get(name, set()).union(*excluders)

    def kind(self, job_id: int) -> JobKind:
        """The kind of a job."""
        return self._jobs[job_id]

    def missing(self, kind: JobKind) -> Optional[Resources]:
        """Return the resources that a fragment needs and that no node of its partition has.

        NO_RESOURCES: the partition has no node, or is not UP.
        """
        nodes = [node for node in set(self._nodes.values()) if kind.partition in node.partitions]
        if not nodes:
            return NO_RESOURCES
        if kind.slot is not None or any(self._judge(node, kind)[0] is None for node in nodes):
            return None
        needs, totals = kind.needs, [node.total for node in nodes]
        lacking = Resources(
            needs.cpus if all(t.cpus < needs.cpus for t in totals) else 0,
            needs.memory_mib if all(t.memory_mib < needs.memory_mib for t in totals) else 0,
            tuple((g, n) for g, n in needs.gres if all(t.count(g) < n for t in totals)),
        )
        return lacking if lacking.gpus_by_type or lacking.cpus or lacking.memory_mib else None

    def shunned(self, job: MalleableJob) -> Mapping[str, Verdict]:
        """The nodes that a job keeps away from now."""
        excluded = dict.fromkeys(job.request.excluded or (), Verdict(Why.EXCLUDED))
        return {**self._shunned[job.job_id], **excluded}

    def _judge(self, node: NodeKind, job: JobKind) -> tuple[Optional[Verdict], Optional[Verdict]]:
        """The lasting and the passing reason why such jobs start on no such node."""
        if (node, job) not in self._faults:
            self._faults[node, job] = closed_by(Entry(node, job, self._survey.ground.now))
        return self._faults[node, job]

    def _kept_from(self, situation: Situation) -> dict[str, Verdict]:
        job, shunned = situation.job, situation.shunned
        died = Verdict(Why.DIED)
        kept_from = dict.fromkeys(shunned.unfit, Verdict(Why.UNFIT))
        if shunned.died_once and self._has_others(situation):
            kept_from.update(dict.fromkeys(shunned.died_once, died))
        if not shunned.died:
            return kept_from
        kind, own = self._jobs[job.job_id], _nodes_of(job)
        fit = sum(n for traits, n in self._counts.items() if not self._judge(traits, kind)[0])
        bad = shunned.died.union(shunned.unfit, job.request.excluded or ())
        lost = sum(not self._judge(self._nodes[n], kind)[0] for n in bad & self._others)
        width = 1 if situation.share is None else situation.share.width
        least = -(-max(job.request.min_nodes, job.request.unit) // width)
        if fit - lost + len(own - bad) >= least:
            kept_from.update(dict.fromkeys(shunned.died, died))
        return kept_from

    @cached_property
    def _counts(self) -> Counter[NodeKind]:
        """The number of nodes without fragments, by kind. Only deaths need it."""
        return Counter(self._nodes[name] for name in self._others)

    def _has_others(self, situation: Situation) -> bool:
        """Tell whether the job can have all that it wants without the nodes of single deaths."""
        shunned, excluded = situation.shunned, situation.job.request.excluded or frozenset()
        bad = shunned.died | shunned.died_once | shunned.unfit | excluded
        kind = self._jobs[situation.job.job_id]
        total, rooms = self._rooms(kind)
        lost = sum(rooms.get(name, 0) for name in bad)
        return total - lost + situation.size >= situation.most

    def _rooms(self, kind: JobKind) -> tuple[int, Mapping[str, int]]:
        """The room for jobs of a kind, in all and on each node. Only deaths need it."""
        if kind not in self._room_by_kind:
            verdicts = self.verdicts(kind).items()
            rooms = {n: self._room_for(n, kind) for n, v in verdicts if v == self._usable}
            self._room_by_kind[kind] = sum(rooms.values()), rooms
        return self._room_by_kind[kind]


class Bidders(NamedTuple):
    """Jobs that could use a part of a node, and how many units it is to each of them."""

    jobs: tuple[int, ...]
    units: int


_NO_BIDDERS = Bidders((), 0)


def _nodes_of(job: MalleableJob) -> frozenset[str]:
    return frozenset(n for f in job.stirring if f.state in LIVE_STATES for n in f.nodes)


def _node_kinds(survey: Survey) -> dict[str, NodeKind]:
    kinds: dict[object, NodeKind] = {}
    kind_of = {}
    for name, hole in survey.holes.items():
        node, claim = hole.node, hole.claim
        planned = claim.start if claim.kind is ClaimKind.PLANNED else None
        has = (node.partitions, node.features, node.total)
        is_kept = name in survey.holes.headroom
        why = (survey.suspects.get(name, ()), is_kept)
        key = (*has, hole.latest, hole.until, planned, *why)
        kind_of[name] = kinds.get(key) or kinds.setdefault(key, NodeKind(*key))
    return kind_of


def _job_kind(ground: Ground, situation: Situation) -> JobKind:
    job, request = situation.job, situation.job.request
    lane = ground.lane(job)
    lease, shortest = lane.lease_of(request), lane.shortest_hole_of(request)
    if situation.gains_past and request.shortest_hole <= ground.shortest_hole:
        shortest = MINUTE  # the site's least is for jobs that must leave in time
    past, exempt = situation.gains_past, lane.terms.exempt
    kind = JobKind(job.partition, job.needs, shortest, lease, past, exempt)
    share = situation.share
    if share is None:
        return kind
    return replace(kind, slot=share.slot, unit=request.unit, gpus=share.gpus)


def _said(claim: Claim, exempt: timedelta) -> str:
    if claim.kind is ClaimKind.NOBODY:
        return ""
    exemption = f", and Slurm preempts no fragment in its first {exempt}" if exempt else ""
    return f"{claim.kind.value}: {claim.by}" + exemption * (claim.kind is ClaimKind.PLANNED)
