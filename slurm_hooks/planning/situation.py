"""Derives from a job's state which fragments stay, which must leave, and which may start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import NamedTuple, Optional

from slurm_hooks.model import (
    WAITING_STATES,
    AvoidedNode,
    Detail,
    Fragment,
    FragmentId,
    FragmentState,
    Intent,
    MalleableJob,
    Mark,
    Reason,
    Verb,
    Why,
    Wish,
    one_each,
)
from slurm_hooks.planning.core import to_queue
from slurm_hooks.planning.failures import Shunned, shunned
from slurm_hooks.planning.gates import Presence, why_to_leave
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.leases import Stay, may_stay, notice
from slurm_hooks.planning.lifecycle import Upkeep, upkeep
from slurm_hooks.planning.limits import why_waiting
from slurm_hooks.planning.slots import Share, why_no_parts
from slurm_hooks.planning.survey import Survey
from slurm_hooks.planning.trouble import Waits, is_within, waits_of


class Cap(NamedTuple):
    """The largest size that a limit of the lane's QOS leaves to a job, and the reason to show."""

    size: int
    reason: Reason


@dataclass(frozen=True)
class Situation:
    """A job in this tick as Slurm has it, and the marks that its upkeep will write.

    `marked` is the job with those marks, for decisions that depend on them. `stays` covers the
    running fragments. A fragment that leaves makes room for the job `gives_way_to`, if that is
    known. `past` fragments stay beyond planned starts. A job that `gains_past` takes nodes that
    others want soon.

    `waits` says with which changes it waits. The fragments of a job that `is_apart` do not meet.
    Several would each train alone, so the job keeps a single fragment. `barred` says why it may
    have no nodes for now.

    After a change, `redone_s` seconds of its work are done again. `wish` is the number of nodes
    that a pool wants. A job of whole nodes has no `share`. A limit of Slurm's on the jobs of its
    user or account may `cap` it.
    """

    job: MalleableJob
    upkeep: Upkeep
    stays: dict[FragmentId, Stay]
    marked: MalleableJob
    marks: Mapping[FragmentId, Mark]
    shunned: Shunned
    waits: Waits
    gives_way_to: str = ""
    is_apart: bool = False
    barred: Optional[Reason] = None
    past: frozenset[FragmentId] = frozenset()
    gains_past: bool = False
    redone_s: float = 0.0
    wish: Optional[Wish] = None
    share: Optional[Share] = None
    cap: Optional[Cap] = None

    def mark_of(self, fragment: Fragment) -> Mark:
        """The fragment's mark after the upkeep, without nodes that are no longer unfit."""
        mark = self.marks.get(fragment.id, fragment.mark)
        unfit = tuple(a for a in mark.unfit if a.node in self.shunned.unfit)
        return mark if unfit == mark.unfit else replace(mark, unfit=unfit)

    def notice(self, fragment: Fragment, cause: Why, now: datetime) -> Intent:
        """Ask a fragment to leave."""
        mark = self.mark_of(fragment)
        if self.gives_way_to:
            mark = replace(mark, gave_way_to=self.gives_way_to)
        if cause is Why.WRONG_SIZE:  # or it would get the same nodes again at once
            unfit = (AvoidedNode(name, now) for name in sorted(fragment.nodes))
            mark = replace(mark, unfit=(*mark.unfit, *unfit))
        return notice(fragment.id, mark, cause, now)

    def departures(self, now: datetime) -> tuple[Intent, ...]:
        """Return the intents for fragments that must leave in any case.

        Running fragments of a job that is over are cancelled without notice.
        """
        leaving = ((f, cause) for f in self.job.active if (cause := self.stays[f.id].leaves))
        if self.upkeep.has_ended:
            return tuple(Intent(f.id, cause, Verb.CANCEL) for f, cause in leaving)
        return tuple(self.notice(f, cause, now) for f, cause in leaving)

    @cached_property
    def staying(self) -> tuple[Fragment, ...]:
        """Fragments that train, or are about to, and may go on."""
        stays = (f for f in self.job.active if self.stays[f.id].leaves is None)
        return (*stays, *self.upkeep.arriving)

    @cached_property
    def size(self) -> int:
        """The size of the staying fragments together."""
        return sum(f.size for f in self.staying)

    @cached_property
    def lent(self) -> tuple[Fragment, ...]:
        """The staying fragments that are in holes."""
        is_whole = not self.job.request.core
        return self.staying if is_whole else tuple(f for f in self.staying if not f.is_core)

    @cached_property
    def core(self) -> int:
        """The size of the running core. It is in no hole, and the allocator has no say."""
        return self.size - sum(f.size for f in self.lent)

    @cached_property
    def sizes(self) -> Optional[frozenset[int]]:
        """The only sizes that it is given now. None: all sizes from its least to its most."""
        request = self.job.request
        is_free = self.is_apart or not request.way.needs_min
        return None if is_free else request.allowed or None

    def settled(self, size: int) -> int:
        """The largest size that it may have, up to this size. 0 if no size is small enough."""
        if self.sizes is None:
            return size if size >= self.least else 0
        return max((n for n in self.sizes if self.least <= n <= size), default=0)

    @property
    def is_off_size(self) -> bool:
        """Tell whether it runs at a size that it may not have."""
        return self.settled(self.size) != self.size

    @cached_property
    def most(self) -> int:
        """The largest size that it can use now, in whole units."""
        request = self.job.request
        wanted = request.max_nodes if self.wish is None else self.wish.nodes
        wanted = request.unit if self.is_apart else wanted
        wanted = wanted if self.cap is None else min(wanted, self.cap.size)
        most = wanted // request.unit * request.unit
        return max((n for n in self.sizes or () if n <= most), default=most)

    @cached_property
    def least(self) -> int:
        """The smallest size at which it may train.

        Workers of a pool need no others, so a pool's minimum holds only for a start from 0. No
        worker leaves because others have left, and a wish for less wins.
        """
        request = self.job.request
        if request.way.needs_min:
            least = request.unit if self.is_apart else request.min_nodes
            return min((n for n in self.sizes or () if n >= least), default=least)
        return max(request.unit, min(request.min_nodes, self.size or self.reachable, self.most))

    @property
    def fewest(self) -> int:
        """The smallest size that it may have in holes, in addition to its core."""
        return max(self.job.request.unit, self.least - self.core)

    @property
    def widest(self) -> int:
        """The largest size that a fragment can have."""
        return self.job.request.unit if self.share is None else self.share.width

    @cached_property
    def reachable(self) -> int:
        """The largest size that it could have right after this tick."""
        widest = self.job.request.unit if self.waits.others else self.widest
        growable = 0 if self.waits.growth and self.size == 0 else len(self.upkeep.growable)
        if self.waits.others:
            growable = min(growable, 0 if self.size else 1)
        return min(self.most, self.size + widest * growable)

    def stays_past(self, fragment: Fragment) -> bool:
        """Tell whether this fragment stays despite planned starts."""
        is_running = fragment.state is FragmentState.RUNNING
        return fragment.id in self.past if is_running else self.gains_past

    @property
    def is_placed(self) -> bool:
        """Tell whether the allocator decides about it. Otherwise it keeps its nodes in this tick.

        A gang may be unable to reach its minimum while fragments are on their way out or in. It is
        left alone until they are back. So is a core that may have no fragments beside it.
        """
        is_open = bool(self.lent) or self.reachable >= self.core + self.job.request.unit
        return not self.upkeep.has_ended and self.reachable >= self.least and is_open


