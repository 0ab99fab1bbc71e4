"""What the state of each job and its fragments calls for, before any allocation.

Ended fragments go back to held, running ones are held in case Slurm requeues them; finished,
cancelled and failing jobs are closed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from slurm_hooks.engines import ENGINES
from slurm_hooks.model import (
    ENDED_STATES,
    WAITING_STATES,
    Action,
    Cancel,
    Cause,
    Fragment,
    FragmentId,
    FragmentState,
    Hold,
    MalleableJob,
    Notice,
    PutBack,
    Reason,
    Said,
    SetMark,
    Slurm,
    Why,
)
from slurm_hooks.planning.cancels import CancelScope, cancel_scope, gone, is_crippled
from slurm_hooks.planning.failures import (
    has_progressed,
    is_death,
    is_to_stop,
    is_vain,
    why_stopped,
)
from slurm_hooks.planning.moments import is_within, requeue_of
from slurm_hooks.planning.steps import BACK_STATES, steps_of
from slurm_hooks.settings import Settings

# Slurm makes a requeued job wait for as long as credentials live: a node refuses one that is not
# newer than the end of the job's last run there, in whole seconds ("Job credential revoked",
# 22.05). We shorten that wait, but not to nothing.
_REST = timedelta(seconds=3)


@dataclass(frozen=True)
class Upkeep:
    """What one job needs, and what it can be given.

    `arriving` fragments were released and have not started yet; `growable` ones are held and wait
    for a hole. A job that `is_over` gets nothing more.
    """

    actions: tuple[Action, ...] = ()
    arriving: tuple[Fragment, ...] = ()
    growable: tuple[Fragment, ...] = ()
    is_over: bool = False
    reasons: tuple[Reason, ...] = ()


def upkeep(job: MalleableJob, now: datetime, settings: Settings, slurm: Slurm) -> Upkeep:
    """What to do about a job's fragments because of the state they are in."""
    stopped = next((f.mark.stopped for f in job.fragments if f.mark.stopped), "")
    if stopped:
        return _close(job, Cause.STOPPED, Reason(Why.STOPPED, f"stopped: {stopped}"))
    if any(f.mark.is_finished or is_finish(f, job) for f in job.fragments):
        return _finish(job)
    cancel = cancel_scope(job, slurm)
    if cancel is CancelScope.WHOLE:
        reason = Reason(Why.CANCELLED, "cancelled by its user, or past its --deadline")
        return _close(job, Cause.CANCELLED, reason)
    if cancel is CancelScope.UNCLEAR:
        text = "some of its fragments were cancelled, others are still ending"
        return Upkeep(reasons=(Reason(Why.CANCEL_UNCLEAR, text),))
    if is_crippled(job):
        return _stop(job, "too-few-fragments-left")
    died = tuple(f for f in job.fragments if is_death(f))
    if is_to_stop(job, died, settings):
        return _stop(job, why_stopped(job, died, settings))
    return _care(job, died, now, settings, slurm)


def _care(
    job: MalleableJob,
    died: tuple[Fragment, ...],
    now: datetime,
    settings: Settings,
    slurm: Slurm,
) -> Upkeep:
    """The upkeep of a job that goes on."""
    noted = _noted(job, slurm)
    job = replace(job, fragments=tuple(noted.get(f.id, f) for f in job.fragments))
    steps = [a for f in job.fragments for a in steps_of(f, job, now, settings)]
    marked = {a.fragment for a in steps if isinstance(a, (SetMark, PutBack, Notice)) and a.mark}
    notes = [SetMark(i, f.mark, Cause.NOTED) for i, f in noted.items() if i not in marked]
    held = {a.fragment for a in steps if isinstance(a, Hold)}
    arriving = (f for f in job.fragments if f.state is FragmentState.PENDING)
    return Upkeep(
        actions=(*notes, *steps),
        arriving=tuple(f for f in arriving if f.id not in held),
        growable=growable(job, now, slurm),
        reasons=_reasons(job, died, now),
    )


def is_finish(fragment: Fragment, job: MalleableJob) -> bool:
    """True if this fragment's exit says that training is over.

    Where there are rounds, the round's own word decides, and exit code 0 alone means nothing: the
    last command of a script succeeds whatever became of torchrun. A job without an agent is an
    ordinary script, and its exit code 0 is its end.
    """
    if fragment.state is not FragmentState.DONE:
        return False
    engine = ENGINES.get(job.request.engine)
    if job.has_agent or (engine and engine.is_pool):
        return fragment.said is Said.FINISHED
    return True


def growable(job: MalleableJob, now: datetime, slurm: Slurm) -> tuple[Fragment, ...]:
    """The fragments that could be released: rested, held by nobody else, and likely to start."""
    if any(f.depends or f.mark.is_paused or is_vain(f, now) for f in job.fragments):
        return ()
    return tuple(f for f in job.fragments if is_rested(f, now, slurm) and not f.is_paused)


