"""The timetable is one that Slurm can play and that shows what it should."""

from __future__ import annotations

from made_up import scenario, story

from slurm_hooks import settings


def test_the_timetable_can_be_played():
    chosen = settings.parse(scenario.SETTINGS)
    assert chosen.lease.notice_s < chosen.lease.length_s
    assert chosen.lease.margin_s >= 30
    assert all(rigid.runs_s < 60 * rigid.limit_min for rigid in scenario.RIGID)
    assert scenario.BOOKING.node in story.NODE_NAMES
    urgent = next(rigid for rigid in scenario.RIGID if rigid.is_urgent)  # not on the reserved node
    assert urgent.at_s + 60 * urgent.limit_min > scenario.BOOKING.starts_s
