"""Malleable jobs on a recorded machine, from change to change.

Two clocks. Event-driven, as in the papers' replays: a decision at every moment at which a node
joins or leaves and at every completion, carried out at once. With ticks, as the real reconciler
works: decisions at fixed times, carried out a latency later, and a node that one job gives up goes
to another one tick later. With both, leaves come first among the changes of one moment, then
joins, then completions, then the decision. Policies decide about sizes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from slurm_hooks.allocation.minimums import turn_at
from slurm_hooks.replay.question import Policy, Question, Row, Spent
from slurm_hooks.replay.record import Moment, Record, moments
from slurm_hooks.replay.rules import Rules
from slurm_hooks.replay.simulator.counts import Move, moves, question
from slurm_hooks.replay.simulator.running import Ledger, Pause, Running
from slurm_hooks.replay.simulator.supply import Classes, Supply
from slurm_hooks.replay.work import Kind, Queue

MOST_SAMPLES = 2_000


@dataclass
class Outcome:
    """What happened; sums over the whole record.

    `hits` counts how often a job lost nodes without notice (once per moment), `lost` says which
    (time, node), `stayed` which of them went from jobs that would not flee; `samples` are (time,
    idle nodes, used nodes); `last_done_s` is when the last job ended. `spent` is
    what it took to learn how jobs scale.
    """

    ledger: Ledger = field(default_factory=Ledger)
    hits: int = 0
    lost: list[tuple[float, int]] = field(default_factory=list)
    stayed: set[tuple[float, int]] = field(default_factory=set)
    rescales: int = 0
    ticks: int = 0
    solve_s: list[float] = field(default_factory=list)
    job_s: dict[str, list[float]] = field(default_factory=dict)
    samples: list[tuple[float, int, int]] = field(default_factory=list)
    last_done_s: float = 0.0
    spent: Spent = field(default_factory=Spent)


class Simulation:
    """One run of one policy over one record."""

    def __init__(
        self, record: Record, queue: Queue, jobs: int, policy: Policy, rules: Rules
    ) -> None:
        self.outcome = Outcome()
        self.jobs: list[Running] = []
        self._record = record
        self._policy = policy
        self._rules = rules
        self._supply = Supply(record, policy.sees_ends, rules)
        self._moments = moments(record.intervals, record.to_s)
        self._coming: Iterator[Kind] = iter(queue)
        self._number = 0
        self._is_dirty = True
        self._stood: tuple[object, ...] = ()
        self._orders: list[Move] = []
        self._most_jobs = jobs
        self._wake_s = math.inf  # when to decide even if nothing changes
        self._admit(record.from_s)

    def run(self, tell: Callable[[float], None] = lambda share: None) -> Outcome:
        """Simulate the whole record; `tell` is called now and then with the share that is done."""
        record, rules, upcoming = self._record, self._rules, iter(self._moments)
        moment = next(upcoming, None)
        tick = record.from_s if rules.tick_s else math.inf
        carry = math.inf
        sampled_s = record.from_s
        while True:
            done = min((job.finish_s for job in self.jobs), default=math.inf)
            wake = math.inf if rules.tick_s else self._wake_s
            now = min(moment.at_s if moment else math.inf, done, tick, carry, wake)
            if now >= record.to_s:
                break
            if moment and moment.at_s == now:
                self._change(moment)
                moment = next(upcoming, None)
            if done == now:
                self._complete(now)
            moved = 0
            if not rules.tick_s or (tick == now and self._has_news(now)):
                self._orders, carry = self._plan(now), now + rules.latency_s
                moved = sum(len(move.gone) + len(move.new) for move in self._orders)
            if tick == now:
                tick = self._next_tick(now, moved)
                self.outcome.ticks += 1
            if carry == now:
                self._carry_out(self._orders, now)
                carry = math.inf
            if now - sampled_s >= record.window_s / MOST_SAMPLES:
                self._sample(now)
                tell((now - record.from_s) / record.window_s)
                sampled_s = now
        for job in self.jobs:
            job.advance(record.to_s, self.outcome.ledger)
        tell(1.0)
        return self.outcome

    def _has_news(self, now: float) -> bool:
        """True if a decision could differ from the one before."""
        if self._is_dirty or self._supply.is_closing(now):
            return True
        return self._standings(now) != self._stood

    def _standings(self, now: float) -> tuple[object, ...]:
        """How jobs stand with their minimums, as far as time alone changes it: while all jobs have
        theirs it makes no difference."""
        patience_s = self._rules.patience_s
        if all(job.size >= job.kind.min_nodes for job in self.jobs):
            return ()
        standings = (job.standing(job.size, now, patience_s) for job in self.jobs)
        return (turn_at(now, patience_s), *standings)

    def _next_tick(self, now: float, moved: int) -> float:
        """The tick after that of `now`, which moved so many nodes; free of the drift of repeated
        sums. A dear one does not put off the next, which was announced before."""
        start, step = self._record.from_s, self._rules.tick_s
        if self._rules.pace is None:
            return start + (round((now - start) / step) + 1) * step
        self._rules = self._supply.rules = self._rules.after(moved)
        return now + min(step, self._rules.tick_s)

    def _sample(self, now: float) -> None:
        present = self._supply.present
        self.outcome.samples.append((now, present, present - len(self._supply.free)))

    def _admit(self, now: float) -> None:
        while len(self.jobs) < self._most_jobs:
            kind = next(self._coming, None)
            if kind is None:
                return
            self._number += 1
            own_s = kind.checkpoint_s
            checkpoint_s = self._rules.checkpoint_s if own_s is None else own_s
            self.jobs.append(Running(self._number, kind, now, checkpoint_s))

    def _change(self, moment: Moment) -> None:
        ledger = self.outcome.ledger
        self._is_dirty = True
        for job, nodes in self._supply.leave(moment.leaves).items():
            gone, size = [(moment.at_s, node) for node in nodes], job.size
            self.outcome.lost += gone
            if self._rules.stays(job.hit_s, size, len(nodes)):
                self.outcome.stayed.update(gone)
            job.advance(moment.at_s, ledger)
            for node in nodes:
                del job.nodes[node]
            job.forget(size, ledger)
            job.pause(Pause.LOSS, self._rules.rescale.down_s)
            self.outcome.hits += 1
        self._supply.join(moment)

    def _complete(self, now: float) -> None:
        self._is_dirty = True
        for job in [job for job in self.jobs if job.finish_s <= now]:
            job.complete(now, self.outcome.ledger)
            for node in list(job.nodes):
                self._supply.take(node, job)
            self.outcome.job_s.setdefault(job.kind.name, []).append(now - job.entered_s)
            self.outcome.last_done_s = now
            self.jobs.remove(job)
        self._admit(now)

    def _plan(self, now: float) -> list[Move]:
        """Ask the policy, and choose the nodes."""
        classes = self._supply.classes(now, self.jobs)
        asked = question(self.jobs, self._supply, classes, now)
        self._stood = self._standings(now)
        start = time.perf_counter()
        rows = self._policy.decide(asked)
        self.outcome.solve_s.append(time.perf_counter() - start)
        found = self._moves(asked, rows, classes)
        self._is_dirty = bool(found) or not all(job.may_grow for job in asked.jobs)
        return found

    def _moves(self, asked: Question, rows: Sequence[Row], classes: Classes) -> list[Move]:
        is_at_once = not self._rules.tick_s
        return moves(self.jobs, asked, rows, classes, self._supply.free, is_at_once)

    def _carry_out(self, orders: Sequence[Move], now: float) -> None:
        """Those who lose go first; what changed meanwhile is left alone."""
        ledger, rescale = self.outcome.ledger, self._rules.rescale
        lost, before = {}, {move.job: move.job.size for move in orders}
        for move in orders:
            if move.gone:
                move.job.advance(now, ledger)
                lost[move.job] = sum(self._supply.take(node, move.job) for node in move.gone)
        for move in orders:
            job = move.job
            job.advance(now, ledger)
            gained = 0
            if job.finish_s > now and job in self.jobs:
                gained = sum(self._supply.give(node, job) for node in move.new)
            if not gained and not lost.get(job):
                continue
            self.outcome.rescales += 1
            if self._rules.redoes_planned:
                job.forget(before[job], ledger)
            else:
                job.save()
            if gained:
                job.pause(Pause.GROW, rescale.up_s)
            else:
                job.pause(Pause.SHRINK, rescale.down_s)
                job.no_growth_until = now + self._rules.snooze_s
            self._is_dirty = True
