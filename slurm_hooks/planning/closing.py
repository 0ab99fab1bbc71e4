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
    ending = ending_jobs(plan)
    texts = ((job, summaries.get(job.job_id)) for job in seen.jobs if job.job_id in ending)
    bearers = ((_bearer(job), text) for job, text in texts if text)
    lines = [Intent(f.id, Why.SUMMED_UP, mark=f.mark, summary=text) for f, text in bearers if f]
    return replace(plan, actions=one_each((*lines, *plan.actions))) if lines else plan


def _bearer(job: MalleableJob) -> Optional[Fragment]:
    """The fragment that carries the line: a running fragment if there is any, else the first."""
    open_fragments = (f for f in job.fragments if f.state in OPEN_STATES)
    return min(open_fragments, key=lambda f: f.state is not FragmentState.RUNNING, default=None)
