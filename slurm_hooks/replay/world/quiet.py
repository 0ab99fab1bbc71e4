"""The moments at which time alone changes a plan. Until then an unchanged machine needs no plan.

A superfluous moment costs a plan. A missing moment changes the figures: a property test compares
with a replay that plans at each tick (`tests/replay/test_quiet.py`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from slurm_hooks.allocation.minimums import MOST_TURNS
from slurm_hooks.planning.holes import MINUTE, START
from slurm_hooks.planning.trouble import REST
from slurm_hooks.replay.world.member import Member
from slurm_hooks.settings.values import Settings

MOMENT_S = 1e-5  # snapshots count microseconds
MINUTE_S, START_S, REST_S = (span.total_seconds() for span in (MINUTE, START, REST))


class Quiet:
    """The moments that follow from the settings."""

    def __init__(self, settings: Settings, kill_wait_s: float) -> None:
        lease, plan = settings.lease, settings.plan
        early_s = lease.margin_s + kill_wait_s
        minutes = range(1, math.ceil(plan.horizon_s / MINUTE_S) + 1)
        leads = {early_s + MINUTE_S * k for k in minutes}
        leads |= {early_s + lease.notice_s + settings.tick.every_s}
        leads |= {early_s + lease.shortest_hole_s, early_s + START_S + MINUTE_S}
        leads |= {MINUTE_S, START_S + MINUTE_S, lease.shortest_hole_s}
        self._leads = sorted(leads)
        self._spans = sorted({REST_S, plan.snooze_s})
        self._patience_s, self._tick_s = plan.patience_s, settings.tick.every_s

    def until(
        self,
        now: float,
        ends: Iterable[float],
        idle_since: Iterable[float],
        members: Iterable[Member],
    ) -> float:
        """The first moment from `now` on at which the plan could differ. `ends` are the known times
        at which nodes leave. Parts of nodes leave after a node is idle for a tick."""
        since = now - MOMENT_S
        moments = (*self._moments(since, ends, members), *(s + self._tick_s for s in idle_since))
        later = (moment for moment in moments if moment >= since)
        return min(later, default=math.inf) - MOMENT_S

    def _moments(
        self, since: float, ends: Iterable[float], members: Iterable[Member]
    ) -> Iterator[float]:
        for end_s in ends:
            place = bisect_right(self._leads, end_s - since)
            if place:
                yield end_s - self._leads[place - 1]
        for member in members:
            for noted_s in member.noted:
                if noted_s + self._spans[-1] >= since:
                    yield from (noted_s + span for span in self._spans)
            if 0 < member.size < member.kind.min_nodes:
                yield since + MOMENT_S  # a gang that cannot go on: each tick counts
            if self._patience_s:
                yield from self._patience(since, member)

    def _patience(self, since: float, member: Member) -> Sequence[float]:
        """The time at which a waiting job counts more, or a running job is no longer new."""
        if member.size >= member.kind.min_nodes:
            return [member.oldest_s + self._patience_s]
        waits_s = max(member.noted | {member.entered_s})
        turns = [waits_s + turn * self._patience_s for turn in range(1, MOST_TURNS + 1)]
        step_s = self._patience_s / MOST_TURNS
        return [*turns, math.ceil(since / step_s) * step_s] if turns[-1] <= since else turns
