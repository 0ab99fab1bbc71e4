"""The conditions that hold while everything changes, judged by squeue, sinfo and scontrol.

The checker is pure and does not use the product's own readers, because a fault there must not hide
itself here. Most conditions may exist for a moment, right after a change. They are faults only if
they last longer than ticks and Slurm need to end them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from faults.checker import ALIVE, HEALTHY, NodeSeen, changed_nodes, parse_nodes
from faults.checker import Look as NodesLook
from slurm_hooks.slurm.text import expand

OURS, OTHERS = "malleable", "main"
JOBS = ("squeue", "-h", "-r", "-t", "all", "-p", f"{OURS},{OTHERS}")
JOBS = (*JOBS, "-o", "%i|%P|%T|%S|%e|%p|%r|%N|%n|%x|%D|%Y")
RESERVATIONS = ("scontrol", "-o", "show", "reservations")
WAITS_FOR_NODES = frozenset({"Resources", "Priority", "None"})
_RESERVATION = re.compile(r"ReservationName=(\S+) StartTime=(\S+) EndTime=(\S+).* Nodes=(\S+)")


@dataclass(frozen=True)
class Job:
    """A row of squeue: an element of ours, or an ordinary job. Times are seconds since the epoch,
    or 0.

    `end` is the end of a running job's lease, `start` the planned start of a waiting job. `asked`
    are the nodes in ReqNodeList, `excluded` the nodes in ExcNodeList, `planned` the nodes of a
    planned start.
    """

    name: str
    state: str
    partition: str = OURS
    start: float = 0.0
    end: float = 0.0
    priority: float = 0.0
    reason: str = ""
    nodes: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()
    wanted: int = 1
    planned: frozenset[str] = frozenset()

    @property
    def job_id(self) -> int:
        return int(self.name.partition("_")[0])

    @property
    def is_ours(self) -> bool:
        return self.partition == OURS


@dataclass(frozen=True)
class Reserved:
    """Nodes of a reservation, from `start` to `end`."""

    name: str
    start: float
    end: float
    nodes: frozenset[str]


@dataclass(frozen=True)
class Known:
    """Facts that the people of the test know.

    These are the nodes that they drained and since when, and the ceiling (None: no ceiling, 0:
    switched off). To them belong the elements and jobs (by id) that users cancelled, and when.
    """

    drained: Mapping[str, float]
    ceiling: int | None = None
    cancelled: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Look:
    """Slurm's state after a tick."""

    at: float
    jobs: tuple[Job, ...]
    nodes: tuple[NodeSeen, ...]
    reservations: tuple[Reserved, ...]
    known: Known

    @property
    def ours(self) -> tuple[Job, ...]:
        return tuple(job for job in self.jobs if job.is_ours)

    @property
    def running(self) -> tuple[Job, ...]:
        """Elements of ours that run. A suspended element has no processors, and Slurm does not
        change its lease.
        """
        return tuple(job for job in self.ours if job.state == "RUNNING")

    @property
    def begun(self) -> tuple[Job, ...]:
        """Elements of ours that Slurm has started, suspended or not."""
        return tuple(job for job in self.ours if job.state in ("RUNNING", "SUSPENDED"))


@dataclass(frozen=True)
class Rule:
    """A condition that may not last longer than so many seconds and so many ticks."""

    judge: Callable[[Look], list[str]]
    grace_s: float = 0.0
    ticks: int = 0


def parse_jobs(text: str) -> tuple[Job, ...]:
    """The answer to JOBS, asked with SLURM_TIME_FORMAT=%s."""
    return tuple(map(_job, text.splitlines()))


def _job(line: str) -> Job:
    name, where, state, start, end, priority, reason, *lists, count, planned = line.split("|")
    nodes, asked, excluded = map(_names, lists)
    times = _epoch(start), _epoch(end), float(priority)
    return Job(
        name, state, where, *times, reason, nodes, asked, excluded, int(count), _names(planned)
    )


