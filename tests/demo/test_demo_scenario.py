"""The timetable is one that Slurm can play and that shows what it should."""

from __future__ import annotations

import re
from pathlib import Path

from made_up import scenario, story, work

from slurm_hooks import settings


def test_settings_are_valid():
    chosen = settings.parse(scenario.SETTINGS)
    assert chosen.lease.notice_s < chosen.lease.length_s
    assert chosen.lease.margin_s >= 30


def test_limits_hold_their_jobs_and_names_are_unique():
    names = [rigid.name for rigid in scenario.RIGID]
    assert len(set(names)) == len(names)
    assert all(rigid.runs_s < 60 * rigid.limit_min for rigid in scenario.RIGID)
    assert scenario.BOOKING.node in story.NODE_NAMES


def test_the_urgent_job_cannot_sit_on_the_reserved_node():
    urgent = next(rigid for rigid in scenario.RIGID if rigid.is_urgent)
    assert urgent.at_s + 60 * urgent.limit_min > scenario.BOOKING.starts_s


def test_modules_stay_small():
    for path in Path(scenario.__file__).parent.glob("*.py"):
        assert len(path.read_text().splitlines()) < 300, path


def test_training_has_an_end_before_the_load_is_given_up():
    arguments = work.WORKS["torchrun"].arguments
    steps = next(int(a.split("=")[1]) for a in arguments if a.startswith("--steps"))
    pace = next(float(a.split("=")[1]) for a in arguments if re.match("--pace", a))
    left_s = scenario.LIMIT_S - scenario.BOOKING.starts_s
    assert steps * pace / work.MOST_NODES < left_s
