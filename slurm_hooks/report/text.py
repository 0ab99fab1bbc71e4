"""Lines and tables for people, with colours on a terminal only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Optional

from rich.table import Table

from slurm_hooks.model import (
    WAITING_STATES,
    Fragment,
    FragmentState,
    Intent,
    MalleableJob,
    Plan,
    Request,
    Snapshot,
    Solve,
    Why,
)
from slurm_hooks.model.moments import plural, shown, sized
from slurm_hooks.model.resources import GPU
from slurm_hooks.model.unused import CPU, Unused
from slurm_hooks.report.hints import hints
from slurm_hooks.report.tables import Rows, fitted, table_of
from slurm_hooks.report.why import action_text, headline, note_text, reason_text
from slurm_hooks.slurm.actions import ranges
from slurm_hooks.slurm.text import fold
from slurm_hooks.tick.report import TickReport


def action_lines(intents: Iterable[Intent]) -> list[str]:
    """A line for each fragment. Fragments of a job that are cancelled together share a line."""
    groups: dict[object, list[Intent]] = {}
    for intent in intents:
        is_alone = intent.parts != ("cancel",)
        key = intent.fragment if is_alone else (intent.fragment.job_id, intent.cause)
        groups.setdefault(key, []).append(intent)
    return list(map(_action_line, groups.values()))


def _action_line(group: Sequence[Intent]) -> str:
    intent = group[0]
    line = f"{', '.join(intent.parts)} {' '.join(ranges(i.fragment for i in group))}"
    if intent.nodes:
        request = intent.mark.request if intent.mark else None
        has = f" with {_size(intent.size, request)}" if request and request.slot else ""
        line += f" on {fold(intent.nodes)}{has} for {minutes(intent.limit)}"
    if intent.end is not None:
        line += f" until {shown(intent.end)}"
    return f"{line}: {action_text(intent.cause.value)}"


def _size(number: int, request: Request) -> str:
    return sized(number, request.size_unit)


def minutes(span: timedelta) -> str:
    """A duration in Slurm's form, `10:00` or `1:30:00`."""
    total = int(abs(span.total_seconds()))
    hours, rest = divmod(total, 3600)
    text = f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
    return f"-{text}" if span < timedelta(0) else text


def tick_lines(report: TickReport) -> list[str]:
    """The actions of a tick, a line each, and a summary. A dry tick also lists unused resources."""
    verb = "would " if report.is_dry else ""
    lines = [f"{verb}{line}" for line in action_lines(report.plan.actions)]
    lines += [f"refused by Slurm: {text}" for text in report.refused]
    lines += [f"note: {note_text(note, report.at)}" for note in report.plan.notes]
    lines += [f"note: {line}" for line in no_parts_lines(report.snapshot)]
    if report.is_dry:
        lines += unused_lines(report.unused)
    lines.append(
        f"tick at {shown(report.at)}: {plural(len(report.plan.actions), 'action')}, "
        f"{plural(len(report.snapshot.jobs), 'job')}, {plural(report.rpcs, 'RPC')}, "
        f"{report.seconds:.2f} s; {solve_line(report.plan.solve)}"
    )
    return lines


def no_parts_lines(seen: Snapshot) -> list[str]:
    """The reasons why parts of nodes are not used, a line for each of Slurm's settings."""
    return [f"parts of nodes are not used: {line}" for line in seen.no_parts]


UNITS = {GPU: "GPU", CPU: "CPU"}


def unused_lines(unused: Mapping[str, Unused]) -> list[str]:
    """The unused amounts, a line for each resource."""
    return [_unused_line(UNITS[name], amount) for name, amount in unused.items()]


def _unused_line(unit: str, unused: Unused) -> str:
    places = (
        f"{unused.idle:.0f} on idle nodes",
        f"{unused.part:.0f} on partly used nodes",
        f"{unused.stranded:.0f} stranded",
    )
    return f"{plural(round(unused.total), unit)} that no job uses: {', '.join(places)}"


def solve_line(solve: Solve) -> str:
    """The solver of the allocation, its status and its time."""
    why = f" ({solve.reason})" if solve.reason else ""
    return f"{solve.solver}: {solve.status.value} in {solve.seconds:.3f} s{why}"


def jobs_table(
    jobs: Sequence[MalleableJob],
    now: datetime,
    names: Mapping[int, str],
    reasons: Mapping[int, str],
    width: int,
) -> Table:
    """Malleable jobs, a line each, in `width` columns. `names` and `reasons` are by job id. The
    reason is the column that is cut."""
    heads = ("JOBID", "NAME", "USER", "STATE", "SIZE", "MIN-MAX", "LEASE ENDS", "WHY")
    rows = ((*_job_row(job, now, names), headline(reasons.get(job.job_id, ""))) for job in jobs)
    return table_of(fitted(Rows("", heads, tuple(rows)), width))


def _job_row(job: MalleableJob, now: datetime, names: Mapping[int, str]) -> tuple[str, ...]:
    return (
        str(job.job_id),
        names.get(job.job_id, ""),
        job.user,
        job_state(job),
        size_text(job),
        sizes(job, now),
        _next_end(job, now),
    )


