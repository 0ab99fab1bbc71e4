"""Any value of the model as plain JSON data: moments as ISO text, durations as seconds."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from slurm_hooks.model import FragmentId, Plan
from slurm_hooks.report.tick import TickReport


def to_data(value: Any) -> Any:
    """Plain data for json.dumps; sets are sorted, infinite numbers become null."""
    if isinstance(value, FragmentId):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if dataclasses.is_dataclass(value):
        return {f.name: to_data(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_data(item) for key, item in value.items()}
    if isinstance(value, (frozenset, set)):
        return sorted(to_data(item) for item in value)
    if isinstance(value, (tuple, list)):
        return [to_data(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def plan_data(plan: Plan) -> dict[str, Any]:
    """A plan; each action with its kind."""
    data: dict[str, Any] = to_data(plan)
    for action, item in zip(plan.actions, data["actions"]):
        item["kind"] = type(action).__name__.lower()
    return data


def tick_data(report: TickReport) -> dict[str, Any]:
    """A tick: what was decided, what it cost, what each job holds."""
    return {
        "at": report.at.isoformat(),
        "dry_run": report.is_dry,
        "seconds": round(report.seconds, 6),
        "rpcs": report.rpcs,
        "commands": len(report.asked),
        "refused": list(report.refused),
        "plan": plan_data(report.plan),
    }
