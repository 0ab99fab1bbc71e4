"""The dashboard's panels as one picture, drawn from what Prometheus answered: a preview for the
documents, where Grafana is not at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from metrics.dashboard import board, colours_of
from slurm_hooks.report.drawing import pyplot

WIDTH, INCH = 24, 0.55  # columns of the board, and how wide one is drawn
Answers = Sequence[tuple[str, str, list[dict[str, Any]]]]


def draw(answers: Answers, path: Path) -> None:
    """All panels; an answer is a panel's title, a legend, and Prometheus's result."""
    panels = board()["panels"]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = pyplot().figure(figsize=(WIDTH * INCH, rows * INCH * 0.7))
    grid = figure.add_gridspec(rows, WIDTH, hspace=3.0, wspace=3.0)
    for panel in panels:
        at = panel["gridPos"]
        axes = figure.add_subplot(grid[at["y"] : at["y"] + at["h"], at["x"] : at["x"] + at["w"]])
        axes.set_title(panel["title"], fontsize=9)
        found = [(legend, result) for name, legend, result in answers if name == panel["title"]]
        (_number if panel["type"] == "stat" else _curves)(axes, panel, found)
    figure.savefig(path, dpi=90, format="png")
    pyplot().close(figure)


def _number(axes: Any, panel: dict[str, Any], found: list[tuple[str, Any]]) -> None:
    value = float(found[0][1][0]["value"][1])
    unit = panel["fieldConfig"]["defaults"]["unit"]
    if unit == "percentunit":
        text = f"{value:.1%}"
    else:
        text = f"{value:.{2 if unit.startswith('suffix') else 0}f} {_UNITS.get(unit, '')}"
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, fontsize=16, ha="center", va="center")


_UNITS = {"s": "s", "suffix: node-h": "node-h"}


def _curves(axes: Any, panel: dict[str, Any], found: list[tuple[str, Any]]) -> None:
    """Curves, or areas on each other where the panel says so."""
    is_stacked = panel["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] == "normal"
    colours = colours_of(panel)
    below: dict[float, float] = {}
    for legend, series in ((legend, each) for legend, result in found for each in result):
        name = _filled(legend, series["metric"])
        points = {t: float(v) for t, v in series["values"]}
        when = [datetime.fromtimestamp(t) for t in points]
        if not is_stacked:
            axes.plot(when, list(points.values()), label=name, color=colours.get(name))
            continue
        floor = [below.get(t, 0.0) for t in points]
        below.update({t: below.get(t, 0.0) + v for t, v in points.items()})
        tops = [below[t] for t in points]
        axes.fill_between(when, floor, tops, step="post", label=name, color=colours.get(name))
    axes.set_ylim(bottom=0)
    axes.tick_params(labelsize=7)
    axes.legend(fontsize=7, loc="upper left", ncols=3)


def _filled(legend: str, labels: dict[str, str]) -> str:
    for key, value in labels.items():
        legend = legend.replace("{{" + key + "}}", value)
    return legend
