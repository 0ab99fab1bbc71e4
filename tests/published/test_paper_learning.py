"""Jobs with hidden curves: the cost of learning. The learner never reads the true curves."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from papers import scenario
from papers.learning import MEASURE_S, Learning
from papers.question import Held, Question
from papers.shipped import Allocator, Shipped

from slurm_hooks.learning.throughput import Shape
from slurm_hooks.model import Curve
from slurm_hooks.replay.costs import Rescale
from slurm_hooks.replay.outcome import Outcome
from slurm_hooks.replay.record import dedicated
from slurm_hooks.replay.scenario import Conditions
from slurm_hooks.replay.work import Kind, Queue, kind
from slurm_hooks.settings.values import Settings

UP_DOWN = Rescale(18.0, 12.0)
SIZES = (1, 2, 4, 8, 16)


def curve_of(shape: Shape) -> Curve:
    return Curve(((0, 0.0), *((n, 100 * n / shape.slowdown(n)) for n in SIZES)))


SITE = {
    "steep": curve_of(Shape(0.0, 0.05, 1.0)),
    "usual": curve_of(Shape(0.15, 0.4, 1.0)),
    "flat": curve_of(Shape(0.9, 0.8, 1.0)),
    "cliff": curve_of(Shape(1.0, 0.1, 2.0)),
}


def job(name: str, node_s: float = 20_000.0) -> Kind:
    return kind(name, SITE[name], (1, 16), 100 * node_s)


def replay(policy: str, parts: tuple[Kind, ...], jobs: int, shares: bool = False) -> Outcome:
    conditions = Conditions(
        queue=Queue(parts, is_endless=False),
        jobs=jobs,
        rescale=UP_DOWN,
        t_fwd_s=120.0,
        tick_s=0.0,
        latency_s=0.0,
        checkpoint_s=0.0,
        ends="unknown",
        shares_family=shares,
    )
    return scenario.run(policy, dedicated(16, 0.0, 40_000.0), conditions, Settings())


MIX = tuple(job(name) for name in ("steep", "flat", "usual", "cliff") * 3)


def test_learned_curves_are_nearly_as_good_as_true_curves() -> None:
    ends = {p: replay(p, MIX, 4).last_done_s for p in ("default", "learned", "equal")}
    assert ends["learned"] < 1.08 * ends["default"]
    assert ends["learned"] < ends["equal"]


def test_each_job_is_probed_once_at_its_start() -> None:
    spent = replay("learned", MIX, 4).spent
    assert spent.looks == spent.jobs == len(MIX)
    assert 0 < spent.probed_node_s < 0.02 * spent.node_s


def test_jobs_of_a_family_are_probed_less_often() -> None:
    """Some are: now and then no listed job of the family knows the smallest size."""
    short = (job("usual", 3_000.0),) * 60
    spent = replay("learned", short, 4, shares=True).spent
    assert spent.jobs == 60
    assert spent.jobs_probed < 40
    assert replay("learned", short, 4).spent.jobs_probed > 40


def test_only_sizes_that_a_job_was_steady_on_are_known() -> None:
    """The policy is shown seconds. Until they are enough, the job keeps its smallest size."""
    inner = Allocator(Shipped(UP_DOWN, 120.0))
    policy = Learning(inner, UP_DOWN)
    asked = Question((Held(job("flat"), (0,)),), (16,), (math.inf,))
    on_one = replace(asked, jobs=(replace(asked.jobs[0], row=(1,)),))

    def decide(now: float, question: Question, seconds: float) -> int:
        policy.look(now, [(1, job("flat"), {1: seconds})])
        return sum(policy.decide(question)[0])

    assert decide(0.0, asked, 0.0) == 1
    assert policy.wake_s == pytest.approx(18 + MEASURE_S, abs=1)
    assert decide(20.0, on_one, MEASURE_S - 5) == 1
    assert decide(40.0, on_one, MEASURE_S) == 16
