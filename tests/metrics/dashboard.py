"""The Grafana dashboard as questions to Prometheus."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DASHBOARDS = Path(__file__).parents[2] / "etc" / "dashboards"


@dataclass(frozen=True)
class Question:
    """A curve or a number of a panel."""

    panel: str
    kind: str
    unit: str
    expr: str
    legend: str


def board() -> dict[str, Any]:
    whole: dict[str, Any] = json.loads((DASHBOARDS / "malleable.json").read_text())
    return whole


def questions(span: str, interval: str) -> list[Question]:
    """Every target of every panel, with Grafana's own variables filled in."""
    filled = {"$__range": span, "$__rate_interval": interval, "$instance": ".*"}
    asked = []
    for panel in board()["panels"]:
        for target in panel["targets"]:
            expr = target["expr"]
            for name, value in filled.items():
                expr = expr.replace(name, value)
            unit = panel["fieldConfig"]["defaults"]["unit"]
            legend = target["legendFormat"]
            asked.append(Question(panel["title"], panel["type"], unit, expr, legend))
    return asked


def colours_of(panel: dict[str, Any]) -> dict[str, str]:
    """The colours that a panel fixes, by name of the curve."""
    return {name: value["fixedColor"] for name, value in _overrides(panel, "color").items()}


def words_of(panel: dict[str, Any]) -> dict[str, str]:
    """The words that a panel's legend shows, by name of the curve."""
    return _overrides(panel, "displayName")


def _overrides(panel: dict[str, Any], kind: str) -> dict[str, Any]:
    return {
        override["matcher"]["options"]: part["value"]
        for override in panel["fieldConfig"]["overrides"]
        for part in override["properties"]
        if part["id"] == kind
    }
