"""What the state of a single fragment of a job that goes on calls for."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta

from slurm_hooks.model import (
    ENDED_STATES,
    WAITING_STATES,
    Action,
    AvoidedNode,
    Fragment,
    FragmentState,
    Hold,
    MalleableJob,
    Mark,
    Notice,
    PutBack,
    Said,
    SetMark,
    Why,
)
from slurm_hooks.model.ends import is_death
from slurm_hooks.planning.cancels import gone
from slurm_hooks.planning.failures import NOT_STARTED, after_death
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.moments import is_within
from slurm_hooks.planning.workers import idle_since

BACK_STATES = ENDED_STATES - {FragmentState.CANCELLED}
"""States out of which a fragment can be put back."""

# Why a released fragment cannot start now, whatever node it is given: limits, licences, other jobs.
_OBSTACLE = re.compile(
    r"Dependency|JobArrayTaskLimit|Licenses|BurstBuffer|Reservation|Assoc|QOS|Account|"
    r"Partition(?:TimeLimit|NodeLimit|Down|Inactive)|Invalid|MaxRequeue|DeadLine"
)


def steps_of(ground: Ground, fragment: Fragment, job: MalleableJob) -> tuple[Action, ...]:
    """The actions for one fragment; an unknown state calls for none."""
    state = fragment.state
    if is_death(fragment):
        mark = after_death(ground, fragment, job)
        if state in (*WAITING_STATES, FragmentState.PENDING):
            is_held = state in WAITING_STATES and not fragment.is_paused
            held = () if is_held else (Hold(fragment.id, Why.DIED),)
            return (*held, SetMark(fragment.id, mark, Why.DIED))
        return (_back(fragment, Why.DIED, mark),)
    if state in WAITING_STATES:
        return _held(fragment, ground.now)
    if state is FragmentState.PENDING:
        return _pending(ground, fragment)
    if state is FragmentState.RUNNING:
        return _running(ground, fragment)
    if state in BACK_STATES:
        mark = replace(fragment.mark, noticed=ground.now, gone=max(gone(job), fragment.mark.gone))
        cause = _cause_of_end(fragment)
        if cause is Why.NO_WORK:
            mark = replace(mark, idle=idle_since(fragment))
        return (_back(fragment, cause, mark),)
    return ()


def _back(fragment: Fragment, cause: Why, mark: Mark) -> PutBack:
    return PutBack(fragment.id, cause, mark, is_ended=True, is_paused=fragment.is_paused)


def _cause_of_end(fragment: Fragment) -> Why:
    """Of an end that is no death: exit code 0 is none in a pool alone."""
    if fragment.is_leaving or fragment.said in (Said.LEAVING, Said.APART):
        return Why.LEFT
    return Why.NO_WORK if fragment.state is FragmentState.DONE else Why.LEASE_ENDED


def _held(fragment: Fragment, now: datetime) -> tuple[Action, ...]:
    """Slurm itself holds what can never run on the nodes that we asked for; others may fit.

    What failed or timed out while it was held gets the reason JobHeldAdmin from a requeue (22.05,
    24.11). A tick that died before its uhold leaves it so; that is not the hold of an operator.
    """
    is_ours = fragment.is_shown_held and fragment.has_run and not fragment.is_leaving
    if is_ours and fragment.exit_code not in ("", "0:0"):
        mark = replace(fragment.mark, noticed=now)
        return (Hold(fragment.id, Why.NOTED), SetMark(fragment.id, mark, Why.NOTED))
    if fragment.reason != "BadConstraints":
        return ()
    since = fragment.mark.released
    known = {a.node for a in fragment.mark.unfit if since is None or a.since >= since}
    if fragment.nodes <= known:
        return ()
    kept = tuple(a for a in fragment.mark.unfit if a.node not in fragment.nodes)
    unfit = kept + tuple(AvoidedNode(name, now) for name in sorted(fragment.nodes))
    return (SetMark(fragment.id, replace(fragment.mark, unfit=unfit), Why.UNFIT),)


def _pending(ground: Ground, fragment: Fragment) -> tuple[Action, ...]:
    """Hold what Slurm requeued (it waits for a later BeginTime) and what did not start in time."""
    mark, now = fragment.mark, ground.now
    if fragment.eligible is not None and fragment.eligible > now:
        return (Hold(fragment.id, Why.PREEMPTED),)
    patience = timedelta(seconds=ground.settings.lease.start_timeout_s)
    obstacle = _OBSTACLE.match(fragment.reason)
    if not obstacle and is_within(now, mark.released, patience):
        return ()
    word = fragment.reason.split(",")[0] if obstacle else NOT_STARTED
    noted = SetMark(fragment.id, mark.in_vain(now, word), Why.NOT_STARTED)
    return (Hold(fragment.id, Why.NOT_STARTED), noted)


def _running(ground: Ground, fragment: Fragment) -> tuple[Action, ...]:
    """Make sure that it comes back held. After a notice: repeat it until the fragment begins to
    leave, and requeue the fragment once the notice is over."""
    mark = fragment.mark
    secured = (Hold(fragment.id, Why.SECURED),) if fragment.priority else ()
    if mark.noticed is None:
        return secured
    notice = timedelta(seconds=ground.settings.lease.notice_s)
    if not is_within(ground.now, mark.noticed, notice):
        return (*secured, PutBack(fragment.id, Why.NOTICE_OVER))
    if fragment.said is Said.LEAVING:
        return secured
    return (*secured, Notice(fragment.id, mark, Why.REMINDED))
