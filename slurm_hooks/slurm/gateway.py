"""Slurm as values: reads a Snapshot. Holds no policy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Optional

from slurm_hooks.errors import CommandRefused, RetryLater, UsageError
from slurm_hooks.model import (
    MalleableJob,
    Node,
    PlannedStart,
    Snapshot,
    Waiter,
)
from slurm_hooks.model.moments import plural
from slurm_hooks.slurm.accounts import Charge, charges_command, parse_charges
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
from slurm_hooks.slurm.scontrol import parse_switches, switches_command
from slurm_hooks.slurm.strays import unknown_text
from slurm_hooks.slurm.terms import decide, terms_command

_log = logging.getLogger(__name__)


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
    lanes = LaneNames(partitions, part_nodes, qos)
    cluster = read_cluster(port, lanes)
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
        jobs=tuple(_in_lane(job, "" if lanes.parts_qos else part_nodes) for job in jobs.malleable),
        planned=_planned(jobs, qos),
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


def _planned(jobs: Jobs, qos: str) -> tuple[PlannedStart, ...]:
    """Return the planned starts. If the site's lane is a QOS, the partition decides nothing."""
    return tuple(replace(start, preempts=True) for start in jobs.planned) if qos else jobs.planned


def _in_lane(job: MalleableJob, part_nodes: str) -> MalleableJob:
    """Return the job with its lane. A job that counts slots belongs to the partition for parts, if
    there is one."""
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


def read_job(port: Port, partitions: Sequence[str], job_id: int) -> MalleableJob:
    """Return the job as Slurm has it now. Raises UsageError if there is no such job."""
    jobs = parse_jobs(port.ask(jobs_command()), partitions)
    job = next((job for job in jobs.malleable if job.job_id == job_id), None)
    if job is None:
        raise UsageError(unknown_text(job_id, jobs.unknown))
    return job


def read_jobs_again(
    port: Port, seen: Snapshot, partitions: Sequence[str], qos: str = ""
) -> Snapshot:
    """Return the snapshot with our jobs and the planned starts read again, by a single command."""
    jobs = parse_jobs(port.ask(jobs_command()), partitions)
    return replace(seen, jobs=jobs.malleable, planned=_planned(jobs, qos))


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
