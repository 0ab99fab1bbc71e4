"""Decides from the states of a job and its fragments which steps are due, before any allocation.

Ended fragments go back to held. Running fragments are held in case Slurm requeues them. Finished,
cancelled and failing jobs are closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Optional

from slurm_hooks.model import (
    BACK_STATES,
    ENDED_STATES,
    NOT_MOVED,
    OPEN_STATES,
    WAITING_STATES,
    Detail,
    Fragment,
    FragmentId,
    FragmentState,
    Intent,
    MalleableJob,
    Reason,
    Said,
    Verb,
    Why,
    one_each,
)
from slurm_hooks.model.ends import is_death, is_finished
from slurm_hooks.planning import core
from slurm_hooks.planning.cancels import CancelScope, cancel_scope, is_crippled, lost_elements
from slurm_hooks.planning.failures import has_progressed, why_stopped
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.steps import step_of
from slurm_hooks.planning.trouble import in_vain, is_in_the_way, is_ready, is_within
from slurm_hooks.planning.workers import (
    idle_since,
    idle_workers,
    is_out_of_work,
    newest_of,
    to_be_started,
)


@dataclass(frozen=True)
class Upkeep:
    """The steps that a job needs, and the fragments that can get nodes.

    `arriving` fragments were released and have not started yet. `growable` fragments are held and
    wait for a hole. A job that `has_ended` gets no more nodes.
    """

    actions: tuple[Intent, ...] = ()
    arriving: tuple[Fragment, ...] = ()
    growable: tuple[Fragment, ...] = ()
    has_ended: bool = False
    reasons: tuple[Reason, ...] = ()


def upkeep(ground: Ground, job: MalleableJob) -> Upkeep:
    """The steps that the states of a job's fragments require."""
    stopped = next((f.mark.stopped for f in job.stirring if f.mark.stopped), "")
    if stopped:
        return _stop(job, stopped)
    if is_finished(job):
        return _finish(job, (f for f in job.fragments if f.state is FragmentState.RUNNING))
    if is_out_of_work(ground, job):
        return _finish(job, [f for f in job.fragments if f.state in WAITING_STATES][:1])
    cancel = cancel_scope(job, ground.slurm)
    if cancel is CancelScope.WHOLE:
        return _close(job, Reason(Why.CORE_OVER if core.has_ended(job) else Why.CANCELLED))
    if cancel is CancelScope.UNCLEAR:
        return Upkeep(reasons=(Reason(Why.CANCEL_UNCLEAR),))
    if is_crippled(job):
        return _stop(job, "too-few-fragments-left")
    if core.has_ended(job):
        return _close(job, Reason(Why.CORE_OVER))
    died = tuple(f for f in job.stirring if is_death(f))
    why = why_stopped(ground, job, died)
    return _stop(job, why) if why else _care(ground, job, died)


def _care(ground: Ground, job: MalleableJob, died: tuple[Fragment, ...]) -> Upkeep:
    noted = _noted(ground, job)
    if noted:
        job = replace(job, fragments=tuple(noted.get(f.id, f) for f in job.fragments))
    notes = [Intent(name, Why.NOTED, mark=f.mark) for name, f in noted.items()]
    steps = [step for f in job.stirring if (step := step_of(ground, job, f))]
    held = {step.fragment for step in steps if step.is_held}
    pending = (f for f in job.stirring if f.state is FragmentState.PENDING)
    arriving = (f for f in pending if not f.is_core)
    return Upkeep(
        actions=one_each((*notes, *steps, *core.to_move(ground, job))),
        arriving=tuple(f for f in arriving if f.id not in held),
        growable=growable(ground, job),
        reasons=(*_reasons(job, died, ground.now), *core.kept_out(ground, job)),
    )


def growable(ground: Ground, job: MalleableJob) -> tuple[Fragment, ...]:
    now = ground.now
    if any(f.depends or f.mark.is_on_hold or is_in_the_way(f, now) for f in job.stirring):
        return ()
    if ground.slurm.preempts_by_qos and job.job_id in ground.seen.without_qos:
        return ()
    fragments = job.fragments
    if job.way.zero_is_idle:
        fragments = to_be_started(ground, job)
    if job.request.core:
        fragments = tuple(f for f in fragments if not (f.is_core or ground.is_astray(f)))
    return tuple(f for f in fragments if is_ready(ground, f))


def _finish(job: MalleableJob, bearers: Iterable[Fragment]) -> Upkeep:
    """Close the job. Marks keep that it has finished.

    Slurm may forget the fragment that reported it before the others have ended.
    """
    news = (f for f in bearers if not f.mark.is_finished)
    marks = (Intent(f.id, Why.FINISHED, mark=replace(f.mark, is_finished=True)) for f in news)
    closed = _close(job, Reason(Why.FINISHED, _how_finished(job)))
    return replace(closed, actions=one_each((*marks, *closed.actions)))


def _how_finished(job: MalleableJob) -> Detail:
    if any(f.said is Said.FINISHED for f in job.fragments):
        return Detail() if job.way.works_as_one else Detail(engine=job.request.engine)
    if job.way.zero_is_idle:
        return Detail(count=sum(idle_since(f) is not None for f in job.fragments))
    return Detail() if job.has_agent else Detail(exit_code="0")


