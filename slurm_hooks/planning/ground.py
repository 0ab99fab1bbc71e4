"""What is the same for all jobs in one tick: the moment, the nodes, and how long each is open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from slurm_hooks.model import Hole, Node, Snapshot
from slurm_hooks.planning.failures import suspects
from slurm_hooks.planning.hits import Hits, hits_of
from slurm_hooks.planning.holes import Ends, ends_of, holes_of
from slurm_hooks.planning.limits import Queue, queue_of
from slurm_hooks.planning.modes import Mandate, mandate_of
from slurm_hooks.settings.values import Settings


@dataclass(frozen=True)
class Ground:
    """What every job finds: `ends` are the last moments at which a lease on a node may end, `hits`
    says who minds planned starts, `suspects` which nodes no job should use for now, with the jobs
    whose fragments died there, `mandate` what this tick may do, `queue` who waits for a limit on
    running jobs.

    `horizon` is how far the allocator looks ahead, `until_next` the time until the next tick.
    """

    now: datetime
    nodes: Mapping[str, Node]
    holes: Mapping[str, Hole]
    ends: Ends
    hits: Hits
    suspects: Mapping[str, tuple[int, ...]]
    horizon: timedelta
    longest_lease: timedelta
    shortest_hole: timedelta
    until_next: timedelta
    mandate: Mandate
    queue: Queue


def ground_of(snapshot: Snapshot, settings: Settings) -> Ground:
    """The ground of a snapshot."""
    holes = holes_of(snapshot)
    return Ground(
        now=snapshot.now,
        nodes={node.name: node for node in snapshot.nodes},
        holes=holes,
        ends=ends_of(snapshot, holes, settings.lease),
        hits=hits_of(settings, snapshot.slurm.kill_wait),
        suspects=suspects(snapshot.jobs, snapshot.now, settings, len(snapshot.nodes)),
        horizon=timedelta(seconds=settings.plan.horizon_s),
        longest_lease=timedelta(seconds=settings.lease.length_s),
        shortest_hole=timedelta(seconds=settings.lease.shortest_hole_s),
        until_next=timedelta(seconds=settings.tick.every_s),
        mandate=mandate_of(snapshot, settings),
        queue=queue_of(snapshot, settings),
    )
