"""The use of idle nodes, as tables for a terminal. The HTML page has the same words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Optional

from rich.console import Group, RenderableType
from rich.text import Text

from slurm_hooks.history.harvest.totals import Query, Sample, Share, Totals
from slurm_hooks.model import Why
from slurm_hooks.model.moments import local, noun_of, plural, shown
from slurm_hooks.report.promise import promise_text
from slurm_hooks.report.tables import Rows, table_of
from slurm_hooks.report.text import UNITS
from slurm_hooks.report.why import action_text, over_text

HOUR_S = 3600.0
NEGLIGIBLE = 0.001

WHY_IDLE = {
    Why.STARTING: "a fragment was starting there",
    Why.OBSERVED: "ticks only observed (mode.level = observe)",
    Why.OFF: "malleable jobs were switched off",
    Why.REGISTERING: "slurmctld had just started, and nodes had not reported yet",
    Why.NO_GROWTH: "the site had stopped all growth",
    Why.LIMIT: "malleable jobs made room for a job that waited for a limit",
    Why.NO_JOB: "no malleable job waited for more nodes",
    Why.HOLE_SHORT: "another job or reservation was due too soon",
    Why.UNFIT: "no waiting job could use the node",
    Why.SUSPECT: "fragments of several users had died there",
    Why.RESTING: "the waiting jobs had just shrunk or failed",
    Why.PROBED: "the waiting jobs had one size, so that their speed was measured",
    Why.CEILING: "the waiting jobs had as many nodes as the site allows",
    Why.NOT_GIVEN: "no job could use it well (minimum, unit, cost of a resize)",
}
HOW_ENDED = {
    Why.LEFT: "left as planned",
    Why.LEASE_ENDED: "lease ended",
    Why.FINISHED: "training finished",
    Why.CANCELLED: "cancelled",
    Why.PREEMPTED: "preempted",
    Why.NODE_FAILED: "node failed",
    Why.DIED: "died",
    Why.UNKNOWN: "not seen",
}


def headline(totals: Totals) -> tuple[str, ...]:
    """The sentences that matter most."""
    if totals.first is None or totals.last is None:
        return (f"the ledger has no tick {_span(totals.query.since, totals.query.until)}",)
    lines = [
        f"{_jobs_counted(totals.query)} used {_hours(totals.node_s)} of the "
        f"{_hours(totals.all_node_s + totals.idle_node_s)} node-hours that other jobs left idle "
        f"{_span(totals.first, totals.last)}",
        *_share_line(totals),
        _interruption_line(totals),
        _delay_line(totals),
        *_unused_lines(totals),
        *_core_lines(totals),
        *(promise_text(lane.terms, lane.kill_wait, lane.lease) for lane in totals.lanes),
    ]
    lines += _doubts(totals)
    return tuple(lines)


def _share_line(totals: Totals) -> list[str]:
    if totals.used_share is None:
        return []
    return [
        f"all malleable jobs used {_percent(totals.used_share)} of the node-hours left idle, and "
        f"{_percent(totals.efficiency)} of those that waiting malleable jobs could have used"
    ]


def _jobs_counted(query: Query) -> str:
    """The jobs that are counted, as the beginning of a sentence."""
    named = ("of user", query.user), ("of account", query.account)
    return " ".join(["Malleable jobs", *(f"{kind} {name}" for kind, name in named if name)])


def _interruption_line(totals: Totals) -> str:
    count = sum(end.count for end in totals.interruptions)
    if not count:
        return "no fragment was interrupted"
    cost = _hours(sum(end.node_s for end in totals.interruptions))
    return (
        f"{plural(count, 'fragment')} interrupted: at most {cost} node-hours of work were lost, if "
        "checkpoints had saved none of it"
    )


def _delay_line(totals: Totals) -> str:
    caused = totals.caused
    jobs = f"{plural(totals.starts, 'job')} with a published start"
    if not caused:
        return f"delays caused: 0 ({jobs}, and no late start with a fragment on its nodes)"
    worst = max(delay.held_s for delay in caused)
    return (
        f"delays caused: at most {sum(d.held_s for d in caused):.0f} s in all, {worst:.0f} s for a "
        f"single job; {len(caused)} of {jobs} started late, with fragments on their nodes"
    )


def _unused_lines(totals: Totals) -> list[str]:
    """A line on unused GPUs, or on unused CPUs if the site has no GPUs."""
    for name, unused in tuple(totals.unused.items())[:1]:
        share = _percent(unused.part / unused.total if unused.total else None)
        whole, idle, part, stranded = map(
            _hours, (unused.total, unused.idle, unused.part, unused.stranded)
        )
        unused_hours = f"{whole} {UNITS[name]}-hours stayed unused"
        if unused.idle == unused.total:
            return [f"{unused_hours}, all on idle nodes"]
        return [
            f"{unused_hours}: {idle} on idle nodes, {part} ({share}) on partly used nodes, and "
            f"{stranded} without a free CPU or memory beside them"
        ]
    return []


def _core_lines(totals: Totals) -> list[str]:
    if not totals.core_node_s:
        return []
    return [
        f"cores used {_hours(totals.core_node_s)} node-hours from the ordinary queue, which this "
        "report does not count"
    ]


def _doubts(totals: Totals) -> list[str]:
    lines = []
    if totals.unseen_s:
        lines.append(
            f"reasons are unknown for {_hours(totals.unseen_s)} of {_hours(totals.span_s)} hours, "
            "in which no tick ran"
        )
    if totals.uncertain_node_s > NEGLIGIBLE * totals.all_node_s:
        lines.append(
            f"{_hours(totals.uncertain_node_s)} node-hours of all jobs are estimated: Slurm did "
            "not report when they ended, so half of the time between two ticks counts"
        )
    return lines


def figures(totals: Totals) -> tuple[tuple[str, str], ...]:
    """The numbers to show large, each with its label."""
    held = [delay.held_s for delay in totals.caused]
    late = f"{len(held)} of {plural(totals.starts, 'start')}"
    return (
        (_hours(totals.node_s), "node-hours harvested"),
        (_percent(totals.used_share), "of the hours left idle"),
        (_percent(totals.efficiency), "of the hours that waiting jobs could use"),
        (str(sum(end.count for end in totals.interruptions)), "interruptions"),
        (
            f"{max(held, default=0):.0f} s",
            f"longest delay caused, at most. All delays together: {sum(held):.0f} s ({late})",
        ),
    )


def tables(totals: Totals) -> tuple[Rows, ...]:
    """All tables that have rows."""
    every = (
        _shares("By user", "user", totals.users),
        _shares("By account", "account", totals.accounts),
        _idle(totals),
        _unused(totals),
        _ends(totals),
        _vain(totals),
        _delays(totals),
        _done(totals),
        _jobs(totals),
        _ticks(totals),
    )
    return tuple(rows for rows in every if rows.rows)


def harvest_view(totals: Totals, jobs: int = 12) -> RenderableType:
    """The whole report for a terminal, with at most `jobs` rows a table."""
    lines = [Text(line, style="bold" if n == 0 else "") for n, line in enumerate(headline(totals))]
    parts: list[RenderableType] = [*lines]
    for rows in tables(totals):
        parts += ["", table_of(replace(rows, rows=rows.rows[:jobs]))]
        if (more := len(rows.rows) - jobs) > 0:
            parts.append(Text(f"and {more} more: see --json or --output FILE.html"))
    return Group(*parts)


def _shares(title: str, name: str, shares: Sequence[Share]) -> Rows:
    whole = sum(share.node_s for share in shares)
    rows = (
        (
            share.name or "(none)",
            _hours(share.node_s),
            _percent(share.node_s / whole if whole else None),
            str(share.jobs),
            str(share.releases),
            str(share.interruptions),
        )
        for share in shares
    )
    columns = (name, ">node-hours", ">share", ">jobs", ">starts", ">interruptions")
    return Rows(title, columns, tuple(rows))


def _idle(totals: Totals) -> Rows:
    left = totals.idle_node_s
    ranked = sorted(totals.idle.items(), key=lambda item: -item[1])
    rows = (
        (WHY_IDLE[reason], _hours(node_s), _percent(node_s / left if left else None))
        for reason, node_s in ranked
    )
    return Rows("Why nodes stayed idle", ("reason", ">node-hours", ">share"), tuple(rows))


def _unused(totals: Totals) -> Rows:
    known_s = totals.span_s - totals.unseen_s
    rows = (
        (
            *(f"{UNITS[name]}s", place, _hours(amount)),
            _percent(amount / unused.total if unused.total else None),
            f"{amount / known_s:,.1f}" if known_s > 0 else "-",
        )
        for name, unused in totals.unused.items()
        for place, amount in (
            ("on idle nodes", unused.idle),
            ("on partly used nodes", unused.part),
            ("stranded, without CPU or memory beside them", unused.stranded),
        )
    )
    columns = ("unused", "where", ">hours", ">share", ">on average")
    return Rows("Resources that no job used", columns, tuple(rows))


def _ends(totals: Totals) -> Rows:
    rows = (
        (
            HOW_ENDED[e.kind],
            "yes" if e in totals.interruptions else "no",
            str(e.count),
            _hours(e.node_s),
        )
        for e in totals.ends
    )
    columns = ("end", "interruption", ">runs", ">node-hours since start")
    return Rows("How runs of fragments ended", columns, tuple(rows))


def _vain(totals: Totals) -> Rows:
    rows = (
        (str(v.fragment), f"{v.nodes:g}", _hours(v.nodes * v.ran_s), _moment(v.ended))
        for v in totals.vain
    )
    columns = ("fragment", ">nodes", ">node-hours", "ended")
    return Rows("Fragments that held nodes without training", columns, tuple(rows))


def _delays(totals: Totals) -> Rows:
    rows = (
        (d.job_id, _moment(d.planned), f"{d.late_s:.0f}", f"{d.held_s:.0f}") for d in totals.delays
    )
    columns = ("job", "published start", ">late, s", ">by fragments at most, s")
    return Rows("Other jobs that started later than first published", columns, tuple(rows))


def _done(totals: Totals) -> Rows:
    rows = ((done.verb, action_text(done.cause), f"{done.fragments:,}") for done in totals.done)
    return Rows("Actions of ticks", ("action", "why", ">fragments"), tuple(rows))


def _jobs(totals: Totals) -> Rows:
    rows = (
        (
            *(str(j.job_id), j.user, j.account, _hours(j.node_s)),
            *(f"{j.least}-{j.most} {noun_of(j.unit)}s", f"{j.min_nodes}-{j.max_nodes}"),
            str(j.interruptions),
            over_text(j.over, j.stop),
        )
        for j in totals.jobs
    )
    columns = (
        *("job", "user", "account", ">node-hours", ">size", ">min-max"),
        *(">interruptions", "end"),
    )
    return Rows("Jobs, over their whole lives", columns, tuple(rows))


def _ticks(totals: Totals) -> Rows:
    ticks = totals.ticks
    if not ticks.count:
        return Rows("", (), ())
    row = (
        *(str(ticks.count), f"{ticks.mean_s:.3f}", f"{ticks.longest_s:.3f}"),
        *(f"{ticks.rpcs / ticks.count:.1f}", str(ticks.refused)),
    )
    columns = (">ticks", ">mean, s", ">longest, s", ">RPCs each", ">changes refused")
    return Rows("Ticks", columns, (row,))


def _hours(seconds: float) -> str:
    hours = seconds / HOUR_S
    decimals = 0 if hours >= 1000 else 1 if hours >= 10 else 2 if hours >= 1 else 3
    return f"{hours:,.{decimals}f}"


def _percent(share: Optional[float]) -> str:
    return "-" if share is None else f"{share:.1%}"


def moments(samples: Sequence[Sample]) -> list[datetime]:
    """The moments of a picture in the local time at its end. They stay in order if the clock was
    changed in between."""
    zone = local(samples[-1].at).tzinfo if samples else None
    return [sample.at.astimezone(zone).replace(tzinfo=None) for sample in samples]


def _moment(when: datetime) -> str:
    return shown(when)


def _span(since: datetime, until: datetime) -> str:
    return f"from {_moment(since)} to {_moment(until)}"
