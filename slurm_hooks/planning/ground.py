"""What is the same for all jobs in one tick: the moment, the nodes, and how long each is open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Optional

from slurm_hooks.model import Hole, Node, Snapshot
from slurm_hooks.planning.failures import suspects
from slurm_hooks.planning.holes import holes_of, latest_end
from slurm_hooks.planning.limits import Queue, queue_of
from slurm_hooks.planning.modes import Mandate, mandate_of
from slurm_hooks.settings import Settings


@dataclass(frozen=True)
class Ground:
    """What every job finds: `latest` is the last moment at which a lease on a node may end (None:
    nobody has claimed the node), `suspects` says why nobody should use a node for now, `mandate`
    what this tick may do, `queue` who waits for a limit on running jobs.

    `horizon` is how far the allocator looks ahead, `until_next` the time until the next tick.
    """

    now: datetime
    nodes: Mapping[str, Node]
    holes: Mapping[str, Hole]
    latest: Mapping[str, Optional[datetime]]
    suspects: Mapping[str, str]
    horizon: timedelta
    longest_lease: timedelta
    until_next: timedelta
    mandate: Mandate
    queue: Queue


def ground_of(snapshot: Snapshot, settings: Settings) -> Ground:
    """The ground of a snapshot."""
    holes = holes_of(snapshot)
    accused = suspects(snapshot.jobs, snapshot.now, settings, len(snapshot.nodes))
    return Ground(
        now=snapshot.now,
        nodes={node.name: node for node in snapshot.nodes},
        holes=holes,
        latest={n: latest_end(h, snapshot.slurm, settings.lease) for n, h in holes.items()},
        suspects={
            node: f"fragments of jobs {', '.join(map(str, jobs))} died there"
            for node, jobs in accused.items()
        },
        horizon=timedelta(seconds=settings.plan.horizon_s),
        longest_lease=timedelta(seconds=settings.lease.length_s),
        until_next=timedelta(seconds=settings.tick.every_s),
        mandate=mandate_of(snapshot, settings),
        queue=queue_of(snapshot, settings),
    )
