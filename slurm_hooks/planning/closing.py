"""A job's end summed up: one line on one of its fragments, written before the last are cancelled.

Slurm refuses to change what has ended (22.05), so a job that leaves nothing open is not summed up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Optional

from slurm_hooks.model import (
    WAITING_STATES,
    Fragment,
    FragmentState,
    Intent,
    MalleableJob,
    Plan,
    Snapshot,
    Verb,
    Why,
    one_each,
)

_OPEN = frozenset({*WAITING_STATES, FragmentState.PENDING, FragmentState.RUNNING})


def ending_jobs(plan: Plan) -> frozenset[int]:
    """The jobs that a plan closes."""
    return frozenset(i.fragment.job_id for i in plan.actions if i.verb is Verb.CANCEL)


def with_summaries(plan: Plan, seen: Snapshot, summaries: Mapping[int, str]) -> Plan:
    """The plan with one line for each job that it closes, by job id."""
    lines: list[Intent] = []
    ending = ending_jobs(plan)
    for job in seen.jobs:
        text = summaries.get(job.job_id, "") if job.job_id in ending else ""
        bearer = _bearer(job) if text else None
        if bearer is not None:
            line = Intent(bearer.id, Why.SUMMED_UP, mark=bearer.mark, summary=text)
            lines.append(line)
    return replace(plan, actions=one_each((*lines, *plan.actions))) if lines else plan


def _bearer(job: MalleableJob) -> Optional[Fragment]:
    """The fragment that carries the line: one that runs if there is one, the first otherwise."""
    found = [f for f in job.fragments if f.state in _OPEN]
    running = (f for f in found if f.state is FragmentState.RUNNING)
    return next(running, found[0] if found else None)
