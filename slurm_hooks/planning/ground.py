"""The basis of each decision in a tick: the cluster as it was read, and the site's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from slurm_hooks.model import (
    WAITING_STATES,
    Fragment,
    MalleableJob,
    Request,
    Slurm,
    Snapshot,
    Terms,
)
from slurm_hooks.model.lane import Lane, strictest
from slurm_hooks.settings.values import Settings


@dataclass(frozen=True)
class Ground:
    """The cluster as it was `seen`, and the settings by which it is judged."""

    seen: Snapshot
    settings: Settings

    @cached_property
    def now(self) -> datetime:
        """The moment for which everything is decided: slurmctld's clock."""
        return self.seen.now

    @cached_property
    def slurm(self) -> Slurm:
        return self.seen.slurm

    @cached_property
    def horizon(self) -> timedelta:
        """The time that the allocator looks ahead."""
        return timedelta(seconds=self.settings.plan.horizon_s)

    def lane(self, job: MalleableJob) -> Lane:
        """The terms of the fragments of a job.

        If it counts slots, any of our partitions may hold them.
        """
        return self._lane(job.partition, job.request)

    def lane_of(self, fragment: Fragment) -> Lane:
        return self._lane(fragment.lane, fragment.mark.request)

    def is_astray(self, fragment: Fragment) -> bool:
        """True if it belongs to the lane of a job with a core, and is in no partition of ours.

        Where QOS decide, it is also astray if it was released without the QOS of the site. A move
        to another partition gives it, so only a fragment in the partition of its core can lack it.
        """
        is_unmoved = fragment.lane in self._lanes_of_cores.get(fragment.id.job_id, ())
        lacks_qos = is_unmoved and self.gets_qos(fragment) and not fragment.mark.qos
        is_released = fragment.state not in WAITING_STATES
        return (lacks_qos and is_released) or fragment.is_astray(self.settings.site.partitions)

    @cached_property
    def _lanes_of_cores(self) -> Mapping[int, frozenset[str]]:
        """The partitions in which the core of each job waits or runs, by job."""
        cores = ((job.job_id, job.core) for job in self.seen.jobs if job.request.core)
        return {job_id: frozenset(f.lane for f in core) for job_id, core in cores}

    def gets_qos(self, fragment: Fragment) -> bool:
        """True if it gets QOS and account of the site as it starts.

        Such a fragment is outside the core of its job, which may be in the same partition.
        """
        has_core = bool(fragment.mark.request.core) and not fragment.is_core
        return has_core and self.slurm.preempts_by_qos and bool(self.settings.site.qos)

    def _lane(self, partition: str, request: Request) -> Lane:
        any_lane, plain, lanes = self._lanes
        return any_lane if request.slot is not None else lanes.get(partition, plain)

    @cached_property
    def _lanes(self) -> tuple[Lane, Lane, Mapping[str, Lane]]:
        """The strictest terms together, no terms, and the terms of each partition."""
        lease, terms = self.settings.lease, self.seen.terms
        lanes = {t.partition: Lane(t, lease) for t in terms}
        return Lane(strictest(terms), lease), Lane(Terms(""), lease), lanes

    @cached_property
    def lanes_up(self) -> frozenset[str]:
        """The partitions that have a node. A partition that is down has no node here."""
        return frozenset().union(*{node.partitions for node in self.seen.nodes})

    @cached_property
    def shortest_hole(self) -> timedelta:
        """The shortest hole in which anything starts."""
        return timedelta(seconds=self.settings.lease.shortest_hole_s)

    @cached_property
    def until_next(self) -> timedelta:
        """The time until the next tick."""
        return timedelta(seconds=self.settings.tick.every_s)