def situation_of(survey: Survey, job: MalleableJob) -> Situation:
    """The situation of a job, before any allocation."""
    ground = survey.ground
    care = upkeep(ground, job)
    is_apart = not care.has_ended and _is_apart(ground, job)
    care = _with_apart_noted(job, care) if is_apart else care
    waiter, wish = survey.queue.first(job), job.wish(ground.now)
    bars = survey.mandate.bar or why_no_parts(ground, job)
    bars = bars or (why_waiting(waiter) if waiter else None)
    barred = None if care.has_ended else bars or _why_unwanted(job, wish)
    care = care if care.has_ended else _within_bars(survey, care, barred)
    care = care if care.has_ended or barred else _with_core_queued(survey, job, care)
    running = (f for f in job.stirring if f.state is FragmentState.RUNNING)
    past = survey.interruptions.staying(job, survey.holes)
    stays = {f.id: _stay(survey, f, barred or bars, f.id in past) for f in running}
    marks = _marks_of(care)
    marked = _with_marks(job, marks)
    avoided, waits = shunned(ground, marked), waits_of(ground, marked)
    if care.has_ended:
        return Situation(job, care, stays, marked, marks, avoided, waits, past=past)
    situation = Situation(
        job=job,
        upkeep=care,
        stays=stays,
        marked=marked,
        marks=marks,
        shunned=avoided,
        gives_way_to=waiter.job_id if waiter else "",
        waits=waits,
        is_apart=is_apart,
        barred=barred,
        past=past,
        gains_past=survey.interruptions.may_gain(job),
        redone_s=survey.interruptions.redone_s(job),
        wish=wish,
        share=survey.slots.of(job),
    )
    return _given_up(situation) if _is_hopeless(ground, situation) else situation


