"""Malleable jobs on a recorded machine, from change to change, as in the replays of papers.

A decision follows each join or leave of a node and each completion, and is carried out at once.
Leaves are first among the changes of the same moment, then joins, then completions, then the
decision. Policies decide about sizes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence

from papers.counts import Move, moves, question
from papers.question import Policy
from papers.rules import Rules
from papers.supply import Supply
from slurm_hooks.replay.outcome import MOST_SAMPLES, Outcome
from slurm_hooks.replay.record import Moment, Record, moments
from slurm_hooks.replay.running import Pause, Running
from slurm_hooks.replay.work import Kind, Queue


class Simulation:
    """A run of a policy over a record."""

    def __init__(
        self, record: Record, queue: Queue, jobs: int, policy: Policy, rules: Rules
    ) -> None:
        self.outcome = Outcome()
        self.jobs: list[Running] = []
        self._record = record
        self._policy = policy
        self._rules = rules
        self._supply = Supply(record, policy.sees_ends, rules)
        self._coming: Iterator[Kind] = iter(queue)
        self._number = 0
        self._most_jobs = jobs
        self._wake_s = math.inf  # the time of a decision even without a change
        self._admit(record.from_s)

    def run(self) -> Outcome:
        """Simulate the whole record."""
        record = self._record
        upcoming = iter(moments(record.intervals, record.to_s))
        moment = next(upcoming, None)
        sampled_s = record.from_s
        while True:
            done = min((job.finish_s for job in self.jobs), default=math.inf)
            now = min(moment.at_s if moment else math.inf, done, self._wake_s)
            if now >= record.to_s:
                break
            if moment and moment.at_s == now:
                self._change(moment)
                moment = next(upcoming, None)
            if done == now:
                self._complete(now)
            self._carry_out(self._plan(now), now)
            if now - sampled_s >= record.window_s / MOST_SAMPLES:
                present = self._supply.present
                self.outcome.samples.append((now, present, present - len(self._supply.free)))
                sampled_s = now
        for job in self.jobs:
            job.advance(record.to_s, self.outcome.ledger)
        return self.outcome

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
        for job, nodes in self._supply.leave(moment.leaves).items():
            size = job.size
            self.outcome.lost += [(moment.at_s, node) for node in nodes]
            job.advance(moment.at_s, ledger)
            for node in nodes:
                del job.nodes[node]
            job.forget(size, ledger)
            job.pause(Pause.LOSS, self._rules.rescale.down_s)
            self.outcome.interruptions += 1
        self._supply.join(moment)

    def _complete(self, now: float) -> None:
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
        classes = self._supply.classes(now)
        asked = question(self.jobs, self._supply, classes, now)
        start = time.perf_counter()
        rows = self._policy.decide(asked)
        self.outcome.solve_s.append(time.perf_counter() - start)
        return moves(self.jobs, asked, rows, classes, self._supply.free)

    def _carry_out(self, orders: Sequence[Move], now: float) -> None:
        """Carry out the moves. Jobs that lose nodes are first."""
        ledger, rescale = self.outcome.ledger, self._rules.rescale
        for move in orders:
            move.job.advance(now, ledger)
            for node in move.gone:
                self._supply.take(node, move.job)
        for move in orders:
            for node in move.new:
                self._supply.give(node, move.job)
            self.outcome.rescales += 1
            move.job.save()
            if move.new:
                move.job.pause(Pause.GROW, rescale.up_s)
            else:
                move.job.pause(Pause.SHRINK, rescale.down_s)
