"""What the terms of a partition make of the settings: how much notice its fragments get, and what
follows for the holes that they start in and for their leases.

A preempted fragment has its grace to leave, so one that we ask to leave has no less. All that must
be longer than a notice grows with it, or a fragment would be told to leave as it starts.
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
    """How long things take in a partition, or in all that a job may use.

    The `notice` is never longer than the longest that a site may set: with a grace of hours the
    fragments would leave hours before each planned start. `beyond` is what it has beyond the
    setting.
    """

    terms: Terms
    lease: Lease

    @cached_property
    def notice(self) -> timedelta:
        """From the moment when a fragment is asked to leave to its requeue."""
        return max(timedelta(seconds=self.lease.notice_s), min(self.terms.grace, _LONGEST))

    @cached_property
    def beyond(self) -> timedelta:
        """By how much a grace makes the notice longer than the settings do."""
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
        """True if Slurm takes a fragment that began at `start` from its node at that moment, should
        another job start there. Otherwise the other job would wait."""
        is_free = self.terms.exempt == _AT_ONCE or (
            start is not None and start + self.terms.exempt <= moment
        )
        return is_free and self.terms.grace == _AT_ONCE


def strictest(terms: Iterable[Terms]) -> Terms:
    """The strictest of each, for jobs that may be in any of these partitions."""
    found = tuple(terms)
    grace = max((t.grace for t in found), default=_AT_ONCE)
    exempt = max((t.exempt for t in found), default=_AT_ONCE)
    limits = (t.most for t in found if t.most is not None)
    return Terms("", grace, exempt, min(limits, default=None))
