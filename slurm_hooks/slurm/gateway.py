"""Slurm as values: read a Snapshot, write actions. Holds no policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from slurm_hooks.errors import CommandRefused
from slurm_hooks.model import Action, Snapshot
from slurm_hooks.slurm.actions import commands
from slurm_hooks.slurm.cluster import Cluster, cluster_command, parse_cluster
from slurm_hooks.slurm.jobs import jobs_command, parse_jobs
from slurm_hooks.slurm.live import Port
from slurm_hooks.slurm.remarks import parse_remarks, remarks_command


def read_cluster(port: Port) -> Cluster:
    """Nodes, reservations, partitions, configuration and slurmctld's clock."""
    return parse_cluster(port.ask(cluster_command()))


def observe(port: Port, partitions: Sequence[str]) -> Snapshot:
    """The cluster now, in two commands whatever its size."""
    jobs = parse_jobs(port.ask(jobs_command()), partitions)
    cluster = read_cluster(port)
    return Snapshot(
        now=cluster.now,
        slurm=cluster.slurm,
        nodes=cluster.nodes,
        jobs=jobs.malleable,
        planned=jobs.planned,
        reservations=cluster.reservations,
        unknown=jobs.unknown + cluster.unknown,
    )


def read_remarks(port: Port, job_id: int) -> tuple[str, ...]:
    """What a job says of itself, as its user could have written it: to be shown, no more."""
    return parse_remarks(port.ask(remarks_command(job_id)))


def look_again(port: Port, seen: Snapshot) -> Snapshot:
    """The same snapshot with nodes, reservations and clock read anew, in one command."""
    cluster = read_cluster(port)
    return replace(
        seen,
        now=cluster.now,
        nodes=cluster.nodes,
        reservations=cluster.reservations,
        unknown=seen.unknown + cluster.unknown,
    )


def apply(
    port: Port, seen: Snapshot, actions: Sequence[Action], pause: Callable[[str], None]
) -> list[str]:
    """Write all actions; what Slurm refused comes back as one line each, the rest goes on.

    `pause` is called before each command with its text, for progress and for tests that stop
    between any two writes. Raises RetryLater if Slurm stopped answering: the next tick goes on.
    """
    notes = {f.id: f.note for job in seen.jobs for f in job.fragments}
    refused = []
    for command in commands(actions, notes):
        pause(" ".join(command.argv))
        try:
            port.ask(command)
        except CommandRefused as error:
            refused.append(str(error))
    return refused