def is_rested(fragment: Fragment, now: datetime, slurm: Slurm) -> bool:
    """True for a held fragment whose last run did not end just now."""
    if fragment.state not in WAITING_STATES:
        return False
    if fragment.state is FragmentState.SPECIAL and is_death(fragment):
        return False  # its end is put on record first
    if is_within(now, fragment.mark.noticed, _REST):
        return False
    return not is_within(now, requeue_of(fragment, slurm), _REST)


def _finish(job: MalleableJob) -> Upkeep:
    """Close the job, and mark what still runs as finished: Slurm may forget who said so
    before the others have ended."""
    marks = tuple(
        SetMark(f.id, replace(f.mark, is_finished=True), Cause.FINISHED)
        for f in job.fragments
        if f.state is FragmentState.RUNNING and not f.mark.is_finished
    )
    why = "training finished"
    if not job.has_agent:
        why = "its script ended with 0, and no agent ever spoke: it counts as one without torchrun"
    closed = _close(job, Cause.FINISHED, Reason(Why.FINISHED, why))
    return replace(closed, actions=(*marks, *closed.actions))


def _close(job: MalleableJob, cause: Cause, reason: Reason) -> Upkeep:
    """Cancel what waits. Running fragments of a finished job go on to the end of their scripts."""
    open_states = {*WAITING_STATES, FragmentState.PENDING}
    if cause is not Cause.FINISHED:
        open_states.add(FragmentState.RUNNING)
    open_ones = tuple(f.id for f in job.fragments if f.state in open_states)
    actions = (Cancel(open_ones, cause),) if open_ones else ()
    return Upkeep(actions=actions, is_over=True, reasons=(reason,))


def _stop(job: MalleableJob, why: str) -> Upkeep:
    """Write the reason on every fragment, then cancel them."""
    actions: list[Action] = []
    for fragment in job.fragments:
        mark = replace(fragment.mark, stopped=why)
        if fragment.state in (*WAITING_STATES, FragmentState.PENDING, FragmentState.RUNNING):
            actions.append(SetMark(fragment.id, mark, Cause.STOPPED))
        elif fragment.state in BACK_STATES:
            actions.append(PutBack(fragment.id, Cause.STOPPED, mark, is_ended=True))
    marked = tuple(a.fragment for a in actions if isinstance(a, (SetMark, PutBack)))
    closing = (Cancel(marked, Cause.STOPPED),) if marked else ()
    reason = Reason(Why.STOPPED, f"stopped: {why}")
    return Upkeep(actions=(*actions, *closing), is_over=True, reasons=(reason,))


def _noted(job: MalleableJob, slurm: Slurm) -> dict[FragmentId, Fragment]:
    """Fragments with news for their marks: the job trains again, elements are gone, a release was
    not in vain, what the job's priority was before the hold."""
    trains = job.failures > 0 and has_progressed(job, slurm)
    is_ranked = any(f.mark.priority for f in job.fragments)
    lost = gone(job)
    noted: dict[FragmentId, Fragment] = {}
    for fragment in job.fragments:
        runs, mark = fragment.state is FragmentState.RUNNING, fragment.mark
        news: dict[str, Any] = {}
        if lost > mark.gone:
            news["gone"] = lost
        if trains and mark.failures:
            news["failures"] = 0
        if runs and mark.vain:
            news.update(vain=0, obstacle="")
        if runs and fragment.priority and not is_ranked:
            news["priority"], is_ranked = fragment.priority, True
        if news and (runs or fragment.state in WAITING_STATES):
            noted[fragment.id] = replace(fragment, mark=replace(mark, **news))
    return noted


def _reasons(job: MalleableJob, died: tuple[Fragment, ...], now: datetime) -> tuple[Reason, ...]:
    reasons = [
        Reason(
            Why.DIED,
            f"fragment {f.id} died on {', '.join(sorted(f.nodes))} with exit code {f.exit_code}",
        )
        for f in died
    ]
    if any(f.depends for f in job.fragments):
        reasons.append(Reason(Why.DEPENDENCY, "waits for its dependency"))
    is_paused = any(f.mark.is_paused for f in job.fragments)
    paused = [str(f.id) for f in job.fragments if f.is_paused and f.state not in ENDED_STATES]
    if is_paused or paused:
        what = "it" if is_paused else ", ".join(paused)
        text = f"an operator holds {what}: `malleable release {job.job_id}` ends that"
        reasons.append(Reason(Why.HELD, text))
    vain = next((f.mark for f in job.fragments if is_vain(f, now)), None)
    if vain:
        text = (
            f"was released {vain.vain} time(s) and did not start ({vain.obstacle}): "
            "another try comes later"
        )
        reasons.append(Reason(Why.NOT_STARTED, text))
    for state, (why, text) in _LEFT_ALONE.items():
        found = [str(f.id) for f in job.fragments if f.state is state]
        if found:
            reasons.append(Reason(why, f"{text}, left alone: {', '.join(found)}"))
    return tuple(reasons)


_LEFT_ALONE = {
    FragmentState.SUSPENDED: (Why.SUSPENDED, "suspended by an operator"),
    FragmentState.UNKNOWN: (Why.UNKNOWN_STATE, "state unknown"),
}