def parse_reservations(text: str) -> tuple[Reserved, ...]:
    """The answer to RESERVATIONS, asked with SLURM_TIME_FORMAT=%s."""
    rows = (match.groups() for match in map(_RESERVATION.search, text.splitlines()) if match)
    return tuple(Reserved(n, _epoch(s), _epoch(e), _names(nodes)) for n, s, e, nodes in rows)


def parse_look(at: float, jobs: str, nodes: str, reservations: str, known: Known) -> Look:
    """Parse the answers of a moment."""
    rest = parse_nodes(nodes), parse_reservations(reservations)
    return Look(at, parse_jobs(jobs), *rest, known)


def _names(text: str) -> frozenset[str]:
    return frozenset() if text in ("", "(null)", "N/A") else expand(text)


def _epoch(text: str) -> float:
    return float(text) if text.isdecimal() else 0.0


# -- conditions that may never exist


def shared_nodes(look: Look) -> list[str]:
    """Nodes on which another job runs beside an element of ours. Our nodes are exclusive."""
    on = [(node, job) for job in look.jobs if job.state == "RUNNING" for node in job.nodes]
    both = {n for n, a in on for m, b in on if n == m and a is not b and (a.is_ours or b.is_ours)}
    return [f"{node} holds an element and something else" for node in sorted(both)]


def moved_nodes(look: Look) -> list[str]:
    """Nodes whose drain state differs from the state that the people of the test gave them.

    Slurm 24.11 keeps the people's reason on a node that they have resumed.
    """
    expected = dict.fromkeys(look.known.drained, "churn")
    nodes = [
        replace(node, reason="") if node.reason == "churn" and node.name not in expected else node
        for node in look.nodes
    ]
    return changed_nodes(NodesLook(look.at, (), tuple(nodes)), expected)


def started_on_drained(look: Look) -> list[str]:
    """Runs that began on a drained node. Slurm counts in whole seconds, so a second is allowed."""
    since = look.known.drained
    begun = [(job, node) for job in look.begun for node in sorted(job.nodes & since.keys())]
    return [f"{j.name} began on drained {n}" for j, n in begun if j.start > since[n] + 1]


def revived(look: Look) -> list[str]:
    """Runs that began after their user had cancelled the element or the job."""
    cancelled = look.known.cancelled or {}
    whens = ((j, cancelled.get(j.name) or cancelled.get(str(j.job_id))) for j in look.begun)
    return [f"{j.name} began though cancelled" for j, at in whens if at and j.start > at + 1]


def node_lists(look: Look) -> list[str]:
    """Elements with a ReqNodeList. We set no such list: ranges of such elements cannot be changed
    again.

    Slurm would also end such an element when its node leaves slurm.conf.
    """
    return [f"{job.name} asks for nodes" for job in look.ours if job.asked]


# -- conditions that may not last


def over_ceiling(look: Look) -> list[str]:
    """More nodes than the site allows, 0 while switched off."""
    ceiling, used = look.known.ceiling, sum(len(job.nodes) for job in look.running)
    if ceiling is None or used <= ceiling:
        return []
    return [f"more than the {ceiling} nodes allowed"]


def past_reservations(look: Look) -> list[str]:
    """Leases on reserved nodes that end after the reservation begins."""
    return [
        f"{job.name} runs into {each.name}"
        for job in look.running
        for each in look.reservations
        if each.nodes & job.nodes and each.start < job.end and look.at < each.end
    ]


def past_planned_starts(look: Look, heedful: frozenset[int]) -> list[str]:
    """Leases of `heedful` jobs that end after another job's planned start on their nodes.

    Other jobs stay until Slurm preempts them, because that is cheaper for them.
    """
    waiting = [j for j in look.jobs if not j.is_ours and j.state == "PENDING"]
    return [
        f"{job.name} runs into the planned start of {other.name}"
        for job in look.running
        if job.job_id in heedful
        for other in waiting
        if job.nodes & other.planned and look.at < other.start < job.end
    ]


