"""The rows of all cases as a table, and as a JSON object in a line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

HEADS = ("fault", "seconds", "leases", "nodes", "elements", "ticks", "verdict")


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each row, under a line of heads."""
    cells = [HEADS, *map(_cells, rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADS))]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    cells = (_cell(row[key]) for key in ("leases", "nodes", "elements"))
    ticks = "never" if row["ticks"] is None else f"{row['ticks']} of {row['most_ticks']}"
    verdict = "good" if row["is_good"] else "known" if row["known"] else "FAULT"
    return (row["fault"], f"{row['seconds']:.1f}", *cells, ticks, verdict)


def _cell(faults: Sequence[str]) -> str:
    return f"{len(faults)}: {faults[0]}" if faults else "good"


def object_line(rows: Sequence[Mapping[str, Any]], broken: Sequence[str]) -> str:
    """All rows in a line. `broken` names the tests that failed before or at a verdict."""
    is_good = not broken and all(row["is_good"] or row["known"] for row in rows)
    return json.dumps({"faults": list(rows), "failed": list(broken), "is_good": is_good})
