"""The rules of the replay, on machines small enough to work out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from replay.machines import SIX_FOUR, images, record, replay, two_nodes
from slurm_hooks.model import Curve
from slurm_hooks.replay.policies.plain import Equal, Nothing
from slurm_hooks.replay.policies.shipped import Allocator, Shipped
from slurm_hooks.replay.question import Held, Question
from slurm_hooks.replay.record import dedicated, moments
from slurm_hooks.replay.rules import OwnPace, Rescale, Rules
from slurm_hooks.replay.simulator.counts import moves
from slurm_hooks.replay.simulator.running import Pause, Running
from slurm_hooks.replay.simulator.simulate import Simulation
from slurm_hooks.replay.simulator.supply import ONE_CLASS
from slurm_hooks.replay.work import Queue, kind
from slurm_hooks.settings.values import Tick

EVENTS = Rules(SIX_FOUR)


def test_a_start_from_nothing_stalls():
    outcome = replay(record((0, 0.0, 100.0)), EVENTS)
    assert images(outcome) == pytest.approx(94 * 10)


def test_growth_and_loss_stall_and_the_loss_is_a_hit():
    outcome = replay(record((0, 0.0, 100.0), (1, 50.0, 80.0)), EVENTS)
    # 6..50 on one node, 56..80 on two, 84..100 on one
    assert images(outcome) == pytest.approx(44 * 10 + 24 * 18 + 16 * 10)
    assert outcome.hits == 1
    assert outcome.ledger.used_node_s == pytest.approx(130)
    assert outcome.ledger.paused_node_s[Pause.LOSS] == pytest.approx(4)
    assert outcome.ledger.paused_node_s[Pause.GROW] == pytest.approx(6 + 2 * 6)


def test_a_later_stall_replaces_an_earlier_one():
    # the second node comes at 50 and goes at 52: the growth's pause to 56 becomes one to 56 too
    outcome = replay(record((0, 0.0, 100.0), (1, 50.0, 51.0)), EVENTS)
    assert images(outcome) == pytest.approx(44 * 10 + 45 * 10)  # paused to 51 + 4


def test_nodes_that_leave_together_hit_a_job_once():
    outcome = replay(record((0, 0.0, 60.0), (1, 0.0, 60.0)), EVENTS)
    assert outcome.hits == 1
    assert images(outcome) == pytest.approx(54 * 18)


def test_a_node_that_leaves_and_joins_at_one_moment_is_lost_first():
    outcome = replay(record((0, 0.0, 50.0), (0, 50.0, 100.0)), EVENTS)
    assert outcome.hits == 1
    assert images(outcome) == pytest.approx(44 * 10 + 44 * 10)


def test_a_finished_job_is_replaced_at_once():
    outcome = replay(record((0, 0.0, 100.0)), EVENTS, images=100.0)
    assert outcome.job_s["toy"] == pytest.approx([16.0] * 6)
    assert images(outcome) == pytest.approx(600)


def test_ticks_see_changes_late_and_act_later():
    rules = Rules(SIX_FOUR, tick_s=30.0, latency_s=2.0)
    outcome = replay(record((0, 10.0, 100.0)), rules)
    assert images(outcome) == pytest.approx((100 - 32 - 6) * 10)


def test_ticks_at_their_own_pace_come_often_and_a_single_dear_one_delays_none():
    """Every 5.5 s (0.11 s is 2 % of that) while nothing moves. A tick that moves 45 nodes takes
    0.18 s more: 14.5 s would be right, but the next one is announced, and moves nothing."""
    crowd = kind("crowd", Curve(((0, 0.0), (45, 450.0))), (1, 45), 1e9)
    holes = [(node, 1.0, 100.0) for node in range(45)]
    rules = Rules(Rescale(0.0, 0.0), tick_s=5.0, latency_s=2.0, pace=OwnPace(Tick(), 0))
    outcome = Simulation(record(*holes), Queue((crowd,)), 1, Equal(), rules).run()
    # at 0 nothing, at 5 all nodes, which work from 7 on; at 10.5, 16, 21.5 and so on nothing
    assert images(outcome) == pytest.approx((100 - 7) * 450)
    assert outcome.ticks == 3 + math.ceil((100 - 16) / 5.5)


def test_at_their_own_pace_leases_mind_when_the_next_tick_comes():
    rules = Rules(SIX_FOUR, tick_s=5.0, lead_s=25.0, pace=OwnPace(Tick(), 1_000))
    assert (rules.after(0).tick_s, rules.after(0).lead_s) == pytest.approx((7.85, 27.85))
    assert rules.after(0).after(10_000).tick_s == Tick().every_s


def test_a_node_that_left_before_the_orders_arrive_is_not_given():
    rules = Rules(SIX_FOUR, tick_s=30.0, latency_s=2.0)
    outcome = replay(record((0, 10.0, 31.0)), rules)
    assert images(outcome) == 0
    assert outcome.rescales == 0


def test_unplanned_loss_costs_the_work_since_the_checkpoint():
    rules = Rules(SIX_FOUR, checkpoint_s=20.0)
    outcome = replay(record((0, 0.0, 51.0)), rules)
    # 45 s of work, checkpoints after 20 and 40: five seconds are done in vain
    assert images(outcome) == pytest.approx(400)
    assert outcome.ledger.redone_node_s == pytest.approx(5)


def shipped(rescale: Rescale = SIX_FOUR) -> Allocator:
    return Allocator(Shipped(rescale, 120.0, sees_ends=True))


def test_a_node_with_a_known_end_is_given_back_ahead():
    rules = Rules(SIX_FOUR, tick_s=30.0, lead_s=50.0, checkpoint_s=60.0, shortest_s=120.0)
    machine = record((0, 0.0, 300.0), (1, 0.0, 200.0), to_s=250.0, known_s=0.0)
    outcome = replay(machine, rules, shipped())
    assert outcome.hits == 0
    assert outcome.ledger.redone_node_s == 0
    # both from 6 to 150, when less than 50 s in whole minutes are left; then one from 154
    assert images(outcome) == pytest.approx(144 * 18 + 96 * 10)


def test_a_node_that_closes_soon_is_not_taken():
    rules = Rules(SIX_FOUR, tick_s=30.0, lead_s=50.0, shortest_s=120.0, checkpoint_s=600.0)
    machine = record((0, 0.0, 110.0), to_s=250.0, known_s=0.0)
    assert images(replay(machine, rules, shipped())) == 0


def test_a_job_that_hits_cost_little_stays_until_the_node_goes():
    rules = Rules(SIX_FOUR, tick_s=30.0, lead_s=50.0, checkpoint_s=20.0, shortest_s=120.0)
    outcome = replay(record((0, 0.0, 110.0), to_s=250.0, known_s=0.0), rules, shipped())
    assert outcome.hits == 1
    assert outcome.stayed == {(110.0, 0)}
    assert images(outcome) == pytest.approx(100 * 10)  # checkpoints of each 20 s of work


def test_scripts_that_hear_of_no_notice_do_not_flee_since_that_costs_them_as_much():
    rules = Rules(SIX_FOUR, tick_s=30.0, lead_s=50.0, checkpoint_s=60.0, shortest_s=120.0)
    machine = record((0, 0.0, 300.0), (1, 0.0, 200.0), to_s=250.0, known_s=0.0)
    outcome = replay(machine, replace(rules, redoes_planned=True), shipped())
    assert outcome.hits == 1
    assert images(outcome) == pytest.approx(180 * 18 + 46 * 10)  # 14 s since the third checkpoint
    assert outcome.ledger.redone_node_s == pytest.approx(2 * 14)


@pytest.mark.parametrize(
    ("checkpoint_s", "expected"),
    [(60.0, 60 * 10 + 124 * 18), (600.0, 244 * 10)],  # 30 s done again are worth it, 300 s are not
)
def test_a_planned_change_is_charged_what_is_done_again(checkpoint_s, expected):
    rules = Rules(SIX_FOUR, tick_s=30.0, checkpoint_s=checkpoint_s, redoes_planned=True)
    machine = record((0, 0.0, 300.0), (1, 110.0, 300.0), to_s=250.0)
    assert images(replay(machine, rules, shipped())) == pytest.approx(expected)


def test_an_end_that_nobody_knows_comes_as_a_hit():
    rules = Rules(SIX_FOUR, tick_s=30.0, lead_s=50.0, shortest_s=120.0)
    machine = record((0, 0.0, 110.0), to_s=250.0)
    outcome = replay(machine, rules, shipped())
    assert outcome.hits == 1
    assert images(outcome) == pytest.approx(104 * 10)


@pytest.mark.parametrize(("is_at_once", "given"), [(False, []), (True, [0, 2])])
def test_a_gang_starts_with_its_minimum_or_not_at_all(is_at_once, given):
    """Node 0 changes hands: with ticks it is there for others one tick later."""
    gang = kind("gang", Curve(((0, 0.0), (2, 10.0))), (2, 2))
    jobs = [Running(1, two_nodes(), 0.0, 0.0), Running(2, gang, 0.0, 0.0)]
    jobs[0].nodes.update({1: 0.0, 0: 0.0})
    held = (Held(jobs[0].kind, (2,)), Held(gang, (0,)))
    asked = Question(held, (3,), (math.inf,), (True,), (True,))
    found = moves(jobs, asked, [(1,), (2,)], ONE_CLASS, [2], is_at_once)
    assert found[0].gone == [0]
    assert [node for move in found[1:] for node in move.new] == given


def test_equal_share_fills_the_first_jobs_with_what_is_left():
    jobs = tuple(Held(two_nodes(), (0,)) for _ in range(3))
    asked = Question(jobs, (5,), (math.inf,), (True,), (True,))
    assert list(Equal().decide(asked)) == [(2,), (2,), (1,)]


def test_the_policy_none_uses_nothing():
    outcome = replay(dedicated(3, 0.0, 100.0), EVENTS, Nothing())
    assert outcome.ledger.used_node_s == 0


def test_changes_of_one_moment_are_together():
    found = moments(record((0, 0.0, 50.0), (1, 50.0, 100.0)).intervals, 100.0)
    assert [(m.at_s, m.leaves, len(m.joins)) for m in found] == [(0.0, (), 1), (50.0, (0,), 1)]


def test_a_job_that_has_waited_for_its_patience_takes_its_turn_though_nothing_has_changed():
    """One node, two jobs. The first has run for as long as the second has waited at 100 s; a tick
    later its node is free for the second. At 230 s the first has waited for as long in turn."""
    rules = Rules(Rescale(0.0, 0.0), tick_s=10.0, latency_s=1.0, patience_s=100.0)
    machine = record((0, 0.0, 1000.0), to_s=300.0)
    one = kind("one", Curve(((0, 0.0), (1, 10.0))), (1, 1), 1e9)
    simulation = Simulation(machine, Queue((one,)), 2, shipped(Rescale(0.0, 0.0)), rules)
    simulation.run()
    assert simulation.outcome.ledger.used_node_s == pytest.approx(300 - 1 - 2 * 10)
