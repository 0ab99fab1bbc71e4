"""Splits a tick's writes into two halves, with a second reading between them where it is needed.

A fragment is signalled only if Slurm accepted its mark. Otherwise it would leave without a record
of the request. A fragment that its user has cancelled since is not put back, since Slurm would
revive it. A fragment that an operator has held since is not released, and keeps that hold. Once
malleable jobs are switched off, or the site wants no growth, no fragment is released.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
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
    Reason,
    Slurm,
    Snapshot,
    Verb,
    Why,
)
from slurm_hooks.planning.cancels import CancelScope, cancel_scope
from slurm_hooks.planning.dropping import Fault, stayed, with_minimums
from slurm_hooks.planning.modes import why_no_growth, why_off


def first_half(intents: Iterable[Intent]) -> tuple[Intent, ...]:
    """The leases, and the marks, except marks of fragments that start or are put back."""
    return tuple(
        Intent(i.fragment, i.cause, mark=mark, end=i.end, summary=i.summary)
        for i in intents
        if (mark := None if i.has_late_mark else i.mark) is not None or i.end is not None
    )


def second_half(intents: Iterable[Intent]) -> tuple[Intent, ...]:
    """Holds, fragments to put back, cancels, releases, and signals last."""
    return tuple(
        replace(i, end=None, mark=i.mark if i.has_late_mark else None)
        for i in intents
        if i.is_held or i.is_moved or i.verb is not Verb.STAY
    )


def needs_second_look(intents: Iterable[Intent]) -> bool:
    """Tell whether the second half has to be checked against a second reading."""
    return any(map(_is_checked, intents))


def _is_checked(intent: Intent) -> bool:
    """Tell whether an intent needs the second reading. A cancel is always written."""
    changes = intent.is_held or intent.is_ended or intent.is_moved
    return changes or intent.verb not in (Verb.STAY, Verb.CANCEL)


def contradicted(
    intents: Iterable[Intent], fresh: Iterable[MalleableJob], slurm: Slurm
) -> dict[FragmentId, Fault]:
    """The intents of the second half that a second reading of all jobs contradicts, and why."""
    jobs = {job.job_id: job for job in fresh}
    cancels = {job_id: cancel_scope(job, slurm) for job_id, job in jobs.items()}
    fragments = {f.id: f for job in jobs.values() for f in job.fragments}
    some = tuple(intents)
    checked = ((i, _fault(i, fragments.get(i.fragment), cancels)) for i in some if _is_checked(i))
    return with_minimums(jobs, some, {i.fragment: why for i, why in checked if why})


def switched_off(intents: Iterable[Intent], now: Snapshot) -> dict[FragmentId, Fault]:
    """The starts of a plan that the switches forbid `now`."""
    why = why_off(now.off) if now.off is not None else None
    if why is None and now.no_growth is not None:
        why = why_no_growth(now.no_growth, now.now)
    if why is None:
        return {}
    starts = (i.fragment for i in intents if i.verb in (Verb.GROW, Verb.QUEUE))
    return dict.fromkeys(starts, Fault(why, why.why))


def _fault(
    intent: Intent, fragment: Optional[Fragment], cancels: Mapping[int, CancelScope]
) -> Optional[Fault]:
    """Leave out the faulty part of an intent. The rest goes on."""
    if fragment is None:
        return Fault(Reason(Why.GONE), Why.RESTING, left=stayed(replace(intent, is_held=False)))
    is_held = intent.is_held and not _is_held_by_operator(intent, fragment)
    of_run = _fault_of_run(intent, fragment, cancels[fragment.id.job_id])
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
