"""Any value of the model as plain JSON data: moments as ISO text, durations as seconds."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from slurm_hooks.model import FragmentId
from slurm_hooks.model.moments import iso


def to_data(value: Any) -> Any:
    """Plain data for json.dumps. Sets are sorted, and infinite numbers become null."""
    if isinstance(value, FragmentId):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, datetime):
        return iso(value)
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
