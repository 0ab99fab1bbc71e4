"""Checks a plan against a fresh reading of the cluster, right before each half of its writes.

Intents that no longer fit are dropped, each with its reason. The next tick plans again. Leaving is
always safe, but a fragment is signalled only if Slurm accepted its mark. Otherwise it would leave
without a record of the request. A fragment that its user has cancelled since is not put back, since
Slurm would revive it. A fragment that an operator has held since is not released, and keeps that
hold. Once malleable jobs are switched off, or the site wants no growth, no fragment is released.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from typing import Optional

from slurm_hooks.model import (
    ENDED_STATES,
    WAITING_STATES,
    Detail,
    Fragment,
    FragmentId,
    FragmentState,
    Intent,
    MalleableJob,
    NodeState,
    Plan,
    Reason,
    Resources,
    Snapshot,
    Verb,
    Why,
    by_job,
    may_train,
)
from slurm_hooks.model.resources import NO_RESOURCES
from slurm_hooks.planning.cancels import CancelScope, cancel_scope
from slurm_hooks.planning.dropping import Fault, stayed, without
from slurm_hooks.planning.gates import Presence, why_to_leave
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.holes import Hole, Holes
from slurm_hooks.planning.interruptions import interruptions_of
from slurm_hooks.planning.modes import mandate_of, why_no_growth, why_off
from slurm_hooks.planning.packing import polite
from slurm_hooks.planning.slots import no_parts
from slurm_hooks.settings.values import Settings

_Rule = Callable[[Intent], Optional[Fault]]


class Half(enum.Enum):
    """A half of a tick's writes. Each is written after its own check.

    The first has leases, and marks except marks of fragments that start or are put back. The second
    has holds, fragments to put back, cancels, releases, and signals last.
    """

    FIRST = enum.auto()
    SECOND = enum.auto()

    def of(self, intents: Iterable[Intent]) -> tuple[Intent, ...]:
        """The parts of the intents that this half writes."""
        part = _first_part if self is Half.FIRST else _second_part
        return tuple(each for i in intents if (each := part(i)) is not None)

    def needs_check(self, intents: Iterable[Intent]) -> bool:
        """Tell whether the cluster has to be read again before this half is written.

        The first check is about nodes that the plan gives for longer, the second about runs.
        """
        return any(map(_gives if self is Half.FIRST else _needs_run, intents))


def check(plan: Plan, half: Half, seen: Snapshot, fresh: Snapshot, settings: Settings) -> Plan:
    """Drop from the plan each intent that the `fresh` reading contradicts.

    `seen` is the reading before. The first half is checked against nodes, reservations and clock,
    which have been read again. The second is checked against the jobs, their planned starts and the
    switches. A job whose growth would end at a size that it may not have does not grow.
    """
    is_first = half is Half.FIRST
    is_room_new = is_first or fresh.planned != seen.planned
    before, room = _by_id(seen.jobs), _Room(plan, seen, fresh, settings) if is_room_new else None
    now = before if is_first else _by_id(fresh.jobs)
    rules: list[_Rule] = [] if is_first else [_Runs(now, fresh).fault]
    rules.append(_Switches(fresh).fault)
    if room is not None:
        rules.append(room.fault if is_first else room.growth_fault)
    faults = {i.fragment: fault for i in plan.actions if (fault := _first_fault(i, rules))}
    plan = without(plan, _with_minimums(plan.actions, faults, before, now))
    return plan if room is None else polite(plan, room.holes)


def _first_fault(intent: Intent, rules: Iterable[_Rule]) -> Optional[Fault]:
    return next(filter(None, (rule(intent) for rule in rules)), None)


def _gives(intent: Intent) -> bool:
    """Tell whether an intent gives a node for longer. Leaving is always safe."""
    return intent.verb is Verb.GROW or intent.end is not None


def _needs_run(intent: Intent) -> bool:
    """Tell whether an intent needs its fragment to be as it was. A cancel is always written."""
    changes = intent.is_held or intent.is_ended or intent.is_moved
    return changes or intent.verb not in (Verb.STAY, Verb.CANCEL)


def _first_part(intent: Intent) -> Optional[Intent]:
    mark = None if intent.has_late_mark else intent.mark
    if mark is None and intent.end is None:
        return None
    return Intent(intent.fragment, intent.cause, mark=mark, end=intent.end, summary=intent.summary)


def _second_part(intent: Intent) -> Optional[Intent]:
    if not (intent.is_held or intent.is_moved or intent.verb is not Verb.STAY):
        return None
    return replace(intent, end=None, mark=intent.mark if intent.has_late_mark else None)


def _with_minimums(
    intents: Iterable[Intent],
    faults: Mapping[FragmentId, Fault],
    before: Mapping[int, MalleableJob],
    now: Mapping[int, MalleableJob],
) -> dict[FragmentId, Fault]:
    """The faults in these intents. All growth of a job is a fault if the job could not train with
    what is left of the growth, and of the job itself."""
    every = dict(faults)
    for job_id, mine in by_job(intents).items():
        grows = [i for i in mine if i.verb is Verb.GROW]
        if not grows or job_id not in now:
            continue
        lost = sorted(name for i in grows if i.fragment in faults for name in i.nodes)
        is_new = now[job_id] is not before[job_id]
        could = bool(lost) or (is_new and may_train(before[job_id], mine))
        if could and not may_train(now[job_id], (i for i in mine if i.fragment not in faults)):
            why = Fault(Reason(Why.BELOW_MIN, Detail(nodes=tuple(lost)) if lost else Detail()))
            every = {**dict.fromkeys((i.fragment for i in grows), why), **every}
    return every


def _by_id(jobs: Iterable[MalleableJob]) -> dict[int, MalleableJob]:
    return {job.job_id: job for job in jobs}


class _Switches:
    """The switches of the site, as they are now."""

    def __init__(self, now: Snapshot) -> None:
        self._why = why_off(now.off) if now.off is not None else None
        if self._why is None and now.no_growth is not None:
            self._why = why_no_growth(now.no_growth, now.now)

    def fault(self, intent: Intent) -> Optional[Fault]:
        """The fault of a start that the switches forbid."""
        is_start = intent.verb in (Verb.GROW, Verb.QUEUE)
        return Fault(self._why, self._why.why) if self._why is not None and is_start else None


class _Runs:
    """The runs of fragments, as they were just read."""

    def __init__(self, jobs: Mapping[int, MalleableJob], now: Snapshot) -> None:
        self._fragments = {f.id: f for job in jobs.values() for f in job.fragments}
        self._cancels = {job_id: cancel_scope(job, now.slurm) for job_id, job in jobs.items()}

    def fault(self, intent: Intent) -> Optional[Fault]:
        """The fault of an intent whose fragment has changed. The rest of the intent goes on."""
        if not _needs_run(intent):
            return None
        fragment = self._fragments.get(intent.fragment)
        if fragment is None:
            left = stayed(replace(intent, is_held=False))
            return Fault(Reason(Why.GONE), Why.RESTING, left=left)
        is_held = intent.is_held and not _is_held_by_operator(intent, fragment)
        of_run = _fault_of_run(intent, fragment, self._cancels[fragment.id.job_id])
        if of_run is not None:
            return replace(of_run, left=stayed(replace(intent, is_held=is_held)))
        if is_held is intent.is_held or intent.is_ended:
            return None
        return Fault(Reason(Why.HELD), left=replace(intent, is_held=False))


def _is_held_by_operator(intent: Intent, fragment: Fragment) -> bool:
    is_slurm_s = intent.cause in (Why.DIED, Why.NOTED)  # Slurm itself set JobHeldAdmin
    return fragment.is_on_hold and not fragment.priority and not is_slurm_s


def _fault_of_run(intent: Intent, fragment: Fragment, cancel: CancelScope) -> Optional[Fault]:
    if intent.verb in (Verb.GROW, Verb.QUEUE) or intent.is_moved:
        is_ours = fragment.state in WAITING_STATES and not fragment.is_on_hold
        is_still = is_ours and not fragment.mark.is_on_hold
        return None if is_still else Fault(Reason(Why.NOT_FREE_TO_START), Why.RESTING)
    if intent.verb is Verb.NOTICE:
        if fragment.state is not FragmentState.RUNNING:
            return Fault(Reason(Why.NOT_RUNNING))
        kept = fragment.size
        return None if fragment.is_leaving else Fault(Reason(Why.REFUSED), kept=kept)
    if intent.verb is not Verb.PUT_BACK and not intent.is_ended:
        return None
    is_cancelled = cancel in (CancelScope.WHOLE, CancelScope.UNCLEAR)
    if fragment.state is FragmentState.CANCELLED or is_cancelled:
        return Fault(Reason(Why.CANCELLED))
    expected = ENDED_STATES if intent.is_ended else {FragmentState.RUNNING}
    changed = Reason(Why.CHANGED, Detail(state=fragment.state))
    return None if fragment.state in expected else Fault(changed)


class _Room:
    """The nodes as they were just read, and the jobs that the plan is for."""

    def __init__(self, plan: Plan, seen: Snapshot, fresh: Snapshot, settings: Settings) -> None:
        self._ground = ground = Ground(fresh, settings)
        self._seen, self._now, self._waits = fresh, fresh.now, mandate_of(ground).waits
        self.holes = Holes(Ground(replace(fresh, jobs=seen.jobs), settings))
        self._before = {node.name: node for node in seen.nodes}
        self._interruptions = interruptions_of(ground)
        self._jobs = _by_id(seen.jobs)
        self._fragments = {f.id: f for job in seen.jobs for f in job.fragments}
        self._stay: dict[int, frozenset[FragmentId]] = {}
        self._asked: dict[str, Resources] = {}  # the sum of the parts that are to start on each
        for intent in plan.actions:
            for name in intent.nodes if intent.asks != NO_RESOURCES else ():
                self._asked[name] = self._asked.get(name, NO_RESOURCES) + intent.asks

    def fault(self, intent: Intent) -> Optional[Fault]:
        """The fault of a start, or of a lease that is to last longer.

        Slurm checks the start of a fragment against reservations, but not a renewal.
        """
        if intent.verb is Verb.GROW or intent.end is None:
            return self.growth_fault(intent)
        fault = self._renewal_fault(intent.fragment, intent.end)
        return replace(fault, left=replace(intent, end=None)) if fault else None

    def growth_fault(self, grow: Intent) -> Optional[Fault]:
        """The fault of a start, None for any other intent."""
        if grow.verb is not Verb.GROW:
            return None
        if self._waits:
            return Fault(self._waits[0], self._waits[0].why)
        if self._seen.no_parts and grow.asks != NO_RESOURCES:
            return Fault(no_parts(self._seen.no_parts[0]))
        lost = [n for n in sorted(grow.nodes) if not self._has_room(grow, n)]
        if lost:
            return Fault(Reason(Why.TAKEN, Detail(nodes=tuple(lost))), lost=frozenset(lost))
        job = self._jobs.get(grow.fragment.job_id)
        may_gain = job is not None and self._interruptions.may_gain(job)
        last = attrgetter("until" if may_gain else "latest")
        return self._overrun(grow.nodes, self._now + grow.limit, last)

    def _has_room(self, grow: Intent, name: str) -> bool:
        hole = self.holes.get(name)
        if hole is None or self._is_shut(grow, hole):
            return False
        if grow.asks == NO_RESOURCES:
            return hole.node.state is NodeState.FREE
        return self._asked[name].fits(hole.left)

    def _is_shut(self, grow: Intent, hole: Hole) -> bool:
        """Ask the gates whether the fragment could stay there, if the node has changed."""
        fragment = self._fragments.get(grow.fragment)
        if fragment is None or hole.node == self._before.get(hole.node.name):
            return False
        whole = replace(fragment.mark, slots=0)  # `polite` judges parts, with the whole plan
        there = replace(fragment, lane=grow.lane or fragment.lane, mark=whole)
        return bool(why_to_leave(Presence(self._ground, self.holes, there, [hole])))

    def _renewal_fault(self, name: FragmentId, end: datetime) -> Optional[Fault]:
        fragment = self._fragments.get(name)
        if fragment is None or fragment.start is None:
            return Fault(Reason(Why.GONE, Detail(fragments=(name,))))
        if fragment.end is None or end <= fragment.end:
            return None  # a shorter lease is always safe
        is_past = name in self._staying(name.job_id)
        last = attrgetter("wall" if is_past else "latest")
        return self._overrun(fragment.nodes, end, last)

    def _staying(self, job_id: int) -> frozenset[FragmentId]:
        """The fragments of a job that stay past planned starts, computed once."""
        if job_id not in self._stay:
            self._stay[job_id] = self._interruptions.staying(self._jobs[job_id], self.holes)
        return self._stay[job_id]

    def _overrun(
        self, nodes: frozenset[str], end: datetime, last: Callable[[Hole], Optional[datetime]]
    ) -> Optional[Fault]:
        for name in sorted(nodes):
            if name not in self.holes:
                return Fault(Reason(Why.GONE, Detail(nodes=(name,))), lost=frozenset({name}))
            latest = last(self.holes[name])
            if latest is not None and end > latest:
                detail = Detail(nodes=(name,), by=self.holes[name].claim.by)
                return Fault(Reason(Why.HOLE_SHORT, detail), Why.HOLE_SHORT)
        return None
