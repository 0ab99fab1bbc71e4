"""A tick writes in two halves, with a look at the fragments between them where it takes one.

A fragment is signalled only if its mark was accepted, since it would leave and nobody would know
that it had been asked to. What its user has cancelled meanwhile is not put back: Slurm would revive
it. What an operator holds meanwhile is not released, nor his hold replaced by ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Union

from slurm_hooks.model import (
    ENDED_STATES,
    WAITING_STATES,
    Action,
    Cancel,
    Cause,
    Fragment,
    FragmentId,
    FragmentState,
    Grow,
    Hold,
    MalleableJob,
    Notice,
    PutBack,
    Renew,
    SetMark,
    Slurm,
    verb_of,
)
from slurm_hooks.planning.cancels import CancelScope, cancel_scope

_LATE = (Hold, Notice, PutBack, Cancel, Grow)


def first_half(actions: Iterable[Action]) -> tuple[Action, ...]:
    """Leases and marks; of a notice its mark."""
    found = tuple(actions)
    marks = tuple(SetMark(a.fragment, a.mark, a.cause) for a in found if isinstance(a, Notice))
    return tuple(a for a in found if not isinstance(a, _LATE)) + marks


def second_half(actions: Iterable[Action]) -> tuple[Action, ...]:
    """Holds, signals, fragments to put back, cancels, and last what is released."""
    return tuple(a for a in actions if isinstance(a, _LATE))


def needs_look(actions: Iterable[Action]) -> bool:
    """True if what comes second must be seen to hold still."""
    return any(isinstance(a, (Hold, Notice, PutBack, Grow)) for a in actions)


def still_true(
    actions: Iterable[Action], fresh: Iterable[MalleableJob], slurm: Slurm
) -> tuple[tuple[Action, ...], tuple[str, ...]]:
    """What of the second half holds in a fresh look at all jobs, and a line about the rest."""
    jobs = {job.job_id: job for job in fresh}
    cancels = {job_id: cancel_scope(job, slurm) for job_id, job in jobs.items()}
    fragments = {f.id: f for job in jobs.values() for f in job.fragments}
    kept: list[Action] = []
    notes: list[str] = []
    for action in actions:
        fault = _fault(action, fragments, cancels)
        if fault:
            notes.append(f"not done: {verb_of(action)} {fault}")
        else:
            kept.append(action)
    return tuple(kept), tuple(notes)


def _fault(
    action: Action, fragments: Mapping[FragmentId, Fragment], cancels: Mapping[int, CancelScope]
) -> str:
    if isinstance(action, (Renew, SetMark, Cancel)):
        return ""
    fragment = fragments.get(action.fragment)
    why = "it is gone" if fragment is None else _why_late(action, fragment, cancels)
    return f"{action.fragment}: {why}" if why else ""


def _why_late(
    action: Union[Hold, Notice, PutBack, Grow],
    fragment: Fragment,
    cancels: Mapping[int, CancelScope],
) -> str:
    if isinstance(action, Hold):
        is_slurm_s = action.cause in (Cause.DIED, Cause.NOTED)  # JobHeldAdmin of Slurm's own making
        is_free = bool(fragment.priority) or not fragment.is_paused
        return "" if is_free or is_slurm_s else "an operator holds it"
    if isinstance(action, Grow):
        is_ours = fragment.state in WAITING_STATES and not fragment.is_paused
        return "" if is_ours and not fragment.mark.is_paused else "it is held, or gone, by now"
    if isinstance(action, Notice):
        is_told = fragment.state is FragmentState.RUNNING and fragment.is_leaving
        return "" if is_told else "it does not run any more, or its mark was refused"
    is_cancelled = cancels[fragment.id.job_id] in (CancelScope.WHOLE, CancelScope.UNCLEAR)
    if fragment.state is FragmentState.CANCELLED or is_cancelled:
        return "it was cancelled meanwhile"
    expected = ENDED_STATES if action.is_ended else {FragmentState.RUNNING}
    return "" if fragment.state in expected else f"it is {fragment.state.value} by now"
