"""The rows of `malleable top`: a pure function of a dry tick."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from slurm_hooks.model import (
    Claim,
    ClaimKind,
    Fragment,
    FragmentState,
    MalleableJob,
    NodeState,
    Snapshot,
    Why,
)
from slurm_hooks.model.moments import plural, shown, sized
from slurm_hooks.planning.holes import idle_claims
from slurm_hooks.report.text import (
    OVER,
    action_lines,
    explain_lines,
    job_state,
    minutes,
    size_text,
    sizes,
    unused_lines,
)
from slurm_hooks.report.why import headline, note_text, reason_text
from slurm_hooks.slurm.text import fold
from slurm_hooks.tick.report import TickReport

Row = tuple[str, ...]
JOB_COLUMNS = ("job", "user", "state", "size", "min-max", "next", "lease ends", "why")
HOLE_COLUMNS = ("idle nodes", "until", "because of", "list")
_SWITCHES = (Why.OFF, Why.NO_GROWTH)
LEASE_COLUMNS = ("fragment", "user", "state", "size", "node", "ends", "starts")


@dataclass(frozen=True)
class Board:
    """Lines of figures, then rows under the columns above.

    `jobs` has a row for each job, `leases` a row for each running fragment, the first to end first.
    `holes` has a row for all idle nodes that are free for equally long. `actions` are the actions
    of the next tick.
    """

    summary: tuple[str, ...]
    jobs: tuple[Row, ...]
    holes: tuple[Row, ...]
    leases: tuple[Row, ...]
    actions: tuple[str, ...]


def board_of(report: TickReport, user: str = "") -> Board:
    """The board of a dry tick. With `user`, it has only this user's jobs."""
    seen = report.snapshot
    of_user = [job for job in seen.jobs if not user or job.user == user]
    jobs = [job for job in of_user if job_state(job) not in OVER]  # as in `malleable status`
    jobs.sort(key=lambda job: job.job_id)
    running = [(f, job) for job in jobs for f in job.fragments if _is_running(f)]
    running.sort(key=lambda pair: (pair[0].end is None, pair[0].end, pair[0].id))
    return Board(
        summary=_summary(report),
        jobs=tuple(_job_row(job, report) for job in jobs),
        holes=_hole_rows(seen),
        leases=tuple(_lease_row(fragment, job, seen.now) for fragment, job in running),
        actions=tuple(action_lines(report.plan.actions)),
    )


def job_lines(report: TickReport, job_id: int) -> tuple[str, ...]:
    """The lines of `malleable explain` on a job, empty if it is gone."""
    for job in report.snapshot.jobs:
        if job.job_id == job_id:
            return tuple(explain_lines(job, report.plan, report.at))
    return ()


def _summary(report: TickReport) -> tuple[str, ...]:
    """A line each on the nodes, the malleable jobs, unused resources, and the switches."""
    seen = report.snapshot
    states = Counter(node.state for node in seen.nodes)
    ours = len({name for job in seen.jobs for name in job.nodes})
    counted = ", ".join(f"{states[kind]} {kind.value}" for kind in NodeState if states[kind])
    jobs = plural(sum(bool(job.nodes) for job in seen.jobs), "malleable job")
    solve = report.plan.solve
    return (
        f"{shown(seen.now, seen.now)}  {plural(len(seen.nodes), 'node')}: {counted}",
        f"{ours} used by {jobs}  |  next tick: {plural(len(report.plan.actions), 'action')}, "
        f"{solve.solver}: {solve.status.value}",
        *unused_lines(report.unused),
        *(note_text(note, seen.now) for note in report.plan.notes if note.why in _SWITCHES),
    )


def _job_row(job: MalleableJob, report: TickReport) -> Row:
    plan = next((p for p in report.plan.jobs if p.job_id == job.job_id), None)
    ends = [f.end for f in job.active if f.end is not None]
    return (
        str(job.job_id),
        job.user,
        job_state(job),
        size_text(job),
        sizes(job, report.snapshot.now),
        str(plan.nodes_planned) if plan else "",
        f"in {minutes(min(ends) - report.snapshot.now)}" if ends else "",
        headline(reason_text(plan.reasons[0], report.snapshot.now, plan.unit))
        if plan and plan.reasons
        else "",
    )


def _hole_rows(seen: Snapshot) -> tuple[Row, ...]:
    """Idle nodes, a row for all holes with the same end and claim, the first to close first."""
    names: dict[Claim, list[str]] = {}
    for name, claim in idle_claims(seen).items():
        names.setdefault(claim, []).append(name)
    return tuple(
        (
            str(len(same)),
            shown(claim.start, seen.now) if claim.start else "no known end",
            _because(claim),
            fold(same),
        )
        for claim, same in sorted(names.items(), key=lambda row: _moment(row[0]))
    )


def _moment(claim: Claim) -> tuple[bool, str, str]:
    return (claim.start is None, str(claim.start), _because(claim))


def _because(claim: Claim) -> str:
    return "" if claim.kind is ClaimKind.NOBODY else f"{claim.kind.value}: {claim.by}"


def _is_running(fragment: Fragment) -> bool:
    return fragment.state is FragmentState.RUNNING


def _lease_row(fragment: Fragment, job: MalleableJob, now: datetime) -> Row:
    return (
        str(fragment.id),
        job.user,
        "leaving" if fragment.is_leaving else fragment.state.value,
        sized(fragment.size, job.request.size_unit),
        fold(fragment.nodes) if fragment.nodes else "",
        f"in {minutes(fragment.end - now)}" if fragment.end else "",
        str(fragment.restarts + 1),
    )
