"""What was made of idle nodes, as tables for a terminal; the same words serve the HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Optional

from rich.console import Group, RenderableType
from rich.text import Text

from slurm_hooks.books.harvest.totals import Asked, Sample, Share, Totals
from slurm_hooks.model import Why
from slurm_hooks.model.moments import local, shown
from slurm_hooks.model.plural import noun_of, plural
from slurm_hooks.report.promise import promise_text
from slurm_hooks.report.tables import Rows, table_of
from slurm_hooks.report.text import UNITS
from slurm_hooks.report.why import action_text, over_text

HOUR_S = 3600.0
NEGLIGIBLE = 0.001

WHY_IDLE = {
    Why.STARTING: "a fragment was on its way",
    Why.OBSERVED: "a fragment would have started, but ticks only observed",
    Why.OFF: "malleable jobs were switched off",
    Why.REGISTERING: "slurmctld had begun, and nodes had not told it what ran on them",
    Why.NO_GROWTH: "the site wanted no growth",
    Why.CANARY: "only a canary's jobs and nodes were used",
    Why.LIMIT: "jobs that could use it made room for one that waited for a limit",
    Why.NO_JOB: "no malleable job waited for more nodes",
    Why.HOLE_SHORT: "another job or reservation was due too soon",
    Why.UNFIT: "no waiting job could use the node",
    Why.SUSPECT: "fragments of several users had died there",
    Why.RESTING: "jobs that could use it were not to grow yet",
    Why.CEILING: "jobs that could use it had as many nodes as the site allows",
    Why.NOT_GIVEN: "left by the allocator (minimum, unit, cost of a resize)",
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
        return (f"the ledger has no tick {_span(totals.asked.since, totals.asked.until)}",)
    lines = [
        f"{_whose(totals.asked)} used {_hours(totals.node_s)} of the "
        f"{_hours(totals.all_node_s + totals.idle_node_s)} node-hours that other jobs left idle "
        f"{_span(totals.first, totals.last)}",
        *_share_line(totals),
        _hit_line(totals),
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
        f"all malleable jobs used {_percent(totals.used_share)} of what others left idle, and "
        f"{_percent(totals.efficiency)} of what those that waited could have used"
    ]


def _whose(asked: Asked) -> str:
    """Whose jobs are counted, as the beginning of a sentence."""
    named = ("of user", asked.user), ("of account", asked.account)
    return " ".join(["Malleable jobs", *(f"{kind} {name}" for kind, name in named if name)])


def _hit_line(totals: Totals) -> str:
    count = sum(end.count for end in totals.interruptions)
    if not count:
        return "no fragment was interrupted"
    cost = _hours(sum(end.node_s for end in totals.interruptions))
    return (
        f"{plural(count, 'fragment')} interrupted: at most {cost} node-hours of work lost, counted "
        "from their starts; checkpoints may have saved most of it"
    )


def _delay_line(totals: Totals) -> str:
    caused = totals.caused
    of = f"of {plural(totals.starts, 'job')} whose start Slurm had published"
    if not caused:
        return f"delays caused: 0 ({of}, none was late while one of ours was on a node of its plan)"
    worst = max(delay.held_s for delay in caused)
    return (
        f"delays caused: at most {len(caused)} {of}, {sum(d.held_s for d in caused):.0f} s in all, "
        f"{worst:.0f} s the longest: late while one of ours was on a node of its plan"
    )


def _unused_lines(totals: Totals) -> list[str]:
    """Of GPUs, where there are any, else of CPUs."""
    for name, unused in tuple(totals.unused.items())[:1]:
        share = _percent(unused.part / unused.total if unused.total else None)
        whole, idle, part, stranded = map(
            _hours, (unused.total, unused.idle, unused.part, unused.stranded)
        )
        return [
            f"no job used {whole} {UNITS[name]}-hours: {idle} on idle nodes, {part} ({share}) on "
            f"partly used nodes, and {stranded} with no CPU or memory left beside them"
        ]
    return []


def _core_lines(totals: Totals) -> list[str]:
    if not totals.core_node_s:
        return []
    return [
        f"cores had {_hours(totals.core_node_s)} node-hours from the ordinary queue, which are not "
        "counted here"
    ]


def _doubts(totals: Totals) -> list[str]:
    lines = []
    if totals.unseen_s:
        lines.append(
            f"for {_hours(totals.unseen_s)} of {_hours(totals.span_s)} hours no tick says why "
            "nodes were idle"
        )
    if totals.uncertain_node_s > NEGLIGIBLE * totals.all_node_s:
        lines.append(
            f"{_hours(totals.uncertain_node_s)} node-hours of all jobs rest on ends whose moment "
            "Slurm did not say: half of the time between two ticks is counted"
        )
    return lines


def figures(totals: Totals) -> tuple[tuple[str, str], ...]:
    """The numbers that are shown large, each with what it means."""
    held_s = sum(delay.held_s for delay in totals.caused)
    return (
        (_hours(totals.node_s), "node-hours harvested"),
        (_percent(totals.used_share), "of what others left idle"),
        (_percent(totals.efficiency), "of what waiting jobs could use"),
        (str(sum(end.count for end in totals.interruptions)), "interruptions"),
        (f"{held_s:.0f} s", f"delay caused at most, of {totals.starts} published starts"),
    )


def tables(totals: Totals) -> tuple[Rows, ...]:
    """All tables; empty ones are left out."""
    found = (
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
    return tuple(rows for rows in found if rows.rows)


def harvest_view(totals: Totals, jobs: int = 12) -> RenderableType:
    """Everything for a terminal, with so many lines of jobs at most."""
    lines = [Text(line, style="bold" if n == 0 else "") for n, line in enumerate(headline(totals))]
    parts: list[RenderableType] = [*lines]
    for rows in tables(totals):
        parts += ["", table_of(replace(rows, rows=rows.rows[:jobs]))]
        if (more := len(rows.rows) - jobs) > 0:
            parts.append(Text(f"and {more} more: see them with --json or --html FILE"))
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
    columns = (name, ">node-hours", ">share", ">jobs", ">releases", ">hits")
    return Rows(title, columns, tuple(rows))


def _idle(totals: Totals) -> Rows:
    left = totals.idle_node_s
    ranked = sorted(totals.idle.items(), key=lambda item: -item[1])
    rows = (
        (WHY_IDLE[reason], _hours(node_s), _percent(node_s / left if left else None))
        for reason, node_s in ranked
    )
    return Rows("What stayed idle, and why", ("reason", ">node-hours", ">share"), tuple(rows))


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
            ("stranded: no CPU or memory beside them", unused.stranded),
        )
    )
    columns = ("what", "where", ">hours", ">share", ">on average")
    return Rows("What no job used, and where", columns, tuple(rows))


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
    columns = ("how", "a hit?", ">runs", ">node-hours since start")
    return Rows("How runs of fragments ended", columns, tuple(rows))


def _vain(totals: Totals) -> Rows:
    rows = (
        (str(v.fragment), str(v.nodes), _hours(v.nodes * v.ran_s), _moment(v.ended))
        for v in totals.vain
    )
    columns = ("fragment", ">nodes", ">node-hours", "ended")
    return Rows(
        "Fragments that joined no round: they held nodes and trained nothing", columns, tuple(rows)
    )


def _delays(totals: Totals) -> Rows:
    rows = (
        (d.job_id, _moment(d.planned), f"{d.late_s:.0f}", f"{d.held_s:.0f}") for d in totals.delays
    )
    columns = ("job", "published start", ">late, s", ">of it ours at most, s")
    return Rows("Jobs of others that started later than first published", columns, tuple(rows))


def _done(totals: Totals) -> Rows:
    rows = ((done.verb, action_text(done.cause), f"{done.fragments:,}") for done in totals.done)
    return Rows("What ticks did to fragments, and why", ("what", "why", ">fragments"), tuple(rows))


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
    columns = ("job", "user", "account", ">node-hours", ">size", ">asked", ">hits", "end")
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
    return Rows("The ticks themselves", columns, (row,))


def _hours(seconds: float) -> str:
    hours = seconds / HOUR_S
    decimals = 0 if hours >= 1000 else 1 if hours >= 10 else 2 if hours >= 1 else 3
    return f"{hours:,.{decimals}f}"


def _percent(share: Optional[float]) -> str:
    return "-" if share is None else f"{share:.1%}"


def moments(samples: Sequence[Sample]) -> list[datetime]:
    """The moments of a picture as a clock on the wall showed them at its end; where the clock was
    changed meanwhile they still follow each other."""
    zone = local(samples[-1].at).tzinfo if samples else None
    return [sample.at.astimezone(zone).replace(tzinfo=None) for sample in samples]


def _moment(when: datetime) -> str:
    return shown(when)


def _span(since: datetime, until: datetime) -> str:
    return f"from {_moment(since)} to {_moment(until)}"
