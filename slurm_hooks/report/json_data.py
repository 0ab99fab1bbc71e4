"""Plans and ticks as plain JSON data, for programs."""

from __future__ import annotations

from typing import Any

from slurm_hooks.model import Plan, verb_of
from slurm_hooks.moments import iso
from slurm_hooks.report.tick import TickReport
from slurm_hooks.snapshot.encode import to_data


def plan_data(plan: Plan) -> dict[str, Any]:
    """A plan; each action with its kind: `grow`, `renew`, `notice`, `hold`, `cancel`, `set-mark`,
    `put-back`."""
    data: dict[str, Any] = to_data(plan)
    for action, item in zip(plan.actions, data["actions"]):
        item["kind"] = verb_of(action).replace(" ", "-")
    return data


def tick_data(report: TickReport) -> dict[str, Any]:
    """A tick: what was decided, what it cost, what each job holds."""
    return {
        "at": iso(report.at),
        "dry_run": report.is_dry,
        "mode": report.plan.level.value,
        "seconds": round(report.seconds, 6),
        "rpcs": report.rpcs,
        "commands": len(report.asked),
        "refused": list(report.refused),
        "plan": plan_data(report.plan),
    }
