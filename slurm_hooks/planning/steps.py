"""Decides the next step for a single fragment of a job that goes on."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Optional

from slurm_hooks.model import (
    BACK_STATES,
    NOT_LAUNCHED,
    WAITING_STATES,
    AvoidedNode,
    Fragment,
    FragmentState,
    Intent,
    MalleableJob,
    Said,
    Verb,
    Why,
)
from slurm_hooks.model.ends import is_death
from slurm_hooks.planning.cancels import lost_elements
from slurm_hooks.planning.core import step_of_core
from slurm_hooks.planning.failures import after_death, put_back
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.trouble import NOT_STARTED, is_within
from slurm_hooks.planning.workers import idle_since

# Reasons why a released fragment cannot start on any node now: limits, licences, other jobs.
_OBSTACLE = re.compile(
    r"Dependency|JobArrayTaskLimit|Licenses|BurstBuffer|Reservation|Assoc|QOS|Account|"
    r"Partition(?:TimeLimit|NodeLimit|Down|Inactive)|Invalid|MaxRequeue|DeadLine"
)


def step_of(ground: Ground, job: MalleableJob, fragment: Fragment) -> Optional[Intent]:
    """The next step for a fragment. An unknown state needs no step."""
    state = fragment.state
    if fragment.is_core:
        return step_of_core(ground, job, fragment)
    if is_death(fragment):
        mark = after_death(ground, job, fragment)
        if state in (*WAITING_STATES, FragmentState.PENDING):
            is_ours = state in WAITING_STATES and not fragment.is_on_hold  # held already
            return Intent(fragment.id, Why.DIED, mark=mark, is_held=not is_ours)
        return put_back(fragment, Why.DIED, mark)
    if state in WAITING_STATES:
        return _held(ground, fragment)
    if state is FragmentState.PENDING:
        return _pending(ground, fragment)
    if state is FragmentState.RUNNING:
        return _running(ground, fragment)
    if state in BACK_STATES:
        mark = replace(
            fragment.mark, noticed=ground.now, gone=max(lost_elements(job), fragment.mark.gone)
        )
        cause = _cause_of_end(fragment)
        if cause is Why.NO_WORK:
            mark = replace(mark, idle=idle_since(fragment))
        return put_back(fragment, cause, mark)
    return None


def _cause_of_end(fragment: Fragment) -> Why:
    """The cause of an end that is no death. Exit code 0 is a death except in a pool."""
    if fragment.is_leaving or fragment.said in (Said.LEAVING, Said.APART):
        return Why.LEFT
    return Why.NO_WORK if fragment.state is FragmentState.DONE else Why.LEASE_ENDED


def _held(ground: Ground, fragment: Fragment) -> Optional[Intent]:
    """Note the nodes on which a held fragment can never run, as Slurm says. Others may fit.

    Slurm does not say which node could not start it. So the next release names its node (_grow).

    A fragment that failed or timed out while it was held gets the reason JobHeldAdmin from a
    requeue (22.05, 24.11). A tick that died before its uhold leaves that reason. It is not an
    operator's hold.
    """
    now, span = ground.now, timedelta(seconds=ground.settings.failures.avoid_s)
    if fragment.is_not_launched:
        mark = replace(fragment.mark.in_vain(now, NOT_LAUNCHED), run=fragment.restarts)
        return Intent(fragment.id, Why.NOT_STARTED, mark=mark)
    is_ours = fragment.is_shown_held and fragment.has_run and not fragment.is_leaving
    if is_ours and fragment.exit_code not in ("", "0:0"):
        mark = replace(fragment.mark, noticed=now)
        return Intent(fragment.id, Why.NOTED, mark=mark, is_held=True)
    if fragment.reason != "BadConstraints":
        return None
    since = fragment.mark.released
    known = {a.node for a in fragment.mark.unfit if since is None or a.since >= since}
    if fragment.nodes <= known:
        return None
    others = (a for a in fragment.mark.unfit if a.node not in fragment.nodes)
    kept = tuple(a for a in others if is_within(now, a.since, span))
    unfit = kept + tuple(AvoidedNode(name, now) for name in sorted(fragment.nodes))
    return Intent(fragment.id, Why.UNFIT, mark=replace(fragment.mark, unfit=unfit))


def _pending(ground: Ground, fragment: Fragment) -> Optional[Intent]:
    """Hold a fragment that should not be pending.

    Slurm requeued it (it waits for a later BeginTime), it did not start in time, or it was released
    outside its lane.
    """
    mark, now = fragment.mark, ground.now
    if ground.is_astray(fragment):
        return Intent(fragment.id, Why.TO_LANE, is_held=True)
    if fragment.eligible is not None and fragment.eligible > now:
        return Intent(fragment.id, Why.PREEMPTED, is_held=True)
    patience = timedelta(seconds=ground.settings.lease.start_timeout_s)
    obstacle = _OBSTACLE.match(fragment.reason)
    if not obstacle and is_within(now, mark.released, patience):
        return None
    word = fragment.reason.split(",")[0] if obstacle else NOT_STARTED
    return Intent(fragment.id, Why.NOT_STARTED, mark=mark.in_vain(now, word), is_held=True)


def _running(ground: Ground, fragment: Fragment) -> Optional[Intent]:
    """Make sure that it comes back held.

    After a notice, repeat the notice until the fragment begins to leave. Requeue the fragment once
    the notice is over.
    """
    noticed, is_held = fragment.mark.noticed, bool(fragment.priority)
    secured = Intent(fragment.id, Why.SECURED, is_held=True) if is_held else None
    if noticed is None:
        return secured
    if not is_within(ground.now, noticed, ground.lane_of(fragment).notice):
        return Intent(fragment.id, Why.NOTICE_OVER, Verb.PUT_BACK, is_held=is_held)
    if fragment.said is Said.LEAVING:
        return secured
    return Intent(fragment.id, Why.REMINDED, Verb.NOTICE, is_held=is_held)
