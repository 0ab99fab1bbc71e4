"""From choices to a run of a published policy."""

from __future__ import annotations

import math
from dataclasses import replace

from papers.learning import Learning, Way
from papers.plain import Equal, Nothing
from papers.published import Optimum
from papers.question import Learnt, Policy
from papers.rules import Rules
from papers.shipped import Allocator, Shipped
from papers.simulate import Simulation
from papers.watched import WatchedSimulation
from slurm_hooks.allocation.objectives import OBJECTIVES
from slurm_hooks.allocation.problem import Limits
from slurm_hooks.replay.outcome import Outcome
from slurm_hooks.replay.record import Record
from slurm_hooks.replay.scenario import Conditions
from slurm_hooks.settings.values import Settings
from slurm_hooks.tick.entry_points import find_objective

WAYS = tuple(way.value for way in Way)
POLICIES = ("default", "optimum", "equal", "greedy", "oracle", "none", *WAYS)


def rules_of(conditions: Conditions) -> Rules:
    """The cost of changes. Everything else takes no time."""
    return Rules(
        conditions.rescale,
        horizon_s=conditions.t_fwd_s,
        checkpoint_s=conditions.checkpoint_s,
    )


def policy_of(name: str, conditions: Conditions, settings: Settings) -> Policy:
    """The policy of that name.

    Nodes that will close soon are worth taking too, so known ends make many classes at each of some
    ten thousand decisions: the greedy search answers there.
    """
    rescale, t_fwd_s = conditions.rescale, conditions.t_fwd_s
    if name == "none":
        return Nothing()
    if name == "equal":
        return Equal()
    if name == "optimum":
        return Optimum(rescale, t_fwd_s, conditions.objective == "speedup")
    if name in WAYS:
        inner = policy_of("default", conditions, settings)
        assert isinstance(inner, Allocator)
        return Learning(inner, rescale, Way(name), conditions.shares_family)
    objective = conditions.objective or settings.plan.objective
    shipped = Shipped(
        rescale,
        t_fwd_s,
        sees_ends=name == "oracle" or conditions.ends == "planned",
        objective=find_objective(objective),
        solver="greedy",
        is_tabled=name != "greedy" and objective in OBJECTIVES,
        limits=Limits(settings.plan.solve_limit_s, settings.plan.gap),
    )
    return Allocator(shipped)


def run(name: str, record: Record, conditions: Conditions, settings: Settings) -> Outcome:
    """A line: the policy of that name over the record."""
    if name == "oracle":
        known = tuple(replace(i, known_s=-math.inf) for i in record.intervals)
        record = replace(record, intervals=known)
    policy, rules = policy_of(name, conditions, settings), rules_of(conditions)
    if isinstance(policy, Learning):
        watched = WatchedSimulation(record, conditions.queue, conditions.jobs, policy, rules)
        return Learnt(**vars(watched.run()), spent=policy.spent)
    return Simulation(record, conditions.queue, conditions.jobs, policy, rules).run()
