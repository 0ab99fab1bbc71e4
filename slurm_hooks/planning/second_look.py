"""A tick writes in two halves, with a look at the fragments between them where one is needed.

A fragment is signalled only if its mark was accepted, since it would leave and nobody would know
that it had been asked to. What its user has cancelled meanwhile is not put back: Slurm would revive
it. What an operator holds meanwhile is not released, nor is that hold replaced by ours. Nothing is
released once malleable jobs are switched off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Optional, Union

from slurm_hooks.model import (
    ENDED_STATES,
    WAITING_STATES,
    Action,
    Cancel,
    Detail,
    Fragment,
    FragmentAction,
    FragmentState,
    Grow,
    Hold,
    MalleableJob,
    Notice,
    Off,
    PutBack,
    Reason,
    SetMark,
    Slurm,
    Why,
)
from slurm_hooks.planning.cancels import CancelScope, cancel_scope
from slurm_hooks.planning.dropping import Fault
from slurm_hooks.planning.modes import why_off

_LOOKED_AT = (Hold, Notice, PutBack, Grow)
_LATE = (*_LOOKED_AT, Cancel)


def first_half(actions: Iterable[Action]) -> tuple[Action, ...]:
    """Leases and marks; of a notice its mark."""
    found = tuple(actions)
    marks = tuple(SetMark(a.fragment, a.mark, a.cause) for a in found if isinstance(a, Notice))
    return tuple(a for a in found if not isinstance(a, _LATE)) + marks


def second_half(actions: Iterable[Action]) -> tuple[Action, ...]:
    """Holds, signals, fragments to put back, cancels, and last what is released."""
    return tuple(a for a in actions if isinstance(a, _LATE))


def needs_look(actions: Iterable[Action]) -> bool:
    """True if the second half has to be checked against a fresh look."""
    return any(isinstance(a, _LOOKED_AT) for a in actions)


def contradicted(
    actions: Iterable[Action], fresh: Iterable[MalleableJob], slurm: Slurm
) -> dict[FragmentAction, Fault]:
    """What of the second half no longer holds in a fresh look at all jobs, and why."""
    jobs = {job.job_id: job for job in fresh}
    cancels = {job_id: cancel_scope(job, slurm) for job_id, job in jobs.items()}
    fragments = {f.id: f for job in jobs.values() for f in job.fragments}
    looked_at = (a for a in actions if isinstance(a, _LOOKED_AT))
    return {a: why for a in looked_at if (why := _fault(a, fragments.get(a.fragment), cancels))}


def switched_off(actions: Iterable[Action], off: Optional[Off]) -> dict[FragmentAction, Fault]:
    """What a plan from before malleable jobs were switched off must not start any more."""
    starts = (a for a in actions if isinstance(a, Grow))
    return dict.fromkeys(starts, Fault(why_off(off), Why.OFF)) if off is not None else {}


def _fault(
    action: Union[Hold, Notice, PutBack, Grow],
    fragment: Optional[Fragment],
    cancels: Mapping[int, CancelScope],
) -> Optional[Fault]:
    if fragment is None:
        return Fault(Reason(Why.GONE), Why.RESTING)
    if isinstance(action, Hold):
        is_slurm_s = action.cause in (Why.DIED, Why.NOTED)  # JobHeldAdmin of Slurm's own making
        is_free = bool(fragment.priority) or not fragment.is_paused
        return None if is_free or is_slurm_s else Fault(Reason(Why.HELD))
    if isinstance(action, Grow):
        is_ours = fragment.state in WAITING_STATES and not fragment.is_paused
        is_still = is_ours and not fragment.mark.is_paused
        return None if is_still else Fault(Reason(Why.NOT_FREE_TO_START), Why.RESTING)
    if isinstance(action, Notice):
        if fragment.state is not FragmentState.RUNNING:
            return Fault(Reason(Why.NOT_RUNNING))
        kept = len(fragment.nodes)
        return None if fragment.is_leaving else Fault(Reason(Why.REFUSED), kept=kept)
    is_cancelled = cancels[fragment.id.job_id] in (CancelScope.WHOLE, CancelScope.UNCLEAR)
    if fragment.state is FragmentState.CANCELLED or is_cancelled:
        return Fault(Reason(Why.CANCELLED))
    expected = ENDED_STATES if action.is_ended else {FragmentState.RUNNING}
    changed = Reason(Why.CHANGED, Detail(state=fragment.state))
    return None if fragment.state in expected else Fault(changed)
