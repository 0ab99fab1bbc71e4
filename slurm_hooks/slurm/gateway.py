"""Slurm as values: reads a Snapshot, writes intents. Holds no policy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, groupby
from typing import Optional

from slurm_hooks.errors import CommandRefused, RetryLater
from slurm_hooks.model import (
    REFUSED,
    Intent,
    MalleableJob,
    Node,
    PlannedStart,
    Snapshot,
    Verb,
    Waiter,
    Why,
)
from slurm_hooks.model.plural import plural
from slurm_hooks.slurm.accounts import Charge, charges_command, parse_charges
from slurm_hooks.slurm.actions import AT_A_TIME, commands, groups, starts
from slurm_hooks.slurm.all_but import AllBut
from slurm_hooks.slurm.cluster import Cluster, cluster_command, parse_cluster
from slurm_hooks.slurm.groups import (
    is_unplaced,
    parse_places,
    placed,
    places_command,
)
from slurm_hooks.slurm.jobs import Jobs, parse_jobs
from slurm_hooks.slurm.live import Port
from slurm_hooks.slurm.part_nodes import NO_LANE_NAMES, LaneNames
from slurm_hooks.slurm.remarks import parse_remarks, remarks_command
from slurm_hooks.slurm.rows import jobs_command
from slurm_hooks.slurm.switches import parse_switches, switches_command
from slurm_hooks.slurm.terms import decide, terms_command
from slurm_hooks.slurm.text import Command

_log = logging.getLogger(__name__)
AT_ONCE = 32  # commands that run side by side


def read_cluster(port: Port, lanes: LaneNames = NO_LANE_NAMES) -> Cluster:
    """Read nodes, reservations, partitions, configuration and slurmctld's clock."""
    return parse_cluster(port.ask(cluster_command()), lanes)


def observe(
    port: Port,
    partitions: Sequence[str],
    part_nodes: str = "",
    qos: str = "",
    read_terms: Optional[Callable[[], str]] = None,
) -> Snapshot:
    """Return the cluster now, in two commands at any size.

    A third command runs while a released group of fragments has not started. Another runs if Slurm
    knows switches and there is a gang. If QOS set how our jobs are preempted, `read_terms` gives
    the answer to terms_command."""
    jobs = parse_jobs(port.ask(jobs_command()), partitions)
    cluster = read_cluster(port, LaneNames(partitions, part_nodes, qos))
    terms, odd = decide(cluster.lanes, read_terms or (lambda: port.ask(terms_command())))
    if any(map(is_unplaced, jobs.malleable)):
        jobs = _placed(port, jobs, cluster, partitions)
    if cluster.has_switches and any(job.way.works_as_one for job in jobs.malleable):
        cluster = replace(cluster, nodes=_on_switches(port, cluster.nodes))
    seen = ((jobs.records, "job record"), (len(jobs.malleable), "malleable job"))
    _log.debug(
        "seen: %s", ", ".join(plural(*each) for each in (*seen, (len(cluster.nodes), "node")))
    )
    return Snapshot(
        now=cluster.now,
        slurm=cluster.slurm,
        nodes=cluster.nodes,
        jobs=tuple(_in_lane(job, part_nodes) for job in jobs.malleable),
        planned=_all_preempt(jobs.planned) if qos else jobs.planned,
        reservations=cluster.reservations,
        unknown=jobs.unknown + cluster.unknown + odd,
        records=jobs.records,
        started=jobs.started,
        waiting=jobs.waiting,
        hidden=cluster.hidden,
        registering=cluster.registering,
        no_parts=cluster.no_parts,
        terms=terms,
    )


def _all_preempt(planned: Iterable[PlannedStart]) -> tuple[PlannedStart, ...]:
    """Return the starts for a site whose lane is a QOS: there the partition decides nothing."""
    return tuple(replace(start, preempts=True) for start in planned)


def _in_lane(job: MalleableJob, part_nodes: str) -> MalleableJob:
    """Return the job with its lane. A job that counts slots belongs to the partition for parts."""
    is_part = part_nodes and job.request.slot is not None
    return replace(job, partition=part_nodes) if is_part else job


def _lanes(jobs: Iterable[MalleableJob]) -> list[str]:
    """Return all partitions that have fragments of these jobs."""
    lanes = {f.lane or job.partition for job in jobs for f in job.fragments}
    return sorted({name for lane in lanes for name in lane.split(",")})


def _placed(port: Port, jobs: Jobs, cluster: Cluster, partitions: Sequence[str]) -> Jobs:
    """Return the jobs with the nodes of released groups of fragments that have not started."""
    places = parse_places(port.ask(places_command(partitions)))
    malleable = (placed(job, places, cluster.nodes) for job in jobs.malleable)
    return replace(jobs, malleable=tuple(malleable))


