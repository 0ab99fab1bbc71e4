"""The memory of a tick for the next tick, as JSON text and back."""

from __future__ import annotations

import json
from dataclasses import astuple
from datetime import datetime, timedelta
from typing import Any, Optional

from slurm_hooks.books.harvest.values import LaneWait, Promise, Seen, SeenRun
from slurm_hooks.model import FragmentId, Terms, Why
from slurm_hooks.model.moments import moment
from slurm_hooks.model.unused import Unused


def to_text(seen: Seen) -> str:
    """Return a line of JSON."""
    data = {
        "at": seen.at.timestamp(),
        "runs": [_run_row(run) for run in seen.runs],
        "idle": [[reason.value, nodes] for reason, nodes in seen.idle],
        "unused": [[name, *astuple(unused)] for name, unused in seen.unused],
        "lanes": [_lane_row(lane) for lane in seen.lanes],
        "promises": [[p.job_id, p.start.timestamp(), p.held_s] for p in seen.promises],
    }
    return json.dumps(data, separators=(",", ":"))


def from_text(text: str) -> Seen:
    """Read the text of `to_text`. Raises ValueError for any other text."""
    try:
        data = json.loads(text)
        return Seen(
            at=moment(data["at"]),
            runs=tuple(_run(row) for row in data["runs"]),
            idle=tuple((Why(reason), int(nodes)) for reason, nodes in data["idle"]),
            promises=tuple(Promise(str(j), moment(s), float(h)) for j, s, h in data["promises"]),
            lanes=tuple(_lane(row) for row in data["lanes"]),
            unused=tuple((str(n), Unused(*map(float, row))) for n, *row in data["unused"]),
        )
    except (LookupError, TypeError, OverflowError, OSError, RecursionError) as error:
        raise ValueError(f"not the memory of a tick: {error!r}") from error


def _lane_row(lane: LaneWait) -> list[Any]:
    terms = lane.terms
    spans = (terms.grace, terms.exempt, lane.kill_wait, lane.lease)
    return [terms.partition, *(span.total_seconds() for span in spans)]


def _lane(row: list[Any]) -> LaneWait:
    name, *rest = row
    grace, exempt, kill_wait, lease = (timedelta(seconds=seconds) for seconds in rest)
    return LaneWait(Terms(str(name), grace, exempt), kill_wait, lease)


def _run_row(run: SeenRun) -> list[Any]:
    row = [run.fragment.job_id, run.fragment.index, run.restarts]
    if not run.nodes:
        return row
    where = [sorted(run.nodes), _seconds(run.start), _seconds(run.end), run.leaves]
    return [*row, *where, run.part]


def _run(row: list[Any]) -> SeenRun:
    fragment = FragmentId(int(row[0]), int(row[1]))
    if len(row) == 3:
        return SeenRun(fragment, int(row[2]))
    _, _, restarts, nodes, start, end, leaves, part = row
    if not all(isinstance(node, str) for node in nodes):
        raise ValueError(f"not the memory of a tick: nodes {nodes!r}")
    span = (_optional(start), _optional(end))
    return SeenRun(fragment, int(restarts), frozenset(nodes), *span, str(leaves), float(part))


def _seconds(when: Optional[datetime]) -> Optional[float]:
    return when.timestamp() if when else None


def _optional(seconds: Optional[float]) -> Optional[datetime]:
    return None if seconds is None else moment(seconds)
