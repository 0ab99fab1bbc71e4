"""Malleable jobs on a recorded machine, from moment to moment.

A tick shows the planner a snapshot and takes the actions of its plan. They take effect a latency
later, and a node that a job gives up is free at the next tick. At the same moment, nodes leave
first, then nodes join, then jobs end, then the tick runs.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Optional

from slurm_hooks.model import Intent, Plan, Said, Snapshot, Verb
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.leases import may_stay, renewal
from slurm_hooks.planning.survey import survey_of
from slurm_hooks.replay.costs import Costs
from slurm_hooks.replay.outcome import MOST_SAMPLES, Outcome
from slurm_hooks.replay.record import Moment, Record, moments
from slurm_hooks.replay.running import Pause
from slurm_hooks.replay.work import Kind, Queue
from slurm_hooks.replay.world.member import Member, Terms, number_of
from slurm_hooks.replay.world.nodes import Nodes, known_later
from slurm_hooks.replay.world.planners import Planner
from slurm_hooks.replay.world.quiet import Quiet


@dataclass
class _Orders:
    """The actions of a plan that wait for the latency."""

    at_s: float = math.inf
    grows: list[Intent] = field(default_factory=list)
    going: list[tuple[Member, int]] = field(default_factory=list)


class World:
    """A run, with a tick every `tick.every_s`."""

    def __init__(
        self,
        record: Record,
        work: tuple[Queue, int],
        planner: Planner,
        terms: Terms,
        costs: Costs,
    ) -> None:
        """`work` is the queue, and the number of its jobs at any time."""
        queue, self._most = work
        self.outcome = Outcome()
        self.members: dict[int, Member] = {}
        self.nodes = Nodes(record, terms.partitions, terms.calendar, terms.grain)
        self._record, self._planner, self._terms, self._costs = record, planner, terms, costs
        self._settings = terms.settings
        self._coming: Iterator[Kind] = iter(queue)
        self._changes = deque(moments(record.intervals, record.to_s))
        self._known = deque(known_later(record))
        self._tick_s = record.from_s
        self._number = 0
        self._orders = _Orders()
        self._seen: Optional[Snapshot] = None
        self._is_news = True
        self._quiet_until = -math.inf
        self._quiet = Quiet(terms.settings, terms.slurm.kill_wait.total_seconds())
        self._admit(record.from_s)

    def run(self, tell: Callable[[float], None] = lambda share: None) -> Outcome:
        """Simulate the whole record. `tell` is called now and then with the share that is done."""
        record = self._record
        sampled_s = record.from_s
        while (now := self._next()) < record.to_s:
            self._happen(now)
            if self._tick_s == now:
                self._tick_s = self._tick(now)
            if now - sampled_s >= record.window_s / MOST_SAMPLES:
                self.outcome.samples.append((now, self.nodes.present, self.nodes.used))
                tell((now - record.from_s) / record.window_s)
                sampled_s = now
        for member in self.members.values():
            member.advance(record.to_s, self.outcome.ledger)
        tell(1.0)
        return self.outcome

    def _next(self) -> float:
        """The time of the next event."""
        changes = [self._changes[0].at_s] if self._changes else []
        ours = (min(m.finish_s, m.lease_end) for m in self.members.values())
        known = [self._known[0]] if self._known else []
        return min(*changes, *known, *ours, self._tick_s, self._orders.at_s)

    def _happen(self, now: float) -> None:
        """Carry out the events of this moment, except the tick."""
        if self._changes and self._changes[0].at_s == now:
            self._change(self._changes.popleft())
        if self._known and self._known[0] == now:
            self._known.popleft()
            self._is_news = True
        if any(member.lease_end == now for member in self.members.values()):
            self._expire(now)
        if any(member.finish_s == now for member in self.members.values()):
            self._complete(now)
        if self._orders.at_s == now:
            self._carry_out(now)

    # -- ticks

    def _tick(self, now: float) -> float:
        """Run a tick, and return the time of the next."""
        self.outcome.ticks += 1
        is_same = not self._is_news and now < self._quiet_until
        if is_same and not self._planner.asks_always:
            self._renew(now)
        else:
            self._decide(now)
        start, step = self._record.from_s, self._settings.tick.every_s
        return start + (round((now - start) / step) + 1) * step

    def _decide(self, now: float) -> None:
        """Plan, and start the actions."""
        self._is_news = False
        self._seen = self.snapshot(now)
        plan = self._planner.plan(self._seen, self._settings)
        self.outcome.solve_s.append(plan.solve.seconds)
        self._apply(plan, now)
        ends, idle_since = self.nodes.ends(now), self.nodes.idle_since.values()
        self._quiet_until = self._quiet.until(now, ends, idle_since, self.members.values())

    def snapshot(self, now: float) -> Snapshot:
        """The snapshot of the machine for a tick."""
        members = self.members.values()
        return Snapshot(
            now=self._terms.calendar.at(now),
            slurm=self._terms.slurm,
            nodes=self.nodes.shown(),
            jobs=tuple(member.job for member in members),
            planned=self.nodes.planned(now),
            curves=self._planner.curves(members),
            learned=self._planner.learned(now, members),
        )

    def _apply(self, plan: Plan, now: float) -> None:
        """Take the intents of a plan. Leases and marks are written at once, the rest follows after
        the latency. Only fragments of ended jobs are cancelled, and those are no longer here."""
        orders = _Orders(now + self._costs.latency_s)
        for intent in plan.actions:
            if intent.verb is Verb.GROW:
                orders.grows.append(intent)
            elif intent.verb is not Verb.CANCEL:
                self._write(intent, orders)
        if orders.grows or orders.going:
            self._orders = orders

    def _write(self, intent: Intent, orders: _Orders) -> None:
        """Write the lease and the mark of a fragment, and put it back or send it away."""
        member, index = self.members[intent.fragment.job_id], intent.fragment.index
        if intent.end is not None:
            member.renew(index, self._terms.calendar.seconds(intent.end))
        if intent.mark is not None:
            self._is_news = True
            member.mark(index, intent.mark)
        if intent.verb is Verb.PUT_BACK or intent.is_ended:
            self._is_news = True
            member.put_back(index)
        elif intent.verb is Verb.NOTICE:
            orders.going.append((member, index))

    def _renew(self, now: float) -> None:
        """Renew leases, as a tick does on an unchanged machine."""
        due_s = now + self._settings.lease.length_s / 2
        due = [member for member in self.members.values() if member.lease_end <= due_s]
        if not due:
            return
        assert self._seen is not None
        calendar = self._terms.calendar
        ground = Ground(replace(self._seen, now=calendar.at(now)), self._settings)
        survey = survey_of(ground)
        for member in due:
            past = survey.interruptions.staying(member.job, survey.holes)
            for fragment in member.job.active:
                if member.leases.get(fragment.id.index, math.inf) <= due_s:
                    stay = may_stay(survey, fragment, fragment.id in past)
                    renewed = renewal(ground, fragment, member.job, stay)
                    if renewed and renewed.end is not None:
                        member.renew(fragment.id.index, calendar.seconds(renewed.end))

    # -- what happens

    def _admit(self, now: float) -> None:
        while len(self.members) < self._most:
            kind = next(self._coming, None)
            if kind is None:
                return
            self._number += 1
            own_s = kind.checkpoint_s
            checkpoint_s = self._costs.checkpoint_s if own_s is None else own_s
            self.members[self._number] = Member(self._number, kind, now, checkpoint_s, self._terms)

    def _change(self, moment: Moment) -> None:
        """Let nodes leave and join. Slurm requeues the fragments of nodes that leave."""
        self._is_news = True
        for member, elements in self.nodes.leave(moment).items():
            self._lose(member, elements, moment.at_s, member.stop)
        self.nodes.join(moment)

    def _expire(self, now: float) -> None:
        """End the leases that no tick has renewed."""
        self._is_news = True
        for member in [m for m in self.members.values() if m.lease_end <= now]:
            elements = [index for index, end_s in member.leases.items() if end_s <= now]
            for index in elements:
                self._take(member, index, now)
            self._lose(member, elements, now, member.expire)

    def _take(self, member: Member, index: int, now: float) -> None:
        node = member.node(index)
        assert node is not None
        self.nodes.take(node, (member, index), now)

    def _lose(
        self,
        member: Member,
        elements: Sequence[int],
        now: float,
        end: Callable[[int, float], None],
    ) -> None:
        """Interrupt a job: it goes back to its checkpoint, and pauses."""
        ledger, size = self.outcome.ledger, member.size
        lost = (member.node(index) for index in elements)
        self.outcome.lost += [(now, node) for node in lost if node is not None]
        self.outcome.interruptions += 1
        member.advance(now, ledger)
        for index in elements:
            end(index, now)
        member.forget(size, ledger)
        member.pause(Pause.LOSS, self._costs.rescale.down_s)

    def _complete(self, now: float) -> None:
        self._is_news = True
        for member in [m for m in self.members.values() if m.finish_s <= now]:
            member.complete(now, self.outcome.ledger)
            for index in member.leases:
                self._take(member, index, now)
            self.outcome.job_s.setdefault(member.kind.name, []).append(now - member.entered_s)
            self.outcome.last_done_s = now
            del self.members[member.number]
        self._admit(now)

    def _carry_out(self, now: float) -> None:
        """Carry out the plan, leaving nodes first. Skip actions whose object has changed since."""
        orders, self._orders, self._is_news = self._orders, _Orders(), True
        before: dict[Member, int] = {}
        grown: set[Member] = set()
        for member, index in orders.going:
            if member.number not in self.members or index not in member.leases:
                continue
            self._touch(member, before, now)
            self._take(member, index, now)
            member.stop(index, now, Said.LEAVING)
        for grow in orders.grows:
            growing = self.members.get(grow.fragment.job_id)
            node, slots = number_of(next(iter(grow.nodes))), grow.size * self._terms.grain.per
            if growing is None or self.nodes.room(node) < slots:
                continue
            self._touch(growing, before, now)
            closes = grow.asks.memory_mib > self._terms.grain.of(slots).memory_mib
            self.nodes.give(node, (growing, grow.fragment.index), slots, closes)
            growing.begin(grow, now)
            grown.add(growing)
        for member, size in before.items():
            self._rescaled(member, size, member in grown)

    def _touch(self, member: Member, before: dict[Member, int], now: float) -> None:
        if member not in before:
            before[member] = member.size
            member.advance(now, self.outcome.ledger)

    def _rescaled(self, member: Member, before: int, has_grown: bool) -> None:
        self.outcome.rescales += 1
        if self._costs.redoes_planned:
            member.forget(before, self.outcome.ledger)
        else:
            member.save()
        rescale = self._costs.rescale
        if has_grown:
            member.pause(Pause.GROW, rescale.up_s)
        else:
            member.pause(Pause.SHRINK, rescale.down_s)
