"""A job's end summed up: one line on one of its fragments, written before the last are cancelled.

Slurm refuses to change what has ended (22.05), so a job that leaves nothing open is not summed up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Optional

from slurm_hooks.model import (
    WAITING_STATES,
    Action,
    Cancel,
    Fragment,
    FragmentState,
    MalleableJob,
    Plan,
    SetMark,
    Snapshot,
    Why,
)

_OPEN = frozenset({*WAITING_STATES, FragmentState.PENDING, FragmentState.RUNNING})


def ending_jobs(plan: Plan) -> frozenset[int]:
    """The jobs that a plan closes."""
    cancels = (a for a in plan.actions if isinstance(a, Cancel))
    return frozenset(f.job_id for cancel in cancels for f in cancel.fragments)


def with_summaries(plan: Plan, seen: Snapshot, summaries: Mapping[int, str]) -> Plan:
    """The plan with one line for each job that it closes, by job id."""
    actions: list[Action] = list(plan.actions)
    ending = ending_jobs(plan)
    for job in seen.jobs:
        text = summaries.get(job.job_id, "") if job.job_id in ending else ""
        fragment = _bearer(job) if text else None
        if fragment is not None:
            actions = _summed_up(actions, fragment, text)
    return replace(plan, actions=tuple(actions))


def _bearer(job: MalleableJob) -> Optional[Fragment]:
    """The fragment that carries the line: one that runs if there is one, the first otherwise."""
    found = [f for f in job.fragments if f.state in _OPEN]
    running = (f for f in found if f.state is FragmentState.RUNNING)
    return next(running, found[0] if found else None)


def _summed_up(actions: Iterable[Action], fragment: Fragment, text: str) -> list[Action]:
    """The actions with the line in the mark that is written anyway, or in one of its own."""
    done: list[Action] = []
    is_written = False
    for action in actions:
        if isinstance(action, SetMark) and action.fragment == fragment.id:
            action, is_written = replace(action, summary=text), True  # noqa: PLW2901
        done.append(action)
    if not is_written:
        done.append(SetMark(fragment.id, fragment.mark, Why.SUMMED_UP, text))
    return done
