"""Reads the ledger: the memory of the last tick, and totals of a span."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Optional

from slurm_hooks.books.harvest.codec import from_text
from slurm_hooks.books.harvest.lives import (
    LOOP_S,
    Interruptions,
    Life,
    Loop,
    Loss,
    loop_of,
    moments_of,
)
from slurm_hooks.books.harvest.totals import (
    Ends,
    JobLine,
    LastTick,
    Query,
    Sample,
    Share,
    Standing,
    Ticks,
    Totals,
    VainRun,
)
from slurm_hooks.books.harvest.values import INTERRUPTIONS, Delay, Done, LaneWait, Seen
from slurm_hooks.books.ledger.schema import HOUR_S, hour_of
from slurm_hooks.model import FragmentId, Of, Why
from slurm_hooks.model.job import NODE
from slurm_hooks.model.moments import moment
from slurm_hooks.model.unused import Unused

SAMPLES = 360  # points of a picture
JOBS = 200  # lines of jobs in a report, most used first


def last_seen(ledger: sqlite3.Connection) -> Optional[Seen]:
    """Return the memory of the last tick, or None before the first. Raises ValueError."""
    row = ledger.execute("SELECT seen FROM last").fetchone()
    return from_text(row[0]) if row else None


def without_account(ledger: sqlite3.Connection, job_ids: Iterable[int]) -> tuple[int, ...]:
    """Return the jobs whose account the ledger does not know."""
    known = {r[0] for r in ledger.execute("SELECT job_id FROM job WHERE account IS NOT NULL")}
    return tuple(job_id for job_id in job_ids if job_id not in known)


def totals(ledger: sqlite3.Connection, query: Query) -> Totals:
    """Return the totals of a span.

    The usage of each job is kept by the hour, so totals of users, accounts and jobs count whole
    hours. For a user or account the whole span is widened to full hours."""
    whole = _Part(ledger, query)
    tick = whole.tick()
    shares = whole.users()
    is_all = not (query.user or query.account)
    return Totals(
        query=query,
        first=moment(tick["first"]) if tick["count"] else None,
        last=moment(tick["last"]) if tick["count"] else None,
        span_s=tick["span_s"],
        unseen_s=tick["unseen_s"],
        node_s=tick["node_s"] if is_all else sum(share.node_s for share in shares),
        all_node_s=tick["node_s"],
        uncertain_node_s=tick["uncertain_node_s"],
        idle=whole.idle(),
        users=shares,
        accounts=whole.accounts(),
        jobs=whole.jobs(),
        ends=whole.ends(),
        done=whole.done(),
        delays=whole.delays(),
        starts=tick["starts"],
        ticks=Ticks(tick["count"], tick["mean"], tick["longest"], tick["rpcs"], tick["refused"]),
        samples=whole.samples(),
        vain=whole.vain(),
        unused=whole.unused(),
        core_node_s=tick["core_node_s"],
        lanes=_lanes(ledger),
    )


def _lanes(ledger: sqlite3.Connection) -> tuple[LaneWait, ...]:
    with contextlib.suppress(ValueError):
        seen = last_seen(ledger)
        return seen.lanes if seen else ()
    return ()


class _Part:
    """A span of the ledger, for all jobs or for the jobs of a user or account."""

    def __init__(self, ledger: sqlite3.Connection, query: Query) -> None:
        ledger.row_factory = sqlite3.Row
        self._ledger = ledger
        since, until = query.since.timestamp(), query.until.timestamp()
        first, last = int(since // HOUR_S), hour_of(until)
        if query.user or query.account:
            since, until = first * HOUR_S, (last + 1) * HOUR_S
        self._values: dict[str, Any] = {
            "since": since,
            "until": until,
            "first_hour": first,
            "last_hour": last,
            "user": query.user,
            "account": query.account,
        }

    def _rows(self, question: str, **more: object) -> list[sqlite3.Row]:
        return self._ledger.execute(question, {**self._values, **more}).fetchall()

    def tick(self) -> dict[str, Any]:
        spans = ("span_s", "unseen_s", "node_s", "uncertain_node_s", "core_node_s")
        sums = (*spans, "rpcs", "refused", "starts")
        (row,) = self._rows(
            f"SELECT count(*) AS count, min(at) AS first, max(at) AS last, "
            f"coalesce(avg(seconds), 0) AS mean, coalesce(max(seconds), 0) AS longest, "
            f"{', '.join(f'coalesce(sum({name}), 0) AS {name}' for name in sums)} "
            f"FROM tick WHERE at > :since AND at <= :until"
        )
        return dict(row)

    def idle(self) -> dict[Why, float]:
        rows = self._rows(
            "SELECT reason, sum(idle.node_s) AS node_s FROM idle JOIN tick ON tick.id = idle.tick "
            "WHERE at > :since AND at <= :until GROUP BY reason"
        )
        node_s = {row["reason"]: row["node_s"] for row in rows}
        return {reason: node_s[reason.value] for reason in Of.IDLE.whys if reason.value in node_s}

    def unused(self) -> dict[str, Unused]:
        rows = self._rows(
            "SELECT resource, sum(idle_s), sum(part_s), sum(stranded_s) FROM unused "
            f"JOIN tick ON tick.id = unused.tick WHERE {_IN_SPAN} GROUP BY resource"
        )
        return _by_resource(rows)

    def users(self) -> tuple[Share, ...]:
        return self._shares("user")

    def accounts(self) -> tuple[Share, ...]:
        return self._shares("account")

    def _shares(self, column: str) -> tuple[Share, ...]:
        rows = self._rows(
            f"SELECT coalesce({column}, '') AS name, sum(harvest.node_s) AS node_s, "
            f"count(DISTINCT job.id) AS jobs, sum(harvest.releases) AS releases "
            f"FROM harvest JOIN job ON job.id = harvest.job "
            f"WHERE hour BETWEEN :first_hour AND :last_hour AND {_OF_USER} "
            f"GROUP BY 1 ORDER BY 2 DESC"
        )
        interruptions = self._rows(
            f"SELECT coalesce({column}, '') AS name, count(*) AS interruptions FROM ending "
            f"JOIN job ON job.id = ending.job WHERE {_IN_SPAN} AND {_OF_USER} "
            f"AND kind IN ({_INTERRUPTIONS}) GROUP BY 1"
        )
        counts = {row["name"]: row["interruptions"] for row in interruptions}
        return tuple(
            Share(r["name"], r["node_s"], r["jobs"], r["releases"], counts.get(r["name"], 0))
            for r in rows
        )

    def jobs(self) -> tuple[JobLine, ...]:
        rows = self._rows(
            f"SELECT * FROM job WHERE last_at > :since AND first_at <= :until AND {_OF_USER} "
            f"ORDER BY node_s DESC, job_id LIMIT {JOBS}"
        )
        return tuple(_job_line(row) for row in rows)

    def ends(self) -> tuple[Ends, ...]:
        rows = self._rows(
            f"SELECT kind, count(*) AS count, sum(nodes * ran_s) AS node_s FROM ending "
            f"LEFT JOIN job ON job.id = ending.job WHERE {_IN_SPAN} AND {_OF_USER} GROUP BY kind"
        )
        by_kind = {row["kind"]: row for row in rows}
        kinds = (kind for kind in Of.END.whys if kind.value in by_kind)
        return tuple(
            Ends(k, by_kind[k.value]["count"], by_kind[k.value]["node_s"] or 0.0) for k in kinds
        )

    def vain(self) -> tuple[VainRun, ...]:
        rows = self._rows(
            "SELECT job_id, fragment, at, nodes, ran_s FROM ending JOIN job ON job.id = ending.job "
            f"WHERE {_IN_SPAN} AND {_OF_USER} AND cause = '{Why.NOT_TRAINING.value}' "
            f"ORDER BY nodes * ran_s DESC LIMIT {JOBS}"
        )
        return tuple(
            VainRun(FragmentId(r["job_id"], r["fragment"]), moment(r["at"]), r["nodes"], r["ran_s"])
            for r in rows
        )

    def done(self) -> tuple[Done, ...]:
        rows = self._rows(
            "SELECT verb, cause, sum(fragments) AS fragments FROM done "
            f"JOIN tick ON tick.id = done.tick WHERE {_IN_SPAN} "
            "GROUP BY verb, cause ORDER BY 3 DESC"
        )
        return tuple(Done(row["verb"], row["cause"], row["fragments"]) for row in rows)

    def delays(self) -> tuple[Delay, ...]:
        rows = self._rows(f"SELECT * FROM delay WHERE {_IN_SPAN} ORDER BY held_s DESC, at")
        return tuple(
            Delay(r["other"], moment(r["planned"]), moment(r["started"]), r["held_s"]) for r in rows
        )

    def samples(self) -> tuple[Sample, ...]:
        """Return means over spans of equal length, for each point of a picture."""
        tick = self.tick()
        if not tick["count"]:
            return ()
        width = max((tick["last"] - tick["first"]) / SAMPLES, 1e-3)
        bin_of = f"cast((at - {tick['first']!r}) / {width!r} AS INTEGER)"
        span = "WHERE at > :since AND at <= :until"
        nodes = self._rows(
            f"SELECT {bin_of} AS bin, min(at) AS at, count(*) AS count, avg(ours) AS ours, "
            f"avg(busy) AS busy, avg(out) AS out FROM tick {span} GROUP BY bin ORDER BY bin"
        )
        known = {reason.value for reason in Of.IDLE.whys}  # a later version may have more reasons
        idle: dict[int, dict[Why, float]] = {}
        for row in self._rows(
            f"SELECT {bin_of} AS bin, reason, sum(idle.nodes) AS nodes FROM idle "
            f"JOIN tick ON tick.id = idle.tick {span} GROUP BY bin, reason"
        ):
            if row["reason"] in known:
                idle.setdefault(row["bin"], {})[Why(row["reason"])] = row["nodes"]
        return tuple(
            Sample(
                *(moment(row["at"]), row["ours"], row["busy"], row["out"]),
                {reason: n / row["count"] for reason, n in idle.get(row["bin"], {}).items()},
            )
            for row in nodes
        )


_INTERRUPTIONS = ", ".join(f"'{kind.value}'" for kind in Of.END.whys if kind in INTERRUPTIONS)
_IN_SPAN = "at > :since AND at <= :until"
_OF_USER = "(:user = '' OR user = :user) AND (:account = '' OR account = :account)"


def _job_line(row: sqlite3.Row) -> JobLine:
    return JobLine(
        job_id=row["job_id"],
        user=row["user"],
        account=row["account"] or "",
        node_s=row["node_s"],
        interruptions=row["interruptions"],
        least=row["least"],
        most=row["most"],
        min_nodes=row["min_nodes"],
        max_nodes=row["max_nodes"],
        unit=row["unit"],
        first=moment(row["first_at"]),
        last=moment(row["last_at"]),
        over=Why(row["over"]) if row["over"] else None,
        stop=row["stop"],
    )


def interruptions_of(ledger: sqlite3.Connection, job_id: int) -> Optional[Interruptions]:
    """Return a job's interruptions, or None if the ledger does not know the job."""
    ledger.row_factory = sqlite3.Row
    job = ledger.execute(
        "SELECT * FROM job WHERE job_id = ? ORDER BY id DESC LIMIT 1", (job_id,)
    ).fetchone()
    if job is None:
        return None
    rows = ledger.execute(
        f"SELECT at FROM ending WHERE job = ? AND kind IN ({_INTERRUPTIONS}) ORDER BY at",
        (job["id"],),
    )
    ran_s = job["last_at"] - job["first_at"]
    if job["unit"] == NODE:
        ran_s = min(ran_s, job["node_s"] / max(1, job["least"]))
    return Interruptions(moments_of(row["at"] for row in rows), ran_s)


