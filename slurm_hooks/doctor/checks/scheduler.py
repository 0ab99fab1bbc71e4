"""Whether backfill publishes the planned starts that end holes."""

from __future__ import annotations

from collections.abc import Iterator

from slurm_hooks.doctor.facts import Facts, known
from slurm_hooks.doctor.finding import Category, Change, Check, Finding, error, warning

DEFAULT_WINDOW_MIN = 1440
DEFAULT_INTERVAL_S = 30


def with_option(value: str, name: str, number: int) -> str:
    """A list of options in which `name` has this value, the others as they were."""
    kept = [one for one in value.split(",") if one and not one.startswith(f"{name}=")]
    return ",".join([*kept, f"{name}={number}"])


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
    if minutes * 60 < 2 * lease_s:
        changed = with_option(
            slurm.value("SchedulerParameters"), "bf_window", max(DEFAULT_WINDOW_MIN, lease_s // 30)
        )
        yield warning(
            f"bf_window={minutes} minutes is less than two leases ({2 * lease_s} s)",
            Change("SchedulerParameters", changed),
        )


def _interval(facts: Facts) -> Iterator[Finding]:
    slurm = known(facts.slurm)
    every_s = slurm.option("SchedulerParameters", "bf_interval", DEFAULT_INTERVAL_S)
    hole_s = facts.settings.lease.shortest_hole_s
    if every_s > hole_s:
        changed = with_option(slurm.value("SchedulerParameters"), "bf_interval", DEFAULT_INTERVAL_S)
        yield warning(
            f"bf_interval={every_s} s is longer than the shortest hole "
            f"(lease.shortest_hole_s = {hole_s})",
            Change("SchedulerParameters", changed),
        )


_LATE = (
    "A planned start that backfill has not published cannot be respected in advance; such a job "
    "takes its nodes by preemption instead."
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
        "backfill looks ahead further than two leases",
        _LATE,
        _window,
    ),
    Check(
        "bf-interval",
        Category.SCHEDULER,
        "backfill plans anew within the shortest hole",
        _LATE,
        _interval,
    ),
)
