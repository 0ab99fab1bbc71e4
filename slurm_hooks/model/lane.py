"""The notice, the holes and the leases of fragments, from the settings and a partition's terms.

A preempted fragment has its grace to leave, so a fragment that we ask to leave gets as much. All
spans that must exceed the notice grow with it. Otherwise a fragment would be asked to leave as it
starts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Optional

from slurm_hooks.model.cluster import Terms
from slurm_hooks.model.job import Request
from slurm_hooks.settings.values import LONGEST_NOTICE_S, Lease

_LONGEST = timedelta(seconds=LONGEST_NOTICE_S)
_AT_ONCE = timedelta(0)


@dataclass(frozen=True)
class Lane:
    """The notice and the leases in a partition, or in all partitions that a job may use.

    The `notice` is at most the longest that a site may set. With a grace of hours the fragments
    would otherwise leave hours before each planned start.
    """

    terms: Terms
    lease: Lease

    @cached_property
    def notice(self) -> timedelta:
        """The time from asking a fragment to leave to its requeue."""
        return max(timedelta(seconds=self.lease.notice_s), min(self.terms.grace, _LONGEST))

    @cached_property
    def beyond(self) -> timedelta:
        """The part of the notice that comes from the grace, beyond the setting."""
        return self.notice - timedelta(seconds=self.lease.notice_s)

    @cached_property
    def longest_lease(self) -> timedelta:
        """The longest lease that a fragment gets at once. An agent leaves a notice before the end,
        and half of a lease is over when it is renewed."""
        length = timedelta(seconds=self.lease.length_s) + 2 * self.beyond
        return length if self.terms.most is None else min(length, self.terms.most)

    def lease_of(self, request: Request) -> timedelta:
        """The longest lease of a fragment of such a job."""
        return min(request.lease + 2 * self.beyond, self.longest_lease)

    def shortest_hole_of(self, request: Request) -> timedelta:
        """The shortest hole in which such a job starts."""
        return request.shortest_hole + self.beyond

    def is_taken_at(self, moment: datetime, start: Optional[datetime]) -> bool:
        """True if Slurm clears the node at once should another job start there at that moment. The
        fragment there began at `start`. Otherwise the other job would wait."""
        is_free = self.terms.exempt == _AT_ONCE or (
            start is not None and start + self.terms.exempt <= moment
        )
        return is_free and self.terms.grace == _AT_ONCE


def strictest(terms: Iterable[Terms]) -> Terms:
    """The strictest value of each term, for jobs that may be in any of these partitions."""
    every = tuple(terms)
    grace = max((t.grace for t in every), default=_AT_ONCE)
    exempt = max((t.exempt for t in every), default=_AT_ONCE)
    limits = (t.most for t in every if t.most is not None)
    return Terms("", grace, exempt, min(limits, default=None))
