"""Judge a recording: delays, leases, and whether the demo showed all that it should. Pure
functions.

Input is a recording, output plain data for report.json. A bad number is reported unchanged, and no
delay is rounded away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Optional

from demo.records import Recording, Row, Sample
from demo.scenario import CLOCK_S, KILL_WAIT_S, Rigid
from demo.story import IDLE, OURS, RESERVED, Size, occupants, pairs, preempted, sizes
from slurm_hooks.model.moments import plural
from slurm_hooks.protocol.engines import ENGINES

SAMPLING_S = 1.0


@dataclass(frozen=True)
class Check:
    """A fact that the demo must show. `seen` is the observed fact."""

    what: str
    is_met: bool
    seen: str


def violations(recording: Recording) -> list[str]:
    """Every broken promise, each on a line. Empty if all were kept."""
    return [
        *_overstayed_leases(recording),
        *_overstayed_reservation(recording),
        *_overstayed_plans(recording),
    ]


def _overstayed_leases(recording: Recording) -> list[str]:
    """Fragments still on a node after their lease's end (Slurm's own time limit of the run)."""
    leases: dict[str, float] = {}
    worst: dict[tuple[str, float], float] = {}
    for sample in recording.with_it:
        for row in sample.rows:
            if not row.is_fragment or not row.is_on_nodes:
                continue
            if row.state == "RUNNING" and row.end is not None:
                leases[row.job] = row.end
            lease = leases.get(row.job)
            if lease is not None and sample.t > lease + SAMPLING_S:
                worst[row.job, lease] = sample.t - lease
    return [
        f"fragment {job} was on its node {over:.1f} s after its lease had ended at "
        f"{lease - recording.zero:.0f} s"
        for (job, lease), over in worst.items()
    ]


def _overstayed_reservation(recording: Recording) -> list[str]:
    inside = [s for s in recording.with_it if recording.begin <= s.t < recording.end]
    booking = recording.scenario.booking
    if not booking:
        return []
    late = [s.t - recording.begin for s in inside if booking.node in s.held.values()]
    if not late:
        return []
    return [
        f"reservation {booking.name}: a fragment was on {booking.node} until {late[-1]:.1f} s "
        "after its start"
    ]


def _overstayed_plans(recording: Recording) -> list[str]:
    """Rigid jobs that wait past their published start, with us on their nodes."""
    lines = (_overstayed_plan(rigid, recording) for rigid in _submitted(recording))
    return [line for line in lines if line]


def _submitted(recording: Recording) -> list[Rigid]:
    return [rigid for rigid in recording.scenario.rigid if rigid.name in recording.ids]


def _overstayed_plan(rigid: Rigid, recording: Recording) -> str:
    """The broken promise to this job in a line, or an empty text. The plan in force when its time
    came counts, and later plans do not."""
    slack = SAMPLING_S + (KILL_WAIT_S if rigid.is_urgent else 0.0)
    plan: Optional[Row] = None
    due: Optional[Row] = None
    line = ""
    for sample in recording.with_it:
        row = sample.find(recording.ids[rigid.name][0])
        if row is None or row.state != "PENDING":
            continue
        if due is None and plan is not None and (plan.start or 0.0) <= sample.t:
            due = plan
        over = sample.t - (due.start or 0.0) if due else 0.0
        mine = sorted(due.planned & set(sample.held.values())) if due else []
        if over > slack and mine:
            line = (
                f"job {rigid.name} waited {over:.1f} s past its planned start with fragments on "
                f"{', '.join(mine)}"
            )
        plan = row if row.planned else plan
    return line


def rigid_jobs(recording: Recording) -> list[dict[str, Any]]:
    """Submission, planned start, start and delay of every rigid job, in seconds of the load."""
    return [_rigid(rigid, recording) for rigid in _submitted(recording)]


def _rigid(rigid: Rigid, recording: Recording) -> dict[str, Any]:
    job, alone = recording.ids[rigid.name]
    here, there = _last(job, recording.with_it), _last(alone, recording.without)
    waits = [_wait(here), _wait(there)]
    is_known = waits[0] is not None and waits[1] is not None
    scenario = recording.scenario
    return {
        "name": rigid.name,
        "urgent": rigid.is_urgent,
        f"{scenario.key}s": rigid.nodes * (rigid.gpus or scenario.per_node),
        "submit": _since(here.submit if here else None, recording.zero),
        "planned_start": _since(_planned_start(job, recording), recording.zero),
        "start": _since(here.start if here and waits[0] is not None else None, recording.zero),
        "start_without": _since(
            there.start if there and waits[1] is not None else None, recording.zero
        ),
        "delay_s": waits[0] - waits[1] if is_known else None,  # type: ignore[operator]
    }


def _last(job: str, samples: Sequence[Sample]) -> Optional[Row]:
    return samples[-1].find(job) if samples else None


def _wait(row: Optional[Row]) -> Optional[float]:
    """Seconds from submission to start, `None` if it did not start."""
    if row is None or row.state == "PENDING" or row.start is None or row.submit is None:
        return None
    return row.start - row.submit


def _planned_start(job: str, recording: Recording) -> Optional[float]:
    """The start that Slurm published last before the job started."""
    rows = (sample.find(job) for sample in recording.with_it)
    starts = [r.start for r in rows if r and r.state == "PENDING" and r.planned]
    return starts[-1] if starts else None


def _since(moment: Optional[float], zero: float) -> Optional[float]:
    return None if moment is None else round(moment - zero, 1)


def reservations(recording: Recording) -> list[dict[str, Any]]:
    """When the last fragment left the reserved node before the reservation began."""
    free_at: Optional[float] = None
    booking = recording.scenario.booking
    if not booking:
        return []
    for before, after in pairs(recording.with_it):
        was_there = booking.node in before.held.values()
        if was_there and booking.node not in after.held.values():
            free_at = after.t
    row = {
        "name": booking.name,
        "nodes": [booking.node],
        "start": _since(recording.begin, recording.zero),
        "last_node_free_at": _since(free_at, recording.zero),
        "freed_before_s": None if free_at is None else round(recording.begin - free_at, 1),
    }
    return [row]


def seconds_of(samples: Sequence[Sample], recording: Recording) -> dict[str, float]:
    """Node-seconds, or GPU-seconds, by occupant over the load."""
    total = {"rigid": 0.0, OURS: 0.0, IDLE: 0.0, RESERVED: 0.0}
    for before, after in pairs(tuple(s for s in samples if s.t >= recording.zero)):
        for name in occupants(before, recording).values():
            total[name if name in total else "rigid"] += after.t - before.t
    return {name: round(seconds, 1) for name, seconds in total.items()}


def ticks(recording: Recording) -> dict[str, Any]:
    """The number of ticks and their cost."""
    rpcs = [tick.rpcs for tick in recording.ticks] or [0]
    seconds = [tick.seconds for tick in recording.ticks] or [0.0]
    return {
        "count": len(recording.ticks),
        "rpcs_per_tick": {"median": median(rpcs), "max": max(rpcs)},
        "seconds_per_tick": {
            "median": round(median(seconds), 3),
            "max": round(max(seconds), 3),
        },
    }


def report(recording: Recording, about: dict[str, Any]) -> dict[str, Any]:
    """All of report.json. `about` has the facts from outside (version, date, machine)."""
    changes = sizes(recording)
    result, unit = recording.result, recording.scenario.key
    job = {
        "job_id": recording.job,
        "engine": recording.work.engine,
        "sizes": [{"t": s.t, f"{unit}s": s.count, "cause": s.cause} for s in changes],
        "interruptions": interruptions(recording),
        "unit": recording.work.unit,
        "count": result.get(f"{recording.work.unit}s"),
        "goal": {"of": recording.work.goal.key, "seen": result.get(recording.work.goal.key)},
        "restarts_used": max((r.restarts_used for r in recording.rounds), default=None),
        "rounds": len(recording.rounds),
    }
    facts = {
        "malleable_jobs": [job],
        "rigid_jobs": rigid_jobs(recording),
        "reservations": reservations(recording),
        "ticks": ticks(recording),
        "unit": unit,
        f"{unit}_seconds": seconds_of(recording.with_it, recording),
        f"{unit}_seconds_without": seconds_of(recording.without, recording),
        "violations": violations(recording),
        "t0_epoch": round(recording.zero, 3),
        **about,
    }
    done = checks(facts, changes, recording)
    facts["checks"] = [{"what": c.what, "met": c.is_met, "seen": c.seen} for c in done]
    return facts


def checks(facts: dict[str, Any], changes: list[Size], recording: Recording) -> list[Check]:
    """The checks that must hold for the demo to succeed."""
    work, result = recording.work, recording.result
    taken = preempted(recording)
    grown = sum(1 for a, b in zip(changes, changes[1:]) if b.count > a.count)
    return [
        Check("no promise broken", not facts["violations"], f"{len(facts['violations'])} broken"),
        *[_delay_check(rigid) for rigid in facts["rigid_jobs"]],
        Check("the job grew, shrank and grew again", grown >= 3, f"sizes {_counts(changes)}"),
        *([] if recording.scenario.is_plain else _lease_checks(recording)),
        *_room_checks(changes, taken, facts["rigid_jobs"], recording),
        *_urgent_checks(taken, facts["rigid_jobs"], recording),
        *_reservation_checks(facts, changes[-1], recording),
        *[
            Check(goal.what, goal.is_met(result), f"{result.get(goal.key)}")
            for goal in (work.goal, *work.others)
        ],
        *_worker_checks(recording),
    ]


def _counts(changes: Sequence[Size]) -> list[int]:
    return [size.count for size in changes]


def _lease_checks(recording: Recording) -> list[Check]:
    renewals = sum(act.is_renewal for tick in recording.ticks for act in tick.acts)
    return [Check("leases were renewed", renewals > 0, f"{renewals} renewals")]


def _reservation_checks(facts: dict[str, Any], last: Size, recording: Recording) -> list[Check]:
    """Check that the job left for the reservation, and went on beside it."""
    checks = []
    for booked in facts["reservations"]:
        freed = booked["freed_before_s"]
        what = "the reserved node was free before the reservation"
        seen = "never ours" if freed is None else f"{freed:.0f} s before"
        checks.append(Check(what, freed is not None and freed > 0, seen))
        what = f"the {recording.work.name} was done after the reservation began"
        is_after = last.count == 0 and recording.zero + last.t > recording.begin
        checks.append(Check(what, is_after, f"at {last.t:.0f} s"))
    return checks


def interruptions(recording: Recording) -> list[dict[str, Any]]:
    """The fragments that Slurm took: when, which, and how many nodes, or GPUs."""
    rows, scenario = [], recording.scenario
    for t, fragment in preempted(recording):
        before = [sample for sample in recording.with_it if sample.t < recording.zero + t]
        count = before[-1].gpus[fragment] if scenario.gpus else 1
        rows.append({"t": round(t, 1), "fragment": fragment, f"{scenario.key}s": count})
    return rows


def _room_checks(
    changes: Sequence[Size],
    taken: Sequence[tuple[float, str]],
    rigid: Sequence[dict[str, Any]],
    recording: Recording,
) -> list[Check]:
    """The checks of a scenario in which Slurm must plan a start."""
    if not any(job.is_planned for job in recording.scenario.rigid):
        return []
    room = _made_room(changes, taken, rigid)
    return [Check("a planned start found room", bool(room), room or "never")]


def _made_room(
    changes: Sequence[Size], taken: Sequence[tuple[float, str]], rigid: Sequence[dict[str, Any]]
) -> str:
    """Tell how a job with a planned start got a node of ours.

    A fragment left because the hole closed. Or it stayed until Slurm took it, because an
    interruption costs this job little.
    """
    for job in rigid:
        if job["planned_start"] is None or job["start"] is None:
            continue
        for size in changes:
            if "hole closes" in size.cause and job["submit"] < size.t <= job["start"]:
                return f"left at {size.t:.0f} s for {job['planned_start']:.0f} s"
        for t, fragment in taken:
            if abs(t - job["start"]) <= CLOCK_S:
                return f"{fragment} stayed until {t:.0f} s, when it started"
    return ""


def _worker_checks(recording: Recording) -> list[Check]:
    """The checks of a pool instead of rounds: workers come and go, and no worker fails."""
    if not ENGINES[recording.work.engine].is_pool:
        return []
    rows = [row for sample in recording.with_it for row in sample.rows if row.is_fragment]
    failed = sorted({row.job for row in rows if row.state in ("FAILED", "NODE_FAIL")})
    return [Check("no worker failed", not failed, ", ".join(failed) or "none")]


def _urgent_checks(
    taken: Sequence[tuple[float, str]], rigid: Sequence[dict[str, Any]], recording: Recording
) -> list[Check]:
    """Check that Slurm took a fragment for each node of an urgent job, between its submission and
    the next.
    """
    wanted = {one.name: one.nodes for one in recording.scenario.rigid}
    urgent = [job for job in rigid if job["urgent"]]
    ends = [*(job["submit"] for job in urgent[1:]), float("inf")]
    verdicts = []
    for job, end in zip(urgent, ends):
        count = sum(job["submit"] <= t < end for t, _ in taken)
        nodes = wanted[job["name"]]
        what = f"the {job['name']} job took {plural(nodes, 'fragment')}"
        verdicts.append(Check(what, count == nodes, f"{count} preempted"))
    return verdicts


def _delay_check(rigid: dict[str, Any]) -> Check:
    """Check the delays: planned and first-come starts within the clocks' noise, urgent up to
    KillWait."""
    delay = rigid["delay_s"]
    allowed = CLOCK_S + (KILL_WAIT_S if rigid["urgent"] else 0)
    is_met = delay is not None and delay <= allowed
    what = f"{rigid['name']} started as early as without the job, within {allowed:.0f} s"
    return Check(what, is_met, "it did not start" if delay is None else f"{delay:+.0f} s")