def loop_in(ledger: sqlite3.Connection, job_id: int, now: datetime) -> Optional[Loop]:
    """Return the preemption loop of a job, or None."""
    ledger.row_factory = sqlite3.Row
    rows = ledger.execute(
        "SELECT at, taker, taken FROM ending JOIN job ON job.id = ending.job "
        "WHERE job_id = ? AND at >= ? AND (kind = ? OR taker != '') ORDER BY at",
        (job_id, now.timestamp() - LOOP_S, Why.PREEMPTED.value),
    )
    return loop_of([Loss(row["at"], row["taker"], tuple(row["taken"].split())) for row in rows])


def standing(ledger: sqlite3.Connection) -> Standing:
    """Return the counters and the last tick."""
    ledger.row_factory = sqlite3.Row
    counters = ledger.execute("SELECT name, label, value FROM counter").fetchall()
    (pages,) = ledger.execute("PRAGMA page_count").fetchone()
    (page,) = ledger.execute("PRAGMA page_size").fetchone()
    values = {(row["name"], row["label"]): float(row["value"]) for row in counters}
    return Standing(values, _last_tick(ledger), pages * page)


def _last_tick(ledger: sqlite3.Connection) -> Optional[LastTick]:
    tick = ledger.execute("SELECT * FROM tick ORDER BY id DESC LIMIT 1").fetchone()
    if tick is None:
        return None
    rows = ledger.execute("SELECT reason, nodes FROM idle WHERE tick = ?", (tick["id"],))
    names = ("at", "seconds", "solver_s", "jobs", "ours", "busy", "out", "no_growth_s")
    nodes = {row["reason"]: row["nodes"] for row in rows}
    idle = {reason: nodes[reason.value] for reason in Of.IDLE.whys if reason.value in nodes}
    return LastTick(
        idle=idle,
        whys=_whys(ledger),
        unused=_unused_now(ledger, tick["id"]),
        **{name: tick[name] for name in names},
    )


