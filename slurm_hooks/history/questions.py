"""Answers from the ledger: totals of a span, the losses of a job, and the source of metrics."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Optional

from slurm_hooks.history.database import Unusable
from slurm_hooks.history.harvest.events import ENDS, LONGEST, RELEASES, USED
from slurm_hooks.history.harvest.jobs import (
    LOOP_S,
    Interruptions,
    JobLine,
    Loop,
    Loss,
    loop_of,
    moments_of,
)
from slurm_hooks.history.harvest.totals import (
    Ends,
    Query,
    Sample,
    Share,
    Standing,
    Ticks,
    Totals,
    VainRun,
)
from slurm_hooks.history.harvest.values import INTERRUPTIONS, Delay, Done
from slurm_hooks.history.ledger import TOTAL, last_seen, line_of
from slurm_hooks.model import FragmentId, Of, Why
from slurm_hooks.model.job import NODE
from slurm_hooks.model.moments import moment
from slurm_hooks.model.resources import GPU
from slurm_hooks.model.unused import CPU, Unused

SAMPLES = 360  # points of a picture
JOBS = 200  # lines of jobs in a report, most used first
_IN_SPAN = "at > :since AND at <= :until"
_OF_USER = "(:user = '' OR user = :user) AND (:account = '' OR account = :account)"
_LOST = frozenset(kind.value for kind in INTERRUPTIONS)
_Rows = list[tuple[Any, ...]]
_Ask = Callable[[str], _Rows]
_Sums = Mapping[str, Mapping[str, float]]  # name, label, sum


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """Raise Unusable where a row has another form than ticks write. No tick reads such rows."""
    try:
        yield
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise Unusable(
            f"a row cannot be read ({error}): move the file away, and the next tick begins another"
        ) from error


@_readable()
def totals(ledger: sqlite3.Connection, query: Query) -> Totals:
    """Return the totals of a span, for all jobs or for the jobs of a user or account. Raises
    Damaged and Unusable."""
    since, until = query.since.timestamp(), query.until.timestamp()
    values = {"since": since, "until": until, "user": query.user, "account": query.account}

    def ask(question: str) -> _Rows:
        return ledger.execute(question, values).fetchall()

    sums = _sums(ask(f"SELECT name, label, {TOTAL} FROM event WHERE {_IN_SPAN} GROUP BY 1, 2"))
    by_job = ask(
        f"SELECT name, label, sum(value), job.id, user, coalesce(account, '') FROM event "
        f"JOIN job ON job.id = event.job WHERE {_IN_SPAN} AND {_OF_USER} GROUP BY 1, 2, 4"
    )
    is_all = not (query.user or query.account)
    mine = sums if is_all else _sums(row[:3] for row in by_job)
    whole = defaultdict(float, {name: sum(of.values()) for name, of in sums.items()})
    span = f"SELECT min(at), max(at) FROM event WHERE name = 'ticks' AND {_IN_SPAN}"
    first, last = ask(span)[0]
    seen = last_seen(ledger)
    return Totals(
        query=query,
        first=None if first is None else moment(first),
        last=None if last is None else moment(last),
        span_s=whole["span_seconds"],
        unseen_s=whole["unseen_seconds"],
        node_s=sum(mine.get(USED, {}).values()),
        all_node_s=whole[USED],
        uncertain_node_s=whole["uncertain_node_seconds"],
        idle=_by_why(sums, "idle_node_seconds", Of.IDLE),
        users=_shares(by_job, 4),
        accounts=_shares(by_job, 5),
        jobs=_jobs(ask),
        ends=_ends(mine),
        done=_done(sums),
        delays=_delays(ask),
        starts=int(whole["promised_starts"]),
        ticks=_ticks(whole),
        samples=_samples(ask, first, last),
        vain=_vain(ask),
        unused=_unused(sums),
        core_node_s=whole["core_node_seconds"],
        lanes=seen.lanes if seen else (),
    )


def _jobs(ask: _Ask) -> tuple[JobLine, ...]:
    rows = ask(
        f"SELECT account, line FROM job WHERE last_at > :since AND first_at <= :until "
        f"AND {_OF_USER} ORDER BY node_s DESC, job_id LIMIT {JOBS}"
    )
    return tuple(filter(None, map(line_of, rows)))


def _vain(ask: _Ask) -> tuple[VainRun, ...]:
    rows = ask(
        f"SELECT at, job_id, part, more FROM event JOIN job ON job.id = event.job "
        f"WHERE {_IN_SPAN} AND {_OF_USER} AND name = '{ENDS}'"
    )
    ends = ((*row[:3], json.loads(row[3])) for row in rows)
    runs = [
        VainRun(FragmentId(job_id, index), moment(at), run["nodes"], run["ran_s"])
        for at, job_id, index, run in ends
        if run["cause"] == Why.NOT_TRAINING.value
    ]
    return tuple(sorted(runs, key=lambda run: -run.nodes * run.ran_s)[:JOBS])


def _delays(ask: _Ask) -> tuple[Delay, ...]:
    rows = ask(
        f"SELECT value, more FROM event WHERE {_IN_SPAN} AND name = 'delay_seconds' "
        "ORDER BY value DESC, at"
    )
    details = [(float(held_s), json.loads(more)) for held_s, more in rows]
    return tuple(
        Delay(one["job_id"], moment(one["planned"]), moment(one["started"]), held_s)
        for held_s, one in details
    )


def _samples(ask: _Ask, first: Optional[float], last: Optional[float]) -> tuple[Sample, ...]:
    """Return means over spans of equal length, for each point of a picture."""
    if first is None or last is None:
        return ()
    width = max((last - first) / SAMPLES, 1e-3)
    rows = ask(
        f"SELECT cast((at - {first!r}) / {width!r} AS INTEGER), min(at), name, label, "
        f"sum(value) FROM event WHERE {_IN_SPAN} AND name IN ('ticks', 'nodes', 'idle_nodes') "
        "GROUP BY 1, 3, 4 ORDER BY 1"
    )
    points: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for point, *row in rows:
        points[point].append(tuple(row))
    return tuple(map(_sample, points.values()))


def _sums(rows: Iterable[tuple[Any, ...]]) -> _Sums:
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for name, label, value in rows:
        sums[name][label] += value
    return sums


def _by_why(sums: _Sums, name: str, of: Of) -> dict[Why, float]:
    """Return the sums by reason. A later version may have more reasons."""
    labels = sums.get(name, {})
    return {why: labels[why.value] for why in of.whys if why.value in labels}


def _shares(rows: Iterable[tuple[Any, ...]], column: int) -> tuple[Share, ...]:
    """Return the harvest by the column, most used first."""
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    jobs: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        who, (name, label, value, job) = row[column], row[:4]
        if name in (USED, RELEASES):
            jobs[who].add(job)
        if name != ENDS or label in _LOST:
            sums[who][name] += value
    shares = (
        Share(who, s[USED], len(jobs[who]), int(s[RELEASES]), int(s[ENDS]))
        for who, s in sums.items()
        if who in jobs
    )
    return tuple(sorted(shares, key=lambda share: -share.node_s))


def _ends(sums: _Sums) -> tuple[Ends, ...]:
    node_s = sums.get("ended_node_seconds", {})
    counts = _by_why(sums, ENDS, Of.END)
    return tuple(Ends(w, int(n), node_s.get(w.value, 0.0)) for w, n in counts.items())


def _done(sums: _Sums) -> tuple[Done, ...]:
    parted = ((label.rpartition(" "), int(n)) for label, n in sums.get("done", {}).items())
    rows = (Done(verb, cause, n) for (verb, _, cause), n in parted)
    return tuple(sorted(rows, key=lambda row: -row.fragments))


def _unused(sums: _Sums) -> dict[str, Unused]:
    named = ((name, sums.get(f"unused_{name}_seconds")) for name in (GPU, CPU))
    return {name: Unused(**amounts) for name, amounts in named if amounts}


def _ticks(whole: Mapping[str, float]) -> Ticks:
    count = int(whole["ticks"])
    if not count:
        return Ticks()
    asked, refused = int(whole["rpcs"]), int(whole["refused_changes"])
    return Ticks(count, whole["tick_seconds"] / count, whole[LONGEST], asked, refused)


def _sample(rows: list[tuple[Any, ...]]) -> Sample:
    sums = _sums(row[1:] for row in rows)
    count, nodes = sums["ticks"][""], sums["nodes"]
    ours, busy, out = (nodes[use] / count for use in ("ours", "others", "out_of_service"))
    idle = {why: number / count for why, number in _by_why(sums, "idle_nodes", Of.IDLE).items()}
    return Sample(moment(min(row[0] for row in rows)), ours, busy, out, idle)


def interruptions_of(ledger: sqlite3.Connection, job_id: int) -> Optional[Interruptions]:
    """Return a job's interruptions, or None if the ledger does not know the job's line."""
    row = ledger.execute(
        "SELECT id, account, line FROM job WHERE job_id = ? ORDER BY id DESC LIMIT 1", (job_id,)
    ).fetchone()
    line = line_of(row[1:]) if row else None
    if line is None:
        return None
    ends = ledger.execute(
        f"SELECT at, label FROM event WHERE job = ? AND more > '' AND name = '{ENDS}' ORDER BY at",
        row[:1],
    )
    ran_s = (line.last - line.first).total_seconds()
    if line.unit == NODE:
        ran_s = min(ran_s, line.node_s / max(1, line.least))
    return Interruptions(moments_of(at for at, label in ends if label in _LOST), ran_s)


@_readable()
def loop_in(ledger: sqlite3.Connection, job_id: int, now: datetime) -> Optional[Loop]:
    """Return the preemption loop of a job, or None. Raises Unusable."""
    rows = ledger.execute(
        "SELECT at, label, more FROM event JOIN job ON job.id = event.job "
        f"WHERE job_id = ? AND at >= ? AND more > '' AND name = '{ENDS}' ORDER BY at",
        (job_id, now.timestamp() - LOOP_S),
    )
    runs = ((at, label, json.loads(more)) for at, label, more in rows)
    taken = ((at, run) for at, how, run in runs if how == Why.PREEMPTED.value or run["taker"])
    return loop_of([Loss(at, run["taker"], tuple(run["taken"])) for at, run in taken])


def standing(ledger: sqlite3.Connection) -> Standing:
    """Return each sum since the ledger began, and how things stood after the last tick."""
    rows = ledger.execute("SELECT name, label, value FROM standing").fetchall()
    (pages,) = ledger.execute("PRAGMA page_count").fetchone()
    (page,) = ledger.execute("PRAGMA page_size").fetchone()
    values = {(name, label): value for name, label, value in rows}
    return {**values, ("ledger_bytes", ""): pages * page}
