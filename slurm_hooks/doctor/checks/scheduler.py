"""Check that backfill publishes the planned starts that end holes."""

from __future__ import annotations

import math
from collections.abc import Iterator

from slurm_hooks.doctor.facts import Facts, known
from slurm_hooks.doctor.finding import Category, Change, Check, Finding, error, warning

DEFAULT_WINDOW_MIN = 1440
DEFAULT_INTERVAL_S = 30


def _change(facts: Facts) -> Change:
    """A new line with all options: the wrong options changed, and the rest unchanged."""
    slurm = known(facts.slurm)
    new = {"bf_window": _better_window(facts), "bf_interval": _better_interval(facts)}
    options = [word for word in slurm.value("SchedulerParameters").split(",") if word]
    kept = [word for word in options if not new.get(word.split("=")[0])]
    changed = [f"{name}={number}" for name, number in new.items() if number]
    return Change("SchedulerParameters", ",".join([*kept, *changed]))


def _better_window(facts: Facts) -> int:
    """A better window in minutes, or 0 if the window is long enough."""
    minutes = known(facts.slurm).option("SchedulerParameters", "bf_window", DEFAULT_WINDOW_MIN)
    lease_s = facts.settings.lease.length_s
    better = max(DEFAULT_WINDOW_MIN, math.ceil(2 * lease_s / 60))
    return better if minutes * 60 < 2 * lease_s else 0


def _better_interval(facts: Facts) -> int:
    """A better interval in seconds, or 0 if the interval is short enough."""
    every_s = known(facts.slurm).option("SchedulerParameters", "bf_interval", DEFAULT_INTERVAL_S)
    return DEFAULT_INTERVAL_S if every_s > facts.settings.lease.shortest_hole_s else 0


def _backfill(facts: Facts) -> Iterator[Finding]:
    value = known(facts.slurm).value("SchedulerType")
    if value != "sched/backfill":
        yield error(
            f"SchedulerType={value}",
            Change("SchedulerType", "sched/backfill", then="restart slurmctld"),
        )


def _window(facts: Facts) -> Iterator[Finding]:
    slurm = known(facts.slurm)
    minutes = slurm.option("SchedulerParameters", "bf_window", DEFAULT_WINDOW_MIN)
    lease_s = facts.settings.lease.length_s
    if _better_window(facts):
        yield warning(
            f"bf_window={minutes} minutes is less than two leases ({2 * lease_s} s)",
            _change(facts),
        )


def _interval(facts: Facts) -> Iterator[Finding]:
    slurm = known(facts.slurm)
    every_s = slurm.option("SchedulerParameters", "bf_interval", DEFAULT_INTERVAL_S)
    hole_s = facts.settings.lease.shortest_hole_s
    if _better_interval(facts):
        yield warning(
            f"bf_interval={every_s} s is longer than the shortest hole "
            f"(lease.shortest_hole_s = {hole_s})",
            _change(facts),
        )


_LATE = (
    "Ticks respect only planned starts that backfill has published. A job without a published "
    "start takes its nodes by preemption."
)
TABLE = (
    Check(
        "scheduler-type",
        Category.SCHEDULER,
        "the backfill scheduler runs",
        "Only backfill publishes planned starts, which end holes.",
        _backfill,
    ),
    Check(
        "bf-window",
        Category.SCHEDULER,
        "backfill plans ahead for more than two leases",
        _LATE,
        _window,
    ),
    Check(
        "bf-interval",
        Category.SCHEDULER,
        "backfill plans again within the shortest hole",
        _LATE,
        _interval,
    ),
)