def _unused_now(ledger: sqlite3.Connection, tick: int) -> dict[str, Unused]:
    question = "SELECT resource, idle, part, stranded FROM unused WHERE tick = ?"
    return _by_resource(ledger.execute(question, (tick,)))


def _by_resource(rows: Iterable[sqlite3.Row]) -> dict[str, Unused]:
    """Return amounts by resource, GPUs before processors."""
    return {name: Unused(*counts) for name, *counts in sorted(map(tuple, rows), reverse=True)}


def _whys(ledger: sqlite3.Connection) -> dict[Why, int]:
    """Return the number of jobs by reason in the last tick."""
    jobs = {row["reason"]: row["jobs"] for row in ledger.execute("SELECT * FROM why")}
    return {why: jobs[why.value] for why in Of.JOB.whys if why.value in jobs}


def lives_of(ledger: sqlite3.Connection, job_ids: Iterable[int]) -> dict[int, Life]:
    """Return the lives of these jobs so far. Unknown jobs are left out."""
    lives = {}
    for job_id in job_ids:
        row = ledger.execute(
            "SELECT node_s, interruptions, least, most, unit FROM job WHERE job_id = ? "
            "ORDER BY id DESC LIMIT 1",
            (job_id,),
        ).fetchone()
        if row:
            lives[job_id] = Life(*row)
    return lives
