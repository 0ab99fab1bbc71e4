"""Draw the dashboard's panels as a picture, from answers of Prometheus.

The documents show it, because Grafana is not at hand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from metrics.dashboard import board, colours_of, words_of
from slurm_hooks.report.drawing import pyplot

WIDTH, INCH = 24, 0.55  # columns of the board, and the drawn width of a column
CYCLE = (
    "#0072B2",
    "#56B4E9",
    "#CC79A7",
    "#882255",
    "#44AA99",
    "#DDCC77",
)  # not the colours of uses
Answers = Sequence[tuple[str, str, list[dict[str, Any]]]]


def draw(answers: Answers, path: Path, title: str = "") -> None:
    """Draw all panels. An answer is a panel's title, a legend, and Prometheus's result."""
    panels = board()["panels"]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    with pyplot().rc_context({"axes.prop_cycle": pyplot().cycler(color=CYCLE)}):
        figure = pyplot().figure(figsize=(WIDTH * INCH, rows * INCH * 0.7))
        for panel in panels:
            axes = figure.add_axes(_place(panel["gridPos"], rows))
            axes.set_title(panel["title"], fontsize=9)
            results = [
                (legend, result) for name, legend, result in answers if name == panel["title"]
            ]
            if not any(result for _, result in results):
                _word(axes, "no data")
            elif panel["type"] == "stat":
                _number(axes, panel, results)
            else:
                _curves(axes, panel, results)
        figure.suptitle(title, y=1.02, fontsize=14)
        figure.savefig(path, dpi=90, format="png", bbox_inches="tight", pad_inches=0.2)
        pyplot().close(figure)


def _place(at: dict[str, int], rows: int) -> tuple[float, float, float, float]:
    """Left, bottom, width and height of a panel's axes, with room for its title and its legend."""
    below, above = min(3.0, at["h"] / 3), 1.0
    return (
        (at["x"] + 1.2) / WIDTH,
        1 - (at["y"] + at["h"] - below) / rows,
        (at["w"] - 1.6) / WIDTH,
        (at["h"] - below - above) / rows,
    )


def _number(axes: Any, panel: dict[str, Any], results: list[tuple[str, Any]]) -> None:
    value = float(results[0][1][0]["value"][1])
    unit = panel["fieldConfig"]["defaults"]["unit"]
    if unit == "percentunit":
        text = f"{value:.1%}"
    else:
        text = f"{value:.{2 if unit.startswith('suffix') else 0}f} {_UNITS.get(unit, '')}"
    _word(axes, text)


def _word(axes: Any, text: str) -> None:
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, fontsize=16, ha="center", va="center")


_UNITS = {"s": "s", "suffix: node-h": "node-h"}


def _curves(axes: Any, panel: dict[str, Any], results: list[tuple[str, Any]]) -> None:
    """Draw curves, or stacked areas if the panel says so. Leave out curves that are always 0."""
    is_stacked = panel["fieldConfig"]["defaults"]["custom"]["stacking"]["mode"] == "normal"
    colours, words = colours_of(panel), words_of(panel)
    below: dict[float, float] = {}
    for legend, series in ((legend, each) for legend, result in results for each in result):
        name = _filled(legend, series["metric"])
        points = _with_gaps({t: float(v) for t, v in series["values"]})
        if not any(points.values()):
            continue
        when = [datetime.fromtimestamp(t, timezone.utc) for t in points]
        if not is_stacked:
            values = list(points.values())
            axes.plot(
                when,
                values,
                ".-",
                ms=2,
                lw=0.8,
                label=words.get(name, name),
                color=colours.get(name),
            )
            continue
        floor = [below.get(t, 0.0) for t in points]
        below.update({t: below.get(t, 0.0) + v for t, v in points.items()})
        tops = [below[t] for t in points]
        axes.fill_between(
            when, floor, tops, step="post", label=words.get(name, name), color=colours.get(name)
        )
    axes.set_ylim(bottom=0)
    axes.margins(x=0)
    axes.tick_params(labelsize=7)
    axes.xaxis.get_offset_text().set_fontsize(7)
    axes.xaxis.set_major_formatter(dates().ConciseDateFormatter(axes.xaxis.get_major_locator()))
    if axes.get_legend_handles_labels()[0]:
        columns = max(3, panel["gridPos"]["w"] // 3)
        where = {"loc": "upper left", "bbox_to_anchor": (0, -0.12)}
        axes.legend(fontsize=7, ncols=columns, frameon=False, **where)


def _with_gaps(points: dict[float, float]) -> dict[float, float]:
    """Mark gaps in Prometheus's numbers, so that no line leads across."""
    step = min((b - a for a, b in zip(points, [*points][1:])), default=0.0)
    ends = [a for a, b in zip(points, [*points][1:]) if b - a > 1.5 * step]
    return dict(sorted({**points, **{end + step: math.nan for end in ends}}.items()))


def dates() -> Any:
    from matplotlib import dates as module  # noqa: PLC0415 (optional, as in `drawing`)

    return module


def _filled(legend: str, labels: dict[str, str]) -> str:
    for key, value in labels.items():
        legend = legend.replace("{{" + key + "}}", value)
    return legend
