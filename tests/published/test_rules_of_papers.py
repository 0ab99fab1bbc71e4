"""The rules of replays in papers, on machines small enough to calculate by hand."""

from __future__ import annotations

import math

import pytest
from papers.counts import moves
from papers.plain import Equal, Nothing
from papers.question import Held, Question
from papers.rules import Rules
from papers.supply import ONE_CLASS

from published.simulated import replay
from replay.machines import SIX_FOUR, images, record, two_nodes
from slurm_hooks.model import Curve
from slurm_hooks.replay.record import dedicated, moments
from slurm_hooks.replay.running import Pause, Running
from slurm_hooks.replay.work import kind

EVENTS = Rules(SIX_FOUR)


def test_a_start_from_0_nodes_stalls():
    outcome = replay(record((0, 0.0, 100.0)), EVENTS)
    assert images(outcome) == pytest.approx(94 * 10)


def test_growth_and_loss_stall_and_the_loss_is_an_interruption():
    outcome = replay(record((0, 0.0, 100.0), (1, 50.0, 80.0)), EVENTS)
    # 6..50 on 1 node, 56..80 on 2, 84..100 on 1
    assert images(outcome) == pytest.approx(44 * 10 + 24 * 18 + 16 * 10)
    assert outcome.interruptions == 1
    assert outcome.ledger.used_node_s == pytest.approx(130)
    assert outcome.ledger.paused_node_s[Pause.LOSS] == pytest.approx(4)
    assert outcome.ledger.paused_node_s[Pause.GROW] == pytest.approx(6 + 2 * 6)


def test_a_later_stall_replaces_an_earlier_stall():
    # the second node joins at 50 and leaves at 52: the growth's pause to 56 is extended to 56 too
    outcome = replay(record((0, 0.0, 100.0), (1, 50.0, 51.0)), EVENTS)
    assert images(outcome) == pytest.approx(44 * 10 + 45 * 10)  # paused to 51 + 4


def test_nodes_that_leave_together_interrupt_a_job_once():
    outcome = replay(record((0, 0.0, 60.0), (1, 0.0, 60.0)), EVENTS)
    assert outcome.interruptions == 1
    assert images(outcome) == pytest.approx(54 * 18)


def test_a_node_that_leaves_and_joins_at_the_same_moment_is_lost_first():
    outcome = replay(record((0, 0.0, 50.0), (0, 50.0, 100.0)), EVENTS)
    assert outcome.interruptions == 1
    assert images(outcome) == pytest.approx(44 * 10 + 44 * 10)


def test_a_finished_job_is_replaced_at_once():
    outcome = replay(record((0, 0.0, 100.0)), EVENTS, images=100.0)
    assert outcome.job_s["toy"] == pytest.approx([16.0] * 6)
    assert images(outcome) == pytest.approx(600)


def test_unplanned_loss_costs_the_work_since_the_checkpoint():
    rules = Rules(SIX_FOUR, checkpoint_s=20.0)
    outcome = replay(record((0, 0.0, 51.0)), rules)
    # 45 s of work, checkpoints after 20 and 40: five seconds are done in vain
    assert images(outcome) == pytest.approx(400)
    assert outcome.ledger.redone_node_s == pytest.approx(5)


def test_equal_share_fills_the_first_jobs_with_the_rest():
    jobs = tuple(Held(two_nodes(), (0,)) for _ in range(3))
    asked = Question(jobs, (5,), (math.inf,))
    assert list(Equal().decide(asked)) == [(2,), (2,), (1,)]


def test_the_policy_none_uses_no_node():
    outcome = replay(dedicated(3, 0.0, 100.0), EVENTS, Nothing())
    assert outcome.ledger.used_node_s == 0


def test_changes_of_the_same_moment_are_together():
    at_each = moments(record((0, 0.0, 50.0), (1, 50.0, 100.0)).intervals, 100.0)
    assert [(m.at_s, m.leaves, len(m.joins)) for m in at_each] == [(0.0, (), 1), (50.0, (0,), 1)]


def test_a_gang_starts_with_its_minimum_or_not_at_all():
    """Node 0 changes hands, and node 2 is free. Three nodes would be too many to ask for."""
    gang = kind("gang", Curve(((0, 0.0), (2, 10.0))), (2, 2))
    jobs = [Running(1, two_nodes(), 0.0, 0.0), Running(2, gang, 0.0, 0.0)]
    jobs[0].nodes.update({1: 0.0, 0: 0.0})
    asked = Question((Held(jobs[0].kind, (2,)), Held(gang, (0,))), (3,), (math.inf,))
    both = moves(jobs, asked, [(1,), (2,)], ONE_CLASS, [2])
    assert [list(move.gone) for move in both] == [[0], []]
    assert [list(move.new) for move in both] == [[], [0, 2]]
    assert moves(jobs, asked, [(2,), (2,)], ONE_CLASS, [2]) == []
