"""Sums up a job's end: a line on a fragment, written before the last fragments are cancelled.

Slurm refuses to change an ended job (22.05). So a job without open fragments gets no summary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Optional

from slurm_hooks.model import (
    OPEN_STATES,
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


def ending_jobs(plan: Plan) -> frozenset[int]:
    return frozenset(i.fragment.job_id for i in plan.actions if i.verb is Verb.CANCEL)


def with_summaries(plan: Plan, seen: Snapshot, summaries: Mapping[int, str]) -> Plan:
    """Add a line to the plan for each job that it closes, by job id."""
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
    """The fragment that carries the line: a running fragment if there is any, else the first."""
    open_fragments = [f for f in job.fragments if f.state in OPEN_STATES]
    running = (f for f in open_fragments if f.state is FragmentState.RUNNING)
    return next(running, open_fragments[0] if open_fragments else None)
