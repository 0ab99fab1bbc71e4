"""Slurm as values: read a Snapshot, write intents. Holds no policy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, groupby
from typing import Optional

from slurm_hooks.errors import CommandRefused, RetryLater
from slurm_hooks.model import REFUSED, Intent, MalleableJob, Node, Snapshot, Verb, Waiter, Why
from slurm_hooks.model.plural import plural
from slurm_hooks.slurm.accounts import Charge, charges_command, parse_charges
from slurm_hooks.slurm.actions import commands, groups, starts
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
    """Nodes, reservations, partitions, configuration and slurmctld's clock."""
    return parse_cluster(port.ask(cluster_command()), lanes)


def observe(
    port: Port,
    partitions: Sequence[str],
    part_nodes: str = "",
    qos: str = "",
    read_terms: Optional[Callable[[], str]] = None,
) -> Snapshot:
    """The cluster now, in two commands whatever its size; one more while a group of fragments that
    was released has not started, and one where Slurm knows switches and there is a gang. Where QOS
    have a say in how our jobs are preempted, `read_terms` gives the answer to terms_command."""
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
        planned=jobs.planned,
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


def _in_lane(job: MalleableJob, part_nodes: str) -> MalleableJob:
    """A job that counts slots belongs to the partition for parts, wherever its fragments are."""
    is_part = part_nodes and job.request.slot is not None
    return replace(job, partition=part_nodes) if is_part else job


def _lanes(jobs: Iterable[MalleableJob]) -> list[str]:
    """All partitions that have fragments of these jobs."""
    lanes = {f.lane or job.partition for job in jobs for f in job.fragments}
    return sorted({name for lane in lanes for name in lane.split(",")})


def _placed(port: Port, jobs: Jobs, cluster: Cluster, partitions: Sequence[str]) -> Jobs:
    """The jobs with the nodes that fragments which were released together wait for."""
    places = parse_places(port.ask(places_command(partitions)))
    found = (placed(job, places, cluster.nodes) for job in jobs.malleable)
    return replace(jobs, malleable=tuple(found))


def _on_switches(port: Port, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """The nodes with their switches. Without an answer a gang gets any nodes, as elsewhere."""
    try:
        found = parse_switches(port.ask(switches_command()))
    except (CommandRefused, RetryLater) as error:
        _log.debug("switches were not read: %s", error)
        return nodes
    return tuple(replace(n, switch=found[n.name]) if n.name in found else n for n in nodes)


def with_charges(port: Port, seen: Snapshot) -> Snapshot:
    """The snapshot with account and QOS of each job, in one command: of our jobs, and of all where
    somebody waits for a limit."""
    ours = _lanes(seen.jobs)
    charges = parse_charges(port.ask(charges_command(() if seen.waiting else ours)))
    none = Charge("")

    def charged(job: MalleableJob) -> MalleableJob:
        charge = charges.get(job.job_id, none)
        return replace(job, account=charge.account, qos=charge.qos)

    def told(waiter: Waiter) -> Waiter:
        job_id = int(waiter.job_id.partition("_")[0].partition("+")[0])
        charge = charges.get(job_id, none)
        return replace(waiter, account=charge.account, qos=charge.qos)

    return replace(
        seen, jobs=tuple(map(charged, seen.jobs)), waiting=tuple(map(told, seen.waiting))
    )


def read_accounts(port: Port, jobs: Iterable[MalleableJob]) -> dict[int, str]:
    """The accounts that waiting and running jobs are charged to, by job id, as their users may
    have written them; in one command. A job of which nothing certain is said is not in it."""
    partitions = _lanes(jobs)
    charges = parse_charges(port.ask(charges_command(partitions))) if partitions else {}
    return {job_id: charge.account for job_id, charge in charges.items()}


def look_at_jobs(
    port: Port, partitions: Sequence[str], seen: Optional[Iterable[MalleableJob]] = None
) -> tuple[MalleableJob, ...]:
    """Our jobs, in one command. Fragments of a core may be in any partition. If it matters only
    what has become of the jobs that were `seen`, Slurm is asked about their partitions alone."""
    where = () if seen is None else sorted({*partitions, *_lanes(seen)})
    return parse_jobs(port.ask(jobs_command(where)), partitions).malleable


def read_remarks(port: Port, job_id: int) -> tuple[str, ...]:
    """What a job says of itself, as its user could have written it: only to be shown. Empty if
    Slurm has just forgotten the job or is busy: the rest is worth printing."""
    try:
        return parse_remarks(port.ask(remarks_command(job_id)))
    except (CommandRefused, RetryLater) as error:
        _log.debug("job %d: its remarks were not read: %s", job_id, error)
        return ()


def look_again(port: Port, seen: Snapshot, lanes: LaneNames) -> Snapshot:
    """The same snapshot with nodes, reservations and clock read anew, in one command."""
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
    port: Port, seen: Snapshot, intents: Sequence[Intent], pause: Callable[[str], None]
) -> list[str]:
    """Write all intents; what Slurm refused comes back as one line each, the rest goes on.

    `pause` is called before each command with its text, for progress and for tests that stop
    between any two writes. Raises RetryLater if Slurm stopped answering: the next tick goes on.
    """
    fragments = [f for job in seen.jobs for f in job.fragments]
    notes = {f.id: f.note for f in fragments}
    tied = frozenset(f.id for f in fragments if f.is_tied)
    grows = [i for i in intents if i.verb is Verb.GROW]
    others = [i for i in intents if i.verb is not Verb.GROW]
    written = commands(others, notes)
    refused = _write(port, [c for c in written if not c.patience_s], pause)
    machine = AllBut((*(node.name for node in seen.nodes), *seen.hidden) if grows else ())

    def start(some: Sequence[Intent]) -> list[str]:
        """Release these, but none whose update is refused: each half is tried by itself then, until
        a group is alone.

        A refused release counts as one in vain: it would be refused at the next tick too.
        """
        *updates, release = starts(some, notes, machine, tied)
        faults = _write(port, updates, pause)
        if not faults:
            return _write(port, [release], pause)
        found = groups(some, notes, tied)
        if len(found) > 1:
            halves = found[: len(found) // 2], found[len(found) // 2 :]
            return [line for half in halves for line in start(list(chain(*half)))]
        vain = [
            Intent(i.fragment, Why.NOT_STARTED, mark=i.mark.in_vain(seen.now, REFUSED))
            for i in some
            if i.mark is not None
        ]
        return faults + _write(port, commands(vain, notes), pause)

    refused += start(grows) if grows else []
    return refused + _write(port, [c for c in written if c.patience_s], pause)


def _write(port: Port, written: Sequence[Command], pause: Callable[[str], None]) -> list[str]:
    refused: list[str] = []
    for is_quick, group in groupby(written, lambda c: c.patience_s > 0):
        found = list(group)
        for command in found:
            pause(" ".join(command.argv))
            if not is_quick:
                refused += _ask(port, command)
        if is_quick:
            _ask_together(port, found)
    return refused


def _ask(port: Port, command: Command) -> list[str]:
    try:
        port.ask(command)
    except CommandRefused as error:
        return [str(error)]
    return []


def _ask_together(port: Port, found: Sequence[Command]) -> None:
    """Run commands side by side, within bounds; nobody waits for their answers."""
    if len(found) == 1:
        port.ask(found[0])
        return
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        for _ in pool.map(port.ask, found):
            pass
