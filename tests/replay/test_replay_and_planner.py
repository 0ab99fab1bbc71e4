"""The same cluster seen by a tick and by a replay: both ask the allocator the same question."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Optional
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from build import (
    NOW,
    after,
    make_fragment,
    make_job,
    make_node,
    make_snapshot,
    no_clock,
    plan_start,
    span,
)
from slurm_hooks.allocation.allocate import allocate
from slurm_hooks.allocation.problem import JobAsk, Problem
from slurm_hooks.model import Curve, FragmentState, MalleableJob, NodeState, Request, Snapshot
from slurm_hooks.planning import plan, shares
from slurm_hooks.replay.policies.shipped import Allocator
from slurm_hooks.replay.record import Interval, Moment, Record
from slurm_hooks.replay.rules import Rescale
from slurm_hooks.replay.scenario import KILL_WAIT_S, Conditions, policy_of, rules_of
from slurm_hooks.replay.simulator.counts import question
from slurm_hooks.replay.simulator.running import Ledger, Running
from slurm_hooks.replay.simulator.supply import Supply
from slurm_hooks.replay.work import Kind, Queue, kind
from slurm_hooks.settings.values import Lease, Planning, Settings, Tick

CURVES = (
    Curve(((0, 0.0), (1, 10.0), (2, 18.0), (8, 50.0))),
    Curve(((0, 0.0), (1, 5.0), (2, 6.0), (4, 19.0))),
)
SECONDS = st.sampled_from([0.0, 7.5, 30.0])
HITS_S = st.sampled_from([0.0, 1.0, 140.0, 220.0, 600.0])  # leaving early costs 140 s or 200 s
AGES_S = st.sampled_from([399.0, 400.0, 1650.0, 20_000.0])  # up to four times the patience, or more
BOUNDARIES_S = (-30, 50, 60, 64, 65, 90, 110, 119, 120, 180, 200, 240, 300)
NOW_S = NOW.timestamp()
BEGIN_S, FOREVER_S = NOW_S - 30_000, NOW_S + 1e6


@dataclass(frozen=True)
class Trainer:
    """A job, the nodes it has, how long ago it was made smaller, and what a hit costs it. It was
    submitted `age_s` ago, and its nodes have worked for `ran_s`."""

    kind: Kind
    nodes: tuple[int, ...]
    shrunk_s: Optional[float]
    hit_s: float
    age_s: float
    ran_s: float


@dataclass(frozen=True)
class Cluster:
    """Jobs, and for each node how long until leases must have ended on it, if that is known."""

    trainers: tuple[Trainer, ...]
    left_s: tuple[Optional[float], ...]
    settings: Settings
    redoes: bool


@st.composite
def settings_of_sites(draw: st.DrawFn) -> Settings:
    lease = Lease(shortest_hole_s=draw(st.sampled_from([60, 90, 120, 300])), notice_s=20)
    planning = Planning(
        objective=draw(st.sampled_from(["speedup", "throughput", "efficiency", "priority"])),
        horizon_s=draw(st.sampled_from([60.0, 120.0, 200.0])),
        grow_s=draw(SECONDS),
        shrink_s=draw(SECONDS),
        snooze_s=draw(st.sampled_from([0.0, 60.0])),
        patience_s=draw(st.sampled_from([0.0, 70.0, 400.0, 3600.0])),
    )
    longest_tick_s = 30.0 if lease.shortest_hole_s < 120 else 90.0
    every_s = draw(st.sampled_from([30.0, longest_tick_s]))
    return Settings(lease=lease, plan=planning, tick=Tick(every_s=every_s))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Whatever nodes there are, but for ends so near that only the replay gives them back now."""
    site = draw(settings_of_sites())
    lead_s = site.lease.notice_s + site.tick.every_s
    ends = (st.sampled_from(BOUNDARIES_S) | st.integers(-60, 400)).map(float)
    same = ends.filter(lambda s: s <= lead_s or s // 60 * 60 > lead_s)
    left_s = tuple(draw(st.lists(st.none() | same, min_size=1, max_size=9)))
    owners = [draw(st.integers(0, 3)) for _ in left_s]
    trainers = []
    for at in range(3):
        mine = tuple(n for n, owner in enumerate(owners) if owner == at)
        least = draw(st.integers(1, 4))
        most = max(least, len(mine)) + draw(st.integers(0, 4))
        shrunk_s = draw(st.none() | st.sampled_from([10.0, 59.0, 60.0, 90.0]))
        of_kind = kind("toy", draw(st.sampled_from(CURVES)), (least, most))
        age_s, ran_s = draw(AGES_S), draw(st.sampled_from([69.0, 200.0, 350.0]))
        trainers.append(Trainer(of_kind, mine, shrunk_s, draw(HITS_S), age_s, ran_s))
    return Cluster(tuple(trainers), left_s, site, draw(st.booleans()))


def early_s(site: Settings) -> float:
    return site.lease.margin_s + KILL_WAIT_S


def asked_by_replay(cluster: Cluster) -> Problem:
    site = cluster.settings
    conditions = Conditions(
        queue=Queue((cluster.trainers[0].kind,)),
        jobs=len(cluster.trainers),
        rescale=Rescale(site.plan.grow_s, site.plan.shrink_s),
        t_fwd_s=site.plan.horizon_s,
        tick_s=site.tick.every_s,
        latency_s=2.0,
        checkpoint_s=600.0,
        redoes_planned=cluster.redoes,
    )
    rules, policy = rules_of(conditions, site), policy_of("default", conditions, site)
    ends = [FOREVER_S if s is None else NOW_S + s + early_s(site) for s in cluster.left_s]
    holes = tuple(Interval(n, BEGIN_S, end, BEGIN_S) for n, end in enumerate(ends))
    supply = Supply(Record(holes, len(holes), BEGIN_S, FOREVER_S), policy.sees_ends, rules)
    supply.join(Moment(BEGIN_S, (), tuple(hole for hole in holes if hole.end_s > NOW_S)))
    jobs = [running(supply, at, trainer, site) for at, trainer in enumerate(cluster.trainers)]
    assert isinstance(policy, Allocator)
    return policy.problem(question(jobs, supply, supply.classes(NOW_S, jobs), NOW_S))


def running(supply: Supply, number: int, trainer: Trainer, site: Settings) -> Running:
    job = Running(number, trainer.kind, NOW_S - trainer.age_s, trainer.hit_s)
    job.advance(NOW_S - trainer.ran_s, Ledger())
    for node in trainer.nodes:
        supply.give(node, job)
    if trainer.shrunk_s is not None:
        job.no_growth_until = NOW_S + site.plan.snooze_s - trainer.shrunk_s
        job.waits_since = NOW_S - trainer.shrunk_s
    return job


def asked_by_tick(cluster: Cluster) -> Problem:
    seen: list[Problem] = []

    def spy(problem: Problem, *others: Any, **named: Any) -> Any:
        seen.append(problem)
        return allocate(problem, *others, **named)

    with mock.patch.object(shares, "allocate", spy):
        plan.make_plan(snapshot_of(cluster), cluster.settings, no_clock)
    return seen[0]


def snapshot_of(cluster: Cluster) -> Snapshot:
    site = cluster.settings
    jobs = [malleable(at, trainer, cluster) for at, trainer in enumerate(cluster.trainers, start=1)]
    held = {n for trainer in cluster.trainers for n in trainer.nodes}
    there = {n: s for n, s in enumerate(cluster.left_s) if s is None or s + early_s(site) > 0}
    nodes = [make_node(f"n{n}", NodeState.BUSY if n in held else NodeState.FREE) for n in there]
    claims = [
        plan_start([f"n{n}"], s + early_s(site), f"{90 + n}")
        for n, s in there.items()
        if s is not None
    ]
    curves = {at: trainer.kind.curve for at, trainer in enumerate(cluster.trainers, start=1)}
    return make_snapshot(*jobs, nodes=nodes, planned=claims, curves=curves)


def malleable(job_id: int, trainer: Trainer, cluster: Cluster) -> MalleableJob:
    """More of its fragments wait than it could need: those that leave are not missed."""
    site = cluster.settings
    told: Any = {"hit_s": trainer.hit_s, "redoes": cluster.redoes}
    sizes = (trainer.kind.min_nodes, trainer.kind.max_nodes)
    lease, shortest = (after(s) - after(0) for s in (600, site.lease.shortest_hole_s))
    request = Request(*sizes, 2 * sizes[1] + 1, lease, shortest)
    runs, waits = FragmentState.RUNNING, FragmentState.HELD
    ran: Any = {"start": after(-trainer.ran_s), "limit": span(trainer.ran_s + 400)}
    fragments = [
        make_fragment(at, runs, [f"n{n}"], job_id, request=request, **told, **ran)
        for at, n in enumerate(trainer.nodes)
    ]
    noticed = None if trainer.shrunk_s is None else after(-trainer.shrunk_s)
    left = make_fragment(
        len(fragments), waits, (), job_id, request=request, noticed=noticed, **told
    )
    spare = request.fragments - len(fragments) - 1
    job = make_job(*fragments, left, held=spare, job_id=job_id, request=request)
    return replace(job, submitted=after(-trainer.age_s))


def essence(problem: Problem) -> tuple[object, ...]:
    """What of a problem can make a difference to the counts.

    Free nodes of no use to anybody, jobs that can get nothing, and what it would cost a job with
    no nodes to grow or shrink are left out. Everything else is compared, new fields too.
    """
    jobs = [job for job in problem.jobs if job.size or job.may_grow]
    classes: dict[tuple[object, ...], list[int]] = {}
    for c, node_class in enumerate(problem.classes):
        users = tuple(job.usable[c] for job in jobs)
        held = [job.held[c] for job in jobs]
        count = node_class.capacity if any(users) else sum(held)
        if count:
            before = classes.get((node_class.open_s, users), [0] * (1 + len(held)))
            after_it = [a + b for a, b in zip(before, [count, *held])]
            classes[node_class.open_s, users] = after_it
    return ([_asks(job) for job in jobs], classes, replace(problem, jobs=(), classes=()))


def _asks(job: JobAsk) -> JobAsk:
    """The ask without its name, and without the classes, which are compared apart."""
    costs = {} if job.size else {"grow_s": 0.0, "shrink_s": 0.0}
    return replace(job, name="", held=(job.size,), usable=(), **costs)


@settings(max_examples=100, deadline=None)
@given(clusters())
def test_a_replay_and_a_tick_ask_the_same(cluster: Cluster) -> None:
    assert essence(asked_by_replay(cluster)) == essence(asked_by_tick(cluster))