def roaming(look: Look) -> list[str]:
    """Released elements that Slurm may start on any node, whatever the hole there."""
    free = [j for j in look.ours if j.state == "PENDING" and j.priority > 0]
    return [f"{j.name} may start anywhere" for j in free if not (j.asked or j.excluded)]


def not_started(look: Look) -> list[str]:
    """Released elements that wait."""
    waits = (job for job in look.ours if job.state == "PENDING" and job.priority > 0)
    return [f"{job.name} is released and waits" for job in waits]


def not_back(look: Look) -> list[str]:
    """Ended elements of continuing jobs, without the cancelled elements."""
    ended = (job for job in look.ours if job.state not in {*ALIVE, "SUSPENDED"})
    left = (job for job in ended if not _is_cancelled(job, look.known.cancelled or {}))
    return [f"{job.name} stays {job.state}" for job in left]


def _is_cancelled(job: Job, cancelled: Mapping[str, float]) -> bool:
    """Tell whether its user cancelled it. Slurm 26.05 shows a cancelled element that never ran
    without its index.
    """
    if job.name in cancelled or str(job.job_id) in cancelled:
        return True
    return job.state == "CANCELLED" and any(name.startswith(f"{job.name}_") for name in cancelled)


def waits_for_us(look: Look) -> list[str]:
    """The first waiting job of another user, if only our jobs keep it from starting.

    Only the first job counts, since others may wait for it. Nodes with a reservation are left out:
    only Slurm can say whether the job would end in time.
    """
    waiting = [j for j in look.jobs if not j.is_ours and j.state == "PENDING"]
    first = min(waiting, key=lambda job: (-job.priority, job.job_id), default=None)
    if first is None or first.reason not in WAITS_FOR_NODES:
        return []
    theirs = {
        n
        for j in look.jobs
        if not j.is_ours and j.state in ("RUNNING", "COMPLETING")
        for n in j.nodes
    }
    walled = {node for each in look.reservations for node in each.nodes}
    left = {n.name for n in look.nodes if n.state in HEALTHY} - theirs - walled
    return [f"{first.name} waits for ours"] if first.wanted <= len(left) else []


def starving(look: Look, minimums: Mapping[int, int]) -> list[str]:
    """Jobs below their minimum although enough nodes are idle. `minimums` is by job id.

    Their missing elements count too.
    """
    idle = sum(node.state == "idle" for node in look.nodes)
    used = {job: sum(r.job_id == job for r in look.running) for job in minimums}
    lacks = {job: least - used[job] for job, least in minimums.items()}
    return [f"job {job} lacks {n} of its minimum" for job, n in lacks.items() if 0 < n <= idle]


def gone(look: Look, elements: Mapping[int, int]) -> list[str]:
    """Elements that Slurm no longer knows. `elements` gives the number submitted for each job."""
    queue, cancelled = {job.name for job in look.ours}, look.known.cancelled or {}
    names = [f"{job}_{index}" for job, count in elements.items() for index in range(count)]
    return [f"{name} is gone" for name in names if name not in queue and name not in cancelled]


def lasting(
    readings: Sequence[tuple[float, Sequence[str]]], grace_s: float, ticks: int
) -> list[str]:
    """The conditions that more than `ticks` readings in a row saw, over more than `grace_s`
    seconds.

    With no grace, the conditions that any reading saw.
    """
    since: dict[str, tuple[float, int]] = {}
    faults = []
    for at, conditions in readings:
        seen = {text: since.get(text, (at, 0)) for text in conditions}
        since = {text: (first, count + 1) for text, (first, count) in seen.items()}
        long = (text for text, (first, n) in since.items() if at - first >= grace_s and n > ticks)
        faults += [text for text in long if text not in faults]
    return faults


def faults_in(looks: Sequence[Look], rules: Sequence[Rule]) -> list[str]:
    """Tell which rules were broken, and by which conditions."""
    faults = []
    for rule in rules:
        readings = [(look.at, rule.judge(look)) for look in looks]
        faults += lasting(readings, rule.grace_s, rule.ticks)
    return faults
