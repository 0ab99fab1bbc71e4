"""The result of an active check, as lines for people and as plain data. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Optional

from slurm_hooks.doctor.trial.cost import Window
from slurm_hooks.doctor.trial.run import StepFailed, Trial


def end_lines(
    trial: Trial, failure: Optional[StepFailed], without: Window, during: Window
) -> Iterator[str]:
    """The reason of a failure, the work of slurmctld before and during the check, and a sum."""
    if failure is not None:
        yield f"FAILED {failure.step.value}: {failure}"
        yield from (f"  {line}" for line in trial.reasons)
        yield "  see also: malleable doctor last-tick timer, and the log of the ticks"
    if during.users:
        yield (
            f"slurmctld before: {without.rpcs_per_min:.0f} RPCs/min, {without.load:.3%} busy; "
            f"during the test: {during.rpcs_per_min:.0f} RPCs/min, {during.load:.3%} busy"
        )
        costs = (f"{name} {cost.rpcs} RPCs {cost.seconds:.3f} s" for name, cost in during.users)
        yield f"  by user: {'; '.join(costs)} (the test itself ran {trial.asked} commands)"
    if failure is None:
        total = sum(done.seconds for done in trial.done)
        yield f"all {len(trial.done)} steps succeeded in {total:.0f} s"


def end_data(
    trial: Trial, failure: Optional[StepFailed], without: Window, during: Window
) -> dict[str, Any]:
    """The result with each step, as plain data. New versions only add keys."""
    failed = None if failure is None else {"step": failure.step.value, "why": str(failure)}
    return {
        "ok": failure is None,
        "job_id": trial.job_id,
        "steps": [
            {"step": d.step.value, "seconds": round(d.seconds, 3), "saw": d.saw} for d in trial.done
        ],
        "failed": failed,
        "reasons": trial.reasons,
        "commands": trial.asked,
        "slurmctld": {"before": _window_data(without), "during": _window_data(during)},
    }


def _window_data(seen: Window) -> dict[str, Any]:
    return {
        "seconds": round(seen.seconds, 3),
        "rpcs_per_min": round(seen.rpcs_per_min, 1),
        "load": seen.load,
        "users": dict(seen.users),
    }
