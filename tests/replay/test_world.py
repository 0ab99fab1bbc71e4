"""A recorded machine carries out the plan, to the second."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from replay.machines import SIX_FOUR, images, record
from replay.worlds import SIX_FOUR_COSTS, Asked, played, settings_for, world
from slurm_hooks.allocation.minimums import turn_at
from slurm_hooks.allocation.objectives import speedup
from slurm_hooks.model import Curve, Plan, Snapshot
from slurm_hooks.replay.record import Interval
from slurm_hooks.replay.running import Pause
from slurm_hooks.replay.work import kind
from slurm_hooks.replay.world.calendar import calendar_of
from slurm_hooks.replay.world.planners import Nothing
from slurm_hooks.settings.values import Settings

TEN_MINUTES = record((0, 0.0, 600.0), to_s=700.0)
TWO_HOURS = record((0, 0.0, 7200.0), to_s=7200.0)


def test_a_job_has_a_node_from_the_first_tick_and_its_latency_until_it_is_lost():
    outcome = played(TEN_MINUTES)
    assert outcome.ledger.used_node_s == pytest.approx(600 - 2)
    assert outcome.ledger.paused_node_s[Pause.GROW] == pytest.approx(6)
    assert images(outcome) == pytest.approx((600 - 2 - 6) * 10)
    assert (outcome.interruptions, outcome.lost) == (1, [(600.0, 0)])


def test_beside_a_core_only_a_node_s_additional_rate_counts():
    """With its core alone it makes 10 images in a second, with the node 18.

    For the 6 s after the node's arrival, and the 4 s after its loss, the core does not train
    either.
    """
    beside = world(TEN_MINUTES, core=1)
    outcome = beside.run()
    assert outcome.ledger.used_node_s == pytest.approx(600 - 2)
    assert images(outcome) == pytest.approx(-6 * 10 + (600 - 2 - 6) * 8 - 4 * 10)
    assert [member.size for member in beside.members.values()] == [1]


def test_two_jobs_share_two_nodes():
    shared = world(record((0, 0.0, 600.0), (1, 0.0, 600.0), to_s=600.0), jobs=2)
    outcome = shared.run()
    assert outcome.ledger.used_node_s == pytest.approx(2 * 598)
    assert images(outcome) == pytest.approx(2 * 592 * 10)
    assert [member.size for member in shared.members.values()] == [1, 1]


def test_a_node_that_closes_is_given_back_a_notice_and_a_tick_ahead():
    """Leases end 90 s before the planned start at 600 s. At 480 s, 30 s are left, less than a
    notice (20 s) and a tick (30 s). At 450 s, 60 s were left."""
    outcome = played(
        record((0, 0.0, 600.0), to_s=700.0, known_s=0.0),
        costs=replace(SIX_FOUR_COSTS, checkpoint_s=600.0),
    )
    assert outcome.ledger.used_node_s == pytest.approx(480)
    assert images(outcome) == pytest.approx((480 - 6) * 10)
    assert (outcome.interruptions, outcome.ledger.redone_node_s) == (0, 0.0)


def test_a_job_that_loses_little_stays_until_the_planned_start():
    outcome = played(
        record((0, 0.0, 600.0), to_s=700.0, known_s=0.0),
        costs=replace(SIX_FOUR_COSTS, checkpoint_s=20.0),
    )
    assert outcome.lost == [(600.0, 0)]
    assert images(outcome) == pytest.approx(580 * 10)  # 592 s of work, checkpoints of each 20 s


def test_an_end_that_becomes_known_late_is_minded_from_the_next_tick_on():
    outcome = played(
        record((0, 0.0, 600.0), to_s=700.0, known_s=500.0),
        costs=replace(SIX_FOUR_COSTS, checkpoint_s=600.0),
    )
    assert outcome.ledger.used_node_s == pytest.approx(510)  # from 2 to 512
    assert outcome.interruptions == 0


def test_a_job_that_loses_a_node_pauses_and_repeats_its_unsaved_work():
    outcome = played(
        record((0, 0.0, 600.0), (1, 0.0, 200.0), to_s=600.0),
        costs=replace(SIX_FOUR_COSTS, checkpoint_s=50.0),
    )
    # both work from 8 to 200, the last checkpoint is at 158, and one node works from 204 on
    assert images(outcome) == pytest.approx(150 * 18 + (600 - 204) * 10)
    assert outcome.ledger.redone_node_s == pytest.approx(2 * 42)
    assert outcome.ledger.paused_node_s[Pause.LOSS] == pytest.approx(4)


def test_leases_are_renewed_so_that_no_work_is_lost():
    outcome = played(TWO_HOURS, costs=replace(SIX_FOUR_COSTS, checkpoint_s=600.0))
    assert outcome.interruptions == 0
    assert images(outcome) == pytest.approx((7200 - 2 - 6) * 10)
    assert len(outcome.solve_s) < 10  # of 240 ticks


@dataclass(frozen=True)
class Forgetful(Asked):
    """Renews no lease."""

    def plan(self, snapshot: Snapshot, settings: Settings) -> Plan:
        plan = super().plan(snapshot, settings)
        return replace(plan, actions=tuple(replace(a, end=None) for a in plan.actions))


def test_a_lease_that_no_tick_renews_ends_and_costs_the_work_since_the_checkpoint():
    """It ends at 602 s. The tick at 630 s puts the fragment back.

    The next tick may start it again once the job has waited for a minute, at 690 s.
    """
    outcome = played(
        replace(TWO_HOURS, to_s=1000.0),
        costs=replace(SIX_FOUR_COSTS, checkpoint_s=500.0),
        planner=Forgetful(speedup),
    )
    assert outcome.lost == [(602.0, 0)]
    assert images(outcome) == pytest.approx(500 * 10 + (1000 - 692 - 6) * 10)


def test_a_node_that_has_left_before_the_latency_is_over_is_not_given():
    outcome = played(record((0, 10.0, 31.0)))
    assert outcome.ledger.used_node_s == 0
    assert outcome.rescales == 0


def test_a_job_that_is_over_gives_its_node_to_the_next_job():
    outcome = played(replace(TWO_HOURS, to_s=100.0), parts=[kind("short", _ten(), (1, 1), 100.0)])
    # the first from 2 to 18, the next jobs from 32 to 48, from 62 to 78 and from 92 on
    assert outcome.job_s["short"] == pytest.approx([18.0, 30.0, 30.0])


def test_a_job_that_was_made_smaller_does_not_grow_for_a_minute_from_the_notice_on():
    """It leaves node 1 at 122 s. Node 2 is there from 130 s on, and it gets that at 182 s."""
    closes = Interval(1, 0.0, 247.0, known_s=0.0)
    others = record((0, 0.0, 600.0), (2, 130.0, 600.0), to_s=600.0)
    machine = replace(others, intervals=(closes, *others.intervals))
    outcome = played(machine, costs=replace(SIX_FOUR_COSTS, checkpoint_s=600.0))
    assert outcome.interruptions == 0
    assert outcome.ledger.used_node_s == pytest.approx(598 + 120 + (600 - 182))


def test_overdue_jobs_take_turns_as_counted_from_the_start_of_the_record():
    for patience_s in (3_600.0, 1_000.0, 77.0):
        calendar = calendar_of(patience_s)
        for second in (0.0, 19.0, 20.0, 5_000.0):
            turn = turn_at(calendar.at(second).timestamp(), patience_s)
            assert turn % 4 == turn_at(second, patience_s) % 4


def test_a_job_below_its_minimum_takes_its_turn_in_an_unchanged_world():
    """A node and two jobs. The second job has waited for its patience at 120 s."""
    settings = settings_for(SIX_FOUR)
    settings = replace(settings, plan=replace(settings.plan, patience_s=120.0))
    one = kind("one", _ten(), (1, 1), 1e9)
    turns = world(replace(TWO_HOURS, to_s=200.0), 2, [one], settings=settings)
    outcome = turns.run()
    assert outcome.ledger.used_node_s == pytest.approx((122 - 2) + (200 - 152))
    assert [member.size for member in turns.members.values()] == [0, 1]


def test_the_planner_none_uses_no_node():
    assert played(TWO_HOURS, planner=Nothing()).ledger.used_node_s == 0


def _ten() -> Curve:
    return Curve(((0, 0.0), (1, 10.0)))