def _marks_of(care: Upkeep) -> dict[FragmentId, Mark]:
    return {i.fragment: i.mark for i in care.actions if i.mark is not None}


def _with_marks(job: MalleableJob, marks: Mapping[FragmentId, Mark]) -> MalleableJob:
    if not marks:
        return job  # the same object keeps its cached properties
    fragments = (replace(f, mark=marks[f.id]) if f.id in marks else f for f in job.fragments)
    return replace(job, fragments=tuple(fragments))


def _stay(survey: Survey, fragment: Fragment, barred: Optional[Reason], is_past: bool) -> Stay:
    """Decide whether it may stay, by its node, the mandate, and the bars on its job."""
    if fragment.is_core:
        return Stay(None)
    stay = may_stay(survey, fragment, is_past)
    return replace(stay, leaves=stay.leaves or barred.why) if barred else stay


def _why_unwanted(job: MalleableJob, wish: Optional[Wish]) -> Optional[Reason]:
    """Return the wish, if it is for less than a unit."""
    if wish is None or wish.nodes >= job.request.unit:
        return None
    return Reason(Why.WISH, Detail(wish=wish.nodes, unit=job.request.unit))


def _within_bars(survey: Survey, care: Upkeep, barred: Optional[Reason]) -> Upkeep:
    """Drop starts that are not allowed.

    Hold fragments that were about to start in a forbidden place.
    """
    ground, holes = survey.ground, survey.holes
    if barred:
        causes = {f.id: barred.why for f in care.arriving}
    else:
        there = ((f, holes.of(f)) for f in care.arriving)
        whys = ((f.id, why_to_leave(Presence(ground, holes, f, row))) for f, row in there)
        causes = {fragment: cause for fragment, cause in whys if cause}
    holds = (Intent(fragment, cause, is_held=True) for fragment, cause in causes.items())
    return replace(
        care,
        actions=one_each((*care.actions, *holds)),
        arriving=tuple(f for f in care.arriving if f.id not in causes),
        growable=() if barred else care.growable,
        reasons=(*care.reasons, barred) if barred else care.reasons,
    )


def _with_core_queued(survey: Survey, job: MalleableJob, care: Upkeep) -> Upkeep:
    if survey.mandate.waits or not job.request.core:
        return care
    queued = to_queue(survey.ground, _with_marks(job, _marks_of(care)))
    return replace(care, actions=one_each((*care.actions, *queued)))


def _is_apart(ground: Ground, job: MalleableJob) -> bool:
    """Tell whether its fragments cannot meet.

    Either they find each other in no shared directory. Or a fragment has run for long enough to
    meet others, and no agent has ever spoken.
    """
    if job.has_agent or not job.way.works_as_one:
        return job.is_apart and job.way.works_as_one
    patience = timedelta(seconds=ground.settings.failures.join_s)
    starts = (f.start for f in job.active if f.start is not None)
    is_known = any(f.mark.is_apart for f in job.stirring)
    return is_known or any(ground.now - start >= patience for start in starts)


def _with_apart_noted(job: MalleableJob, care: Upkeep) -> Upkeep:
    """Note on a fragment that the job keeps a single fragment.

    The note remains when that fragment has left.
    """
    states = (FragmentState.RUNNING, *WAITING_STATES)
    first = next((f for f in job.fragments if f.state in states), None)
    if first is None or any(f.mark.is_apart for f in job.stirring):
        return care
    marks = {i.fragment: i.mark for i in care.actions}
    mark = marks.get(first.id) or first.mark
    note = Intent(first.id, Why.APART, mark=replace(mark, is_apart=True))
    return replace(care, actions=one_each((*care.actions, note)))


def _is_hopeless(ground: Ground, situation: Situation) -> bool:
    """Tell whether a gang has been below its minimum for long without any change."""
    if situation.is_placed or not 0 < situation.size < situation.least:
        return False
    wait = timedelta(seconds=ground.settings.plan.gang_wait_s)
    moments = ((f.start, f.mark.released, f.mark.noticed) for f in situation.marked.fragments)
    return not any(is_within(ground.now, when, wait) for row in moments for when in row)


def _given_up(situation: Situation) -> Situation:
    """A gang that cannot be completed gives back its nodes."""
    running = (f for f in situation.staying if f.state is FragmentState.RUNNING)
    idle = (f for f in running if not f.is_core)
    leaves = {f.id: replace(situation.stays[f.id], leaves=Why.BELOW_MIN) for f in idle}
    return replace(situation, stays={**situation.stays, **leaves})