def _close(job: MalleableJob, reason: Reason) -> Upkeep:
    """Cancel the open fragments.

    Running fragments of a finished training run to the end of their scripts. In a pool only the
    worker that reported the end does.
    """
    kept = set()
    if reason.why is Why.FINISHED:
        running = (f for f in job.fragments if f.state is FragmentState.RUNNING)
        kept = {f.id for f in running if job.way.works_as_one or f.said is Said.FINISHED}
    open_ids = (f.id for f in job.fragments if f.state in OPEN_STATES and f.id not in kept)
    cancels = tuple(Intent(name, reason.why, Verb.CANCEL) for name in open_ids)
    return Upkeep(actions=cancels, has_ended=True, reasons=(reason,))


def _stop(job: MalleableJob, why: str) -> Upkeep:
    """Write the reason on every fragment that lacks it, then cancel them.

    Of an ended fragment with the reason, Slurm keeps no more than a record.
    """
    states = OPEN_STATES | BACK_STATES
    known = (f for f in job.fragments if f.state in states)
    news = (f for f in known if f.state in OPEN_STATES or not f.mark.stopped)
    actions = tuple(_stopped(f, why) for f in news)
    return Upkeep(actions, has_ended=True, reasons=(Reason(Why.STOPPED, Detail(said=why)),))


def _stopped(fragment: Fragment, why: str) -> Intent:
    is_ended = fragment.state in BACK_STATES
    mark = None if fragment.mark.stopped else replace(fragment.mark, stopped=why)
    return Intent(
        fragment.id, Why.STOPPED, Verb.CANCEL, mark=mark, is_held=is_ended, is_ended=is_ended
    )


def _noted(ground: Ground, job: MalleableJob) -> dict[FragmentId, Fragment]:
    """Fragments with news for their marks.

    The job trains again, or elements are gone. A release started after all, or the job waits for
    other jobs. The mark also keeps the job's priority from before the hold.
    """
    trains = job.failures > 0 and has_progressed(ground, job)
    is_ranked = any(f.mark.priority for f in job.stirring)
    lost, dependent = lost_elements(job), _noted_dependent(ground, job)
    noted: dict[FragmentId, Fragment] = {}
    for fragment in job.fragments if lost or dependent else job.stirring:
        runs, mark = fragment.state is FragmentState.RUNNING, fragment.mark
        news: dict[str, Any] = {}
        if lost > mark.gone:
            news["gone"] = lost
        if trains and mark.failures:
            news["failures"] = 0
        if fragment is dependent:
            news["depended"] = ground.now
        if runs and mark.vain:
            unfit = tuple(a for a in mark.unfit if a.node not in fragment.nodes)
            news.update(vain=0, obstacle="", unfit=unfit)
        if runs and fragment.priority and not is_ranked:
            news["priority"], is_ranked = fragment.priority, True
        if news and (runs or fragment.state in WAITING_STATES):
            noted[fragment.id] = replace(fragment, mark=replace(mark, **news))
    return noted


def _noted_dependent(ground: Ground, job: MalleableJob) -> Optional[Fragment]:
    """The fragment to note on that its job waits for other jobs, not for nodes.

    Slurm does not say when that wait ends, so it is noted four times in a job's patience.
    """
    often = timedelta(seconds=ground.settings.plan.patience_s / 4)
    is_known = any(is_within(ground.now, f.mark.depended, often) for f in job.stirring)
    if is_known or not often or not any(f.depends for f in job.stirring):
        return None
    return next((f for f in job.fragments if f.state in WAITING_STATES), None)


def _reasons(job: MalleableJob, died: tuple[Fragment, ...], now: datetime) -> tuple[Reason, ...]:
    reasons = [Reason(Why.DIED, _death(f)) for f in died]
    reasons += core.standing(job)
    idle = idle_workers(job, now)
    if idle:
        reasons.append(Reason(Why.NO_WORK, Detail(count=len(idle), at=newest_of(idle))))
    if any(f.depends for f in job.stirring):
        reasons.append(Reason(Why.DEPENDENCY))
    reasons += _holds(job)
    released = (f for f in job.stirring if f.mark.obstacle != NOT_MOVED)
    vain = next(filter(None, (in_vain(f, now) for f in released)), None)
    if vain:
        reasons.append(vain)
    for state, why in _LEFT_ALONE.items():
        ids = tuple(f.id for f in job.stirring if f.state is state)
        if ids:
            reasons.append(Reason(why, Detail(fragments=ids)))
    return tuple(reasons)


def _death(fragment: Fragment) -> Detail:
    nodes = tuple(sorted(fragment.nodes))
    return Detail(fragments=(fragment.id,), nodes=nodes, exit_code=fragment.exit_code)


def _holds(job: MalleableJob) -> Iterator[Reason]:
    """Say that an operator holds the whole job, or some of its fragments."""
    on_hold = [f for f in job.stirring if f.is_on_hold and f.state not in ENDED_STATES]
    if any(f.mark.is_on_hold for f in job.stirring):
        yield Reason(Why.HELD, Detail(job=job.job_id))
    elif on_hold:
        detail = Detail(job=job.job_id, fragments=tuple(f.id for f in on_hold))
        if any(f.is_requeue_held for f in on_hold):
            detail["command"] = "requeuehold"
        yield Reason(Why.HELD, detail)


_LEFT_ALONE = {
    FragmentState.SUSPENDED: Why.SUSPENDED,
    FragmentState.UNKNOWN: Why.UNKNOWN_STATE,
}
