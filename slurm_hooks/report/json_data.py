"""The output of commands for programs: a JSON object, with the version of its form."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Optional

from slurm_hooks.model import FragmentId, MalleableJob, Plan, Reason
from slurm_hooks.model.moments import iso, moment
from slurm_hooks.model.snapshot.codec import to_data
from slurm_hooks.report.why import note_text, reason_text
from slurm_hooks.slurm.mark import NO_NOTE
from slurm_hooks.tick.report import TickReport

VERSION = 1


def json_text(data: Mapping[str, Any], indent: Optional[int] = None) -> str:
    """The object of a command. `data` may contain values of the model."""
    return json.dumps({"version": VERSION, **plain(data)}, indent=indent)


def error_text(exit_code: int, lines: Sequence[str]) -> str:
    """The object of a command that failed."""
    return json_text({"error": {"exit_code": int(exit_code), "lines": list(lines)}})


def plain(value: Any) -> Any:
    """Plain data for programs: names of durations end in `_s`, moments are text."""
    if isinstance(value, FragmentId):
        return str(value)
    if dataclasses.is_dataclass(value):
        return plain({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
    if isinstance(value, Mapping):
        return {_name(str(key), item): _item(str(key), item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, str) and not isinstance(value, enum.Enum):
        return value.replace(NO_NOTE, "")
    return to_data(value)


def _name(key: str, value: Any) -> str:
    return f"{key}_s" if isinstance(value, timedelta) and not key.endswith("_s") else key


def _item(key: str, value: Any) -> Any:
    """The value of a key. Epoch seconds, whose names end in `at`, become text as other moments."""
    is_moment = key.endswith("_at") and isinstance(value, float)  # `jobs_looked_at` counts
    if is_moment or (key == "at" and isinstance(value, (int, float))):
        return iso(moment(value))
    return plain(value)


def plan_data(plan: Plan, now: datetime) -> dict[str, Any]:
    """A plan, with sentences beside its reasons and notes."""
    data: dict[str, Any] = plain(plan)
    for planned, item in zip(plan.jobs, data["jobs"]):
        item["reasons"] = [reason_data(each, now, planned.unit) for each in planned.reasons]
    for note, item in zip(plan.notes, data["notes"]):
        item["text"] = plain(note_text(note, now))
    return data


def reason_data(reason: Reason, now: datetime, unit: str) -> dict[str, Any]:
    """A reason for the size of a job that counts `unit`, with its sentence."""
    return {**plain(reason), "text": plain(reason_text(reason, now, unit))}


def job_data(job: MalleableJob) -> dict[str, Any]:
    """A job and its fragments with their sizes, and the unit of these sizes."""
    data: dict[str, Any] = plain(job)
    for fragment, item in zip(job.fragments, data["fragments"]):
        item["size"] = fragment.size
    return {**data, "size": job.size, "unit": job.request.size_unit}


def tick_data(report: TickReport) -> dict[str, Any]:
    """A tick: its decisions, its cost, and the nodes of each job."""
    return {
        "at": iso(report.at),
        "dry_run": report.is_dry,
        "mode": report.plan.level.value,
        "seconds": round(report.seconds, 6),
        "rpcs": report.rpcs,
        "commands": len(report.asked),
        "refused": list(report.refused),
        "unused": report.unused,
        "plan": plan_data(report.plan, report.at),
    }
