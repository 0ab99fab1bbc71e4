"""The dashboard's panels as one page, drawn by plotly from what Prometheus answered: a preview for
the documents, where Grafana is not at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape
from typing import Any

import plotly.graph_objects as go
from plotly.io import to_html
from plotly.offline import get_plotlyjs

from metrics.dashboard import board

_STYLE = (
    "body{background:#f4f5f5;font:14px system-ui,sans-serif;color:#24292e;margin:8px;width:1424px}"
    ".grid{display:grid;grid-template-columns:repeat(24,1fr);grid-auto-rows:34px;gap:8px}"
    ".panel{background:white;border:1px solid #e0e2e4;border-radius:2px;overflow:hidden}"
    "h2{font-size:14px;margin:6px 10px}.number{font-size:30px;text-align:center;margin-top:18px}"
)
_COLOURS = {"ours": "#56A64B", "harvested": "#56A64B", "others": "#8a8a8a", "idle": "#F2CC0C"}
Answers = Sequence[tuple[str, str, list[dict[str, Any]]]]


def page(answers: Answers) -> str:
    """All panels; an answer is a panel's title, a legend, and Prometheus's result."""
    panels = "".join(_panel(panel, answers) for panel in board()["panels"])
    return (
        f"<!doctype html><meta charset=utf-8><style>{_STYLE}</style>"
        f"<script>{get_plotlyjs()}</script><div class=grid>{panels}</div>"
    )


def _panel(panel: dict[str, Any], answers: Answers) -> str:
    at, title = panel["gridPos"], panel["title"]
    place = f"grid-column:{at['x'] + 1}/span {at['w']};grid-row:{at['y'] + 1}/span {at['h']}"
    found = [(legend, result) for name, legend, result in answers if name == title]
    draw = _number if panel["type"] == "stat" else _curves
    return f'<div class=panel style="{place}"><h2>{escape(title)}</h2>{draw(panel, found)}</div>'


def _number(panel: dict[str, Any], found: list[tuple[str, Any]]) -> str:
    value = float(found[0][1][0]["value"][1])
    defaults = panel["fieldConfig"]["defaults"]
    unit = defaults["unit"]
    if unit == "percentunit":
        text = f"{value:.1%}"
    else:
        text = f"{value:.{2 if unit.startswith('suffix') else 0}f} {_UNITS.get(unit, '')}"
    return f"<div class=number>{escape(text)}</div>"


_UNITS = {"s": "s", "suffix: node-h": "node-h"}


def _curves(panel: dict[str, Any], found: list[tuple[str, Any]]) -> str:
    is_stacked = panel["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] == "normal"
    figure = go.Figure()
    for legend, result in found:
        for series in result:
            labels = series["metric"]
            name = legend
            for key, value in labels.items():
                name = name.replace("{{" + key + "}}", value)
            points = [(datetime.fromtimestamp(t), float(v)) for t, v in series["values"]]
            line = {"width": 1, "shape": "hv" if is_stacked else "linear"}
            if name in _COLOURS:
                line["color"] = _COLOURS[name]
            figure.add_trace(
                go.Scatter(
                    x=[t for t, _ in points],
                    y=[v for _, v in points],
                    name=name,
                    line=line,
                    stackgroup="all" if is_stacked else None,
                )
            )
    figure.update_layout(
        template="plotly_white",
        height=panel["gridPos"]["h"] * 42 - 48,
        margin={"l": 40, "r": 10, "t": 4, "b": 20},
        legend={"orientation": "h", "y": -0.12},
        font={"size": 11},
        yaxis={"rangemode": "tozero"},
        showlegend=True,
    )
    return str(
        to_html(
            figure,
            full_html=False,
            include_plotlyjs=False,
            config={"displayModeBar": False, "responsive": True},
        )
    )