def size_text(job: MalleableJob) -> str:
    """The size of a job, and the size of its fragments that were asked to leave: a column has room
    for `0 nodes, 3 leave`."""
    running = (f for f in job.fragments if f.state is FragmentState.RUNNING)
    leaving = sum(f.size for f in running if f.is_leaving)
    verb = "leaves" if leaving == 1 else "leave"
    return _size(job.size, job.request) + (f", {leaving} {verb}" if leaving else "")


def sizes(job: MalleableJob, now: datetime) -> str:
    """The range of sizes in the request, and the job's wish if it has a wish."""
    wish = job.wish(now)
    range_ = f"{job.request.min_nodes}-{job.request.max_nodes}"
    return range_ if wish is None else f"{range_}, wish {wish.nodes}"


OVER = frozenset({"stopped", "cancelled", "ended"})  # of the words below


def job_state(job: MalleableJob) -> str:
    """The state of a whole job in a word. A core in its queue may wait there for days."""
    states = {f.state for f in job.fragments}
    if any(f.mark.stopped for f in job.fragments):
        return "stopped"
    if FragmentState.RUNNING in states:
        if not job.active:
            return "leaving"
        return "running" if job.size >= job.request.min_nodes else "below min"
    if any(f.state is FragmentState.PENDING and not f.is_core for f in job.fragments):
        return "starting"
    if states & {*WAITING_STATES, FragmentState.PENDING}:
        return "waiting"
    for state in (FragmentState.ENDING, FragmentState.SUSPENDED, FragmentState.UNKNOWN):
        if state in states:
            return str(state.value)
    return "cancelled" if states == {FragmentState.CANCELLED} else "ended"


def _next_end(job: MalleableJob, now: datetime) -> str:
    ends = [f.end for f in job.active if f.end is not None]
    return f"in {minutes(min(ends) - now)}" if ends else ""


def fragments_table(job: MalleableJob, now: datetime) -> Table:
    """All fragments of a job."""
    heads = ("FRAGMENT", "STATE", "SIZE", "NODES", "LEASE ENDS", "STARTS", "NOTE")
    return table_of(Rows("", heads, tuple(_fragment_row(f, now) for f in job.fragments)))


def _fragment_row(fragment: Fragment, now: datetime) -> tuple[str, ...]:
    is_running = fragment.state is FragmentState.RUNNING
    return (
        str(fragment.id),
        "leaving" if fragment.is_leaving and is_running else fragment.state.value,
        _size(fragment.size, fragment.mark.request) if is_running else "",
        fold(fragment.nodes) if fragment.nodes and is_running else "",
        _lease_end(fragment, now) if is_running else "",
        str(_starts(fragment)),
        fragment.mark.stopped,
    )


def _starts(fragment: Fragment) -> int:
    """How often it has started. A waiting fragment may have the start that Slurm plans, and a
    fragment that was cancelled before it ran starts at its end."""
    waits = fragment.state in {*WAITING_STATES, FragmentState.PENDING}
    never_ran = fragment.state is FragmentState.CANCELLED and fragment.start == fragment.end
    return fragment.restarts + bool(fragment.start and not waits and not never_ran)


def _lease_end(fragment: Fragment, now: datetime) -> str:
    return f"in {minutes(fragment.end - now)}" if fragment.end else ""


def explain_lines(
    job: MalleableJob,
    plan: Plan,
    now: datetime,
    remarks: Sequence[str] = (),
    advice: Sequence[str] = (),
    known: Sequence[str] = (),
) -> list[str]:
    """The reasons for the size of a job. `remarks` are the job's own words, which are quoted,
    `advice` is for its user, `known` are lines on how it scales."""
    planned = next((p for p in plan.jobs if p.job_id == job.job_id), None)
    request = job.request
    head = (
        f"job {job.job_id} of {job.user}: {job_state(job)}, {size_text(job)} of "
        f"{sizes(job, now)}{_places(job)}, engine {request.engine}"
    )
    if job_state(job) not in OVER:
        head += f", lease {minutes(request.lease)}, shortest hole {minutes(request.shortest_hole)}"
    lines = [head]
    lines += [note_text(note, now) for note in plan.notes if note.why is Why.OBSERVED]
    if planned is not None:
        if planned.nodes_planned != planned.nodes_now:
            lines.append(f"the next tick takes it to {sized(planned.nodes_planned, planned.unit)}")
        lines += [reason_text(reason, now, planned.unit) for reason in planned.reasons]
    lines += known
    lines += [f"hint: {line}" for line in (*hints(job), *advice)]
    lines += remark_lines(remarks)
    mine = {f.id for f in job.fragments}
    todo = action_lines(i for i in plan.actions if i.fragment in mine)
    return [*lines, *(f"next tick: {line}" for line in todo)]


def _places(job: MalleableJob) -> str:
    """The nodes of a job that counts parts of nodes."""
    return f", on {fold(job.nodes)}" if job.request.slot and job.nodes else ""


def remark_lines(remarks: Sequence[str]) -> list[str]:
    """The job's own words in quotes, with inner quotes replaced."""
    texts = (text.replace('"', "'") for text in remarks)
    return [f'the job reports: "{text}"' for text in texts]


def find_job(snapshot: Snapshot, job_id: int) -> Optional[MalleableJob]:
    """The job with this id, or None."""
    return next((job for job in snapshot.jobs if job.job_id == job_id), None)
