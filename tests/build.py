"""Small builders with good defaults, so that a test names only its own subject."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any, Optional

from slurm_hooks.model import (
    Fragment,
    FragmentId,
    FragmentState,
    MalleableJob,
    Mark,
    Needs,
    Node,
    NodeState,
    PlannedStart,
    Request,
    Reservation,
    Said,
    Slurm,
    Snapshot,
)

NO_NEEDS = Needs()
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)


def after(seconds: float) -> datetime:
    """The moment `seconds` after (or before) NOW."""
    return NOW + timedelta(seconds=seconds)


def span(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def no_clock() -> float:
    """A clock that stands still: solve seconds are zero."""
    return 0.0


def make_request(
    min_nodes: int = 1, max_nodes: int = 6, unit: int = 1, lease_s: float = 600, hole_s: float = 120
) -> Request:
    return Request(min_nodes, max_nodes, max_nodes // unit, span(lease_s), span(hole_s), unit)


def make_mark(request: Optional[Request] = None, **fields: Any) -> Mark:
    return Mark(request or make_request(), **fields)


def make_node(name: str = "n1", state: NodeState = NodeState.FREE, **fields: Any) -> Node:
    fields.setdefault("partitions", frozenset({"malleable", "main"}))
    return Node(name, state, **fields)


def make_nodes(count: int, state: NodeState = NodeState.FREE) -> tuple[Node, ...]:
    return tuple(make_node(f"n{i}", state) for i in range(1, count + 1))


def make_fragment(
    index: int = 0,
    state: FragmentState = FragmentState.HELD,
    nodes: Iterable[str] = (),
    job_id: int = 7,
    **fields: Any,
) -> Fragment:
    """A fragment of a job with rounds.

    A running or ended fragment began 200 s ago with a lease of 600 s, is held and has joined.
    """
    mark = fields.pop("mark", None) or make_mark(fields.pop("request", None))
    names = {f.name for f in dataclasses.fields(Mark)} & fields.keys() - {"priority"}
    mark = replace(mark, **{name: fields.pop(name) for name in names})
    fields.setdefault("has_agent", True)
    if state not in (FragmentState.HELD, FragmentState.PENDING):
        fields.setdefault("start", after(-200))
        fields.setdefault("limit", span(600))
    if state is FragmentState.RUNNING:
        fields.setdefault("end", fields["start"] + fields["limit"])
        fields.setdefault("said", Said.JOINED)
    elif state not in (FragmentState.HELD, FragmentState.PENDING):
        fields.setdefault("end", after(-1))
    return Fragment(FragmentId(job_id, index), state, mark, frozenset(nodes), **fields)


def make_job(
    *fragments: Fragment,
    held: int = 0,
    job_id: int = 7,
    request: Optional[Request] = None,
    user: str = "nobody",
    needs: Needs = NO_NEEDS,
) -> MalleableJob:
    """A job of these fragments and `held` more that wait. It has no other elements."""
    asked = request or (fragments[0].mark.request if fragments else make_request())
    first = max((f.id.index for f in fragments), default=-1) + 1
    waiting = tuple(
        make_fragment(i, job_id=job_id, request=asked) for i in range(first, first + held)
    )
    every = (*fragments, *waiting)
    asked = replace(asked, fragments=len(every)) if every else asked
    return MalleableJob(job_id, user, "malleable", asked, every, needs=needs)


def make_slurm(**fields: Any) -> Slurm:
    values: dict[str, Any] = {
        "version": (22, 5, 8),
        "kill_wait": span(30),
        "min_job_age": span(300),
        "max_array_size": 1001,
    }
    return Slurm(**{**values, **fields})


def make_snapshot(
    *jobs: MalleableJob,
    nodes: Sequence[Node] = (),
    planned: Sequence[PlannedStart] = (),
    reservations: Sequence[Reservation] = (),
    now: datetime = NOW,
    **fields: Any,
) -> Snapshot:
    fields.setdefault("slurm", make_slurm())
    return Snapshot(
        now=now,
        nodes=tuple(nodes),
        jobs=jobs,
        planned=tuple(planned),
        reservations=tuple(reservations),
        **fields,
    )


def reserve(nodes: Iterable[str], start_s: float, end_s: float = 86_400.0) -> Reservation:
    return Reservation("maint", after(start_s), after(end_s), frozenset(nodes))


def plan_start(
    nodes: Iterable[str], start_s: float, job_id: str = "99", preempts: bool = True
) -> PlannedStart:
    return PlannedStart(job_id, after(start_s), frozenset(nodes), preempts)
