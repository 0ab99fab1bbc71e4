"""Properties of every replay: nodes, work and the bound. The tabled search is exact."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from papers.plain import Equal
from papers.published import Optimum
from papers.question import Held, Policy, Question, Row
from papers.rules import Rules
from papers.shipped import Allocator, Shipped
from papers.simulate import Simulation

from replay.machines import images, two_nodes
from slurm_hooks.allocation.allocate import allocate
from slurm_hooks.allocation.value import value
from slurm_hooks.model import Curve
from slurm_hooks.replay.costs import Rescale
from slurm_hooks.replay.record import Interval, Record
from slurm_hooks.replay.work import Queue, kind

FEW = settings(max_examples=40, deadline=None)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Up to four nodes with up to three holes each in 400 s."""
    intervals = []
    for node in range(draw(st.integers(1, 4))):
        cuts = draw(st.lists(st.integers(0, 400), min_size=2, max_size=6, unique=True))
        cuts = sorted(cuts)[: len(cuts) // 2 * 2]
        for start, end in zip(cuts[::2], cuts[1::2]):
            known = draw(st.sampled_from([math.inf, -1.0, float(start)]))
            intervals.append(Interval(node, float(start), float(end), known))
    return Record(tuple(intervals), 4, 0.0, 400.0)


class Watched:
    """Asks another policy, and records the nodes of each job at that time."""

    def __init__(self, inner: Policy, record: Record) -> None:
        self.sees_ends = inner.sees_ends
        self.simulation: Simulation | None = None
        self._inner = inner
        self._record = record

    def decide(self, question: Question) -> Sequence[Row]:
        assert self.simulation is not None
        held = [(job, node) for job in self.simulation.jobs for node in job.nodes]
        assert len({node for _, node in held}) == len(held)
        for job, node in held:
            now = job.since
            mine = [i for i in self._record.intervals if i.node == node]
            assert any(i.start_s <= now <= i.end_s for i in mine)
        return self._inner.decide(question)


def policies(rescale: Rescale) -> list[Policy]:
    return [
        Equal(),
        Optimum(rescale, 120.0),
        Allocator(Shipped(rescale, 120.0)),
        Allocator(Shipped(rescale, 120.0, sees_ends=True, solver="greedy")),
    ]


RULES = (Rules(Rescale(6.0, 4.0)), Rules(Rescale(6.0, 4.0), checkpoint_s=30.0))


@FEW
@given(records(), st.integers(1, 3), st.sampled_from(RULES), st.integers(0, 3))
def test_nodes_and_work_are_conserved_and_bounded(
    record: Record, jobs: int, rules: Rules, which: int
) -> None:
    policy = Watched(policies(rules.rescale)[which], record)
    queue = Queue((two_nodes(700.0),))
    simulation = policy.simulation = Simulation(record, queue, jobs, policy, rules)
    outcome = simulation.run()
    done = sum(map(len, outcome.job_s.values()))
    under_way = sum(700.0 - job.left for job in simulation.jobs)
    assert images(outcome) == pytest.approx(done * 700.0 + under_way)
    paused = math.fsum(outcome.ledger.paused_node_s.values())
    assert paused <= outcome.ledger.used_node_s + 1e-6
    assert outcome.ledger.used_node_s <= record.idle_node_s + 1e-6
    free = Rescale(0.0, 0.0)
    bound = Simulation(record, queue, jobs, Optimum(free, 120.0), Rules(free)).run()
    assert images(outcome) <= images(bound) * (1 + 1e-9) + 1e-6


KINDS = (
    kind("steps", Curve(((0, 0.0), (1, 5.0), (2, 6.0), (4, 19.0), (8, 30.0))), (1, 8)),
    kind("gang", Curve(((0, 0.0), (1, 3.0), (8, 22.0))), (3, 8)),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(KINDS), st.integers(0, 8)),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 6),
    st.sampled_from([Rescale(18.0, 12.0), Rescale(1.0, 0.7), Rescale(60.0, 40.0)]),
)
def test_the_tabled_answer_is_worth_the_allocator_s_answer(drawn, spare, rescale) -> None:
    jobs = []
    for of_kind, wanted in drawn:
        jobs.append(Held(of_kind, (wanted if wanted >= of_kind.min_nodes else 0,)))
    asked = Question(tuple(jobs), (sum(job.row[0] for job in jobs) + spare,), (math.inf,))
    policy = Allocator(Shipped(rescale, 120.0))
    problem = policy.problem(asked)
    fast = tuple(tuple(row) for row in policy.decide(asked))
    exact = allocate(problem)
    assert value(problem, fast) >= exact.solve.value * (1 - 2e-3) - 1e-6
    assert value(problem, fast) <= exact.solve.bound * (1 + 2e-3) + 1e-6
