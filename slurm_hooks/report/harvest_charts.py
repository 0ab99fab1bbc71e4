"""The charts of the HTML report, drawn by plotly; each as HTML without the library around it.

Colours are those of Okabe and Ito, which people with any kind of colour vision can tell apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import plotly.graph_objects as go
from plotly.io import to_html
from plotly.offline import get_plotlyjs

from slurm_hooks.harvest.totals import Sample, Share, Totals
from slurm_hooks.harvest.values import EndKind
from slurm_hooks.model import IdleReason
from slurm_hooks.report.harvest_text import HOUR_S, HOW_ENDED, SHORT_WHY, WHY_IDLE, moments

OURS, OTHERS, IDLE, OUT = "#009E73", "#B8BEC6", "#E69F00", "#5B6470"
REASONS = {
    IdleReason.STARTING: "#56B4E9",
    IdleReason.OBSERVED: "#AAD7F2",
    IdleReason.OFF: "#882255",
    IdleReason.REGISTERING: "#661100",
    IdleReason.CANARY: "#DDCC77",
    IdleReason.LIMIT: "#117733",
    IdleReason.NO_JOB: "#F0E442",
    IdleReason.HOLE_SHORT: "#D55E00",
    IdleReason.UNFIT: "#999999",
    IdleReason.SUSPECT: "#000000",
    IdleReason.RESTING: "#0072B2",
    IdleReason.CEILING: "#44AA99",
    IdleReason.NOT_GIVEN: "#CC79A7",
}
MOST = 15  # bars of users
_FONT = {"family": "system-ui, sans-serif", "size": 13, "color": "#1c2733"}
_CONFIG = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["lasso2d", "select2d"],
}


@dataclass(frozen=True)
class Chart:
    """A chart: its heading, what it shows in words, its HTML."""

    title: str
    caption: str
    html: str
    is_wide: bool = False


def library() -> str:
    """plotly.js itself, so that the page needs no network."""
    return str(get_plotlyjs())


def charts(totals: Totals) -> tuple[Chart, ...]:
    """All charts of a span; none of them where there is nothing to draw."""
    drawn = []
    if totals.samples:
        drawn += [_nodes(totals.samples), _idle_nodes(totals.samples)]
    if totals.users:
        drawn.append(_users(totals.users))
    if totals.idle:
        drawn.append(_idle(totals))
    if totals.ends:
        drawn.append(_ends(totals))
    return tuple(drawn)


def _nodes(samples: Sequence[Sample]) -> Chart:
    idle = [sum(sample.idle.values()) for sample in samples]
    layers = (
        ("malleable jobs", OURS, [sample.ours for sample in samples]),
        ("other jobs", OTHERS, [sample.busy for sample in samples]),
        ("idle", IDLE, idle),
        ("out of service", OUT, [sample.out for sample in samples]),
    )
    caption = "Who used the nodes of the malleable partitions. Drag to zoom, double-click to undo."
    return Chart("Nodes over time", caption, _stack(moments(samples), layers), is_wide=True)


def _idle_nodes(samples: Sequence[Sample]) -> Chart:
    found = [reason for reason in IdleReason if any(s.idle.get(reason) for s in samples)]
    layers = tuple(
        (WHY_IDLE[reason], REASONS[reason], [s.idle.get(reason, 0.0) for s in samples])
        for reason in found
    )
    caption = "Free nodes that nobody used, by the reason that each tick gave."
    return Chart("Idle nodes, and why", caption, _stack(moments(samples), layers), is_wide=True)


def _users(shares: Sequence[Share]) -> Chart:
    most = shares[:MOST]
    names = [share.name or "(none)" for share in most]
    hours = [share.node_s / HOUR_S for share in most]
    hover = [f"{s.jobs} job(s), {s.releases} release(s), {s.hits} hit(s)" for s in most]
    html = _bars(names, hours, [OURS] * len(most), "node-hours", hover)
    return Chart("Harvested, by user", "Node-hours on nodes that others left idle.", html)


def _idle(totals: Totals) -> Chart:
    ranked = sorted(totals.idle.items(), key=lambda item: -item[1])
    names = [SHORT_WHY[reason] for reason, _ in ranked]
    hours = [node_s / HOUR_S for _, node_s in ranked]
    colours = [REASONS[reason] for reason, _ in ranked]
    hover = [WHY_IDLE[reason] for reason, _ in ranked]
    html = _bars(names, hours, colours, "node-hours", hover)
    return Chart("What stayed idle, and why", "Node-hours that nobody used.", html)


def _ends(totals: Totals) -> Chart:
    hits = {end.kind for end in totals.hits}
    ranked = sorted(totals.ends, key=lambda end: -end.count)
    names = [HOW_ENDED[end.kind] + (" (hit)" if end.kind in hits else "") for end in ranked]
    colours = [_END.get(end.kind, OTHERS) for end in ranked]
    hover = [f"{end.node_s / HOUR_S:.2f} node-hours since their starts" for end in ranked]
    html = _bars(names, [end.count for end in ranked], colours, "runs", hover)
    caption = "Runs of fragments. A hit is an end that neither a tick nor the user wanted."
    return Chart("How runs ended", caption, html)


_END = {
    EndKind.LEFT: OURS,
    EndKind.LEASE_ENDED: OURS,
    EndKind.FINISHED: OURS,
    EndKind.PREEMPTED: "#D55E00",
    EndKind.NODE_FAILED: "#D55E00",
    EndKind.DIED: "#D55E00",
}


def _stack(moments: Sequence[datetime], layers: Sequence[tuple[str, str, Sequence[float]]]) -> str:
    figure = go.Figure()
    for name, colour, values in layers:
        figure.add_trace(
            go.Scatter(
                x=moments,
                y=list(values),
                name=name,
                stackgroup="nodes",
                line={"shape": "hv", "width": 0.5, "color": colour},
                fillcolor=colour,
                hovertemplate="%{y:.1f}",
            )
        )
    figure.update_layout(
        hovermode="x unified",
        yaxis={"title": {"text": "nodes"}, "rangemode": "tozero", "gridcolor": "#E4E8EC"},
        xaxis={"showgrid": False},
        legend={"orientation": "h", "y": -0.15, "traceorder": "normal"},
    )
    return _html(figure, 360, has_tools=True)


def _bars(
    names: Sequence[str],
    values: Sequence[float],
    colours: Sequence[str],
    unit: str,
    hover: Sequence[str],
) -> str:
    bars = go.Bar(
        x=list(values),
        y=list(names),
        orientation="h",
        marker={"color": list(colours), "line": {"color": "#1c2733", "width": 0.5}},
        customdata=list(hover),
        hovertemplate="%{y}: %{x:.2f} " + unit + "<br>%{customdata}<extra></extra>",
        texttemplate="%{x:,.3~r}",
        textposition="outside",
        cliponaxis=False,
    )
    figure = go.Figure(bars)
    figure.update_layout(
        xaxis={
            "title": {"text": unit},
            "range": [0, 1.25 * (max(values) or 1)],
            "gridcolor": "#E4E8EC",
        },
        yaxis={"autorange": "reversed", "automargin": True, "type": "category"},
        showlegend=False,
        bargap=0.35,
    )
    return _html(figure, 110 + 34 * len(names))


def _html(figure: Any, height: int, has_tools: bool = False) -> str:
    figure.update_layout(
        template="plotly_white",
        font=_FONT,
        height=height,
        margin={"l": 10, "r": 40, "t": 36 if has_tools else 8, "b": 40},
        paper_bgcolor="white",
    )
    config = {**_CONFIG, "displayModeBar": has_tools}
    return str(to_html(figure, config=config, full_html=False, include_plotlyjs=False))