def _on_switches(port: Port, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the nodes with their switches. Without an answer a gang gets any nodes."""
    try:
        switches = parse_switches(port.ask(switches_command()))
    except (CommandRefused, RetryLater) as error:
        _log.debug("switches were not read: %s", error)
        return nodes
    return tuple(replace(n, switch=switches[n.name]) if n.name in switches else n for n in nodes)


def with_charges(port: Port, seen: Snapshot) -> Snapshot:
    """Return the snapshot with account and QOS of our jobs, by a single command. If other jobs wait
    for a limit, it asks for all jobs."""
    ours = _lanes(seen.jobs)
    charges = parse_charges(port.ask(charges_command(() if seen.waiting else ours)))
    none = Charge("")

    def charged(job: MalleableJob) -> MalleableJob:
        charge = charges.get(job.job_id, none)
        return replace(job, account=charge.account, qos=charge.qos)

    def charged_waiter(waiter: Waiter) -> Waiter:
        job_id = int(waiter.job_id.partition("_")[0].partition("+")[0])
        charge = charges.get(job_id, none)
        return replace(waiter, account=charge.account, qos=charge.qos)

    return replace(
        seen, jobs=tuple(map(charged, seen.jobs)), waiting=tuple(map(charged_waiter, seen.waiting))
    )


def read_accounts(port: Port, jobs: Iterable[MalleableJob]) -> dict[int, str]:
    """Return the accounts of waiting and running jobs by job id, by a single command. The text may
    be the users' own. Jobs whose account is uncertain are left out."""
    partitions = _lanes(jobs)
    charges = parse_charges(port.ask(charges_command(partitions))) if partitions else {}
    return {job_id: charge.account for job_id, charge in charges.items()}


def read_jobs(
    port: Port, partitions: Sequence[str], seen: Optional[Iterable[MalleableJob]] = None
) -> tuple[MalleableJob, ...]:
    """Return our jobs, by a single command. Fragments of a core may be in any partition. If only
    the jobs in `seen` matter, Slurm is asked about their partitions alone."""
    where = () if seen is None else sorted({*partitions, *_lanes(seen)})
    return parse_jobs(port.ask(jobs_command(where)), partitions).malleable


def read_remarks(port: Port, job_id: int) -> tuple[str, ...]:
    """Return a job's remarks about itself, which its user could have written: only to be shown.
    Empty if Slurm is busy or has just forgotten the job: the rest is worth printing."""
    try:
        return parse_remarks(port.ask(remarks_command(job_id)))
    except (CommandRefused, RetryLater) as error:
        _log.debug("job %d: its remarks were not read: %s", job_id, error)
        return ()


def read_again(port: Port, seen: Snapshot, lanes: LaneNames) -> Snapshot:
    """Return the snapshot with nodes, reservations and clock read again, by a single command."""
    cluster = read_cluster(port, lanes)
    return replace(
        seen,
        now=cluster.now,
        nodes=cluster.nodes,
        reservations=cluster.reservations,
        unknown=seen.unknown + cluster.unknown,
        hidden=cluster.hidden,
        registering=cluster.registering,
        no_parts=cluster.no_parts,
    )


def apply(
    port: Port, seen: Snapshot, intents: Sequence[Intent], announce: Callable[[str], None]
) -> list[str]:
    """Write all intents. Return a line for each that Slurm refused. The others are written.

    `announce` is called before each command with its text, for progress and for tests that stop
    between any two writes. Raises RetryLater if Slurm stops answering. The next tick continues.
    """
    fragments = [f for job in seen.jobs for f in job.fragments]
    notes = {f.id: f.note for f in fragments}
    tied = frozenset(f.id for f in fragments if f.is_tied)
    grows = [i for i in intents if i.verb is Verb.GROW]
    others = [i for i in intents if i.verb is not Verb.GROW]
    written = commands(others, notes)
    refused = _write(port, [c for c in written if not c.patience_s], announce)
    machine = AllBut((*(node.name for node in seen.nodes), *seen.hidden) if grows else ())

    def start(some: Sequence[Intent]) -> list[str]:
        """Release these fragments, except where Slurm refuses the update.

        After a refusal each half is tried separately, down to single groups. A refused release
        counts as a release in vain: the next tick would be refused too.
        """
        *updates, release = starts(some, notes, machine, tied)
        faults = _write(port, updates, announce)
        if not faults:
            return _write(port, [release], announce)
        parts = groups(some, notes, tied)
        if len(parts) > 1:
            halves = parts[: len(parts) // 2], parts[len(parts) // 2 :]
            return [line for half in halves for line in start(list(chain(*half)))]
        vain = [
            Intent(i.fragment, Why.NOT_STARTED, mark=i.mark.in_vain(seen.now, REFUSED))
            for i in some
            if i.mark is not None
        ]
        return faults + _write(port, commands(vain, notes), announce)

    apart = groups(grows, notes, tied)
    for first in range(0, len(apart), AT_A_TIME):  # released at once, in case the next is too late
        refused += start(list(chain(*apart[first : first + AT_A_TIME])))
    return refused + _write(port, [c for c in written if c.patience_s], announce)


def _write(port: Port, written: Sequence[Command], announce: Callable[[str], None]) -> list[str]:
    refused: list[str] = []
    for is_quick, group in groupby(written, lambda c: c.patience_s > 0):
        batch = list(group)
        for command in batch:
            announce(" ".join(command.argv))
            if not is_quick:
                refused += _ask(port, command)
        if is_quick:
            _ask_together(port, batch)
    return refused


def _ask(port: Port, command: Command) -> list[str]:
    try:
        port.ask(command)
    except CommandRefused as error:
        return [str(error)]
    return []


def _ask_together(port: Port, batch: Sequence[Command]) -> None:
    """Run commands side by side, within bounds. Their answers do not matter."""
    if len(batch) == 1:
        port.ask(batch[0])
        return
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        for _ in pool.map(port.ask, batch):
            pass
