"""The charts of the report, drawn by matplotlib: single charts in the page, three in a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Callable

from slurm_hooks.history.harvest.totals import Sample, Totals
from slurm_hooks.history.harvest.values import INTERRUPTIONS
from slurm_hooks.model import Of, Why
from slurm_hooks.model.unused import Unused
from slurm_hooks.report.drawing import pyplot
from slurm_hooks.report.harvest_text import HOUR_S, HOW_ENDED, WHY_IDLE, figures, moments
from slurm_hooks.report.palette import IDLE, LOST, OTHERS, OURS, OUT
from slurm_hooks.report.text import UNITS

BARS = {  # of idle nodes: a few words, a colour
    Why.STARTING: ("starting", "#56B4E9"),
    Why.OBSERVED: ("observed", "#AAD7F2"),
    Why.OFF: ("switched off", "#882255"),
    Why.REGISTERING: ("registering", "#661100"),
    Why.NO_GROWTH: ("no growth", "#AA4466"),
    Why.LIMIT: ("room for a limit", "#117733"),
    Why.NO_JOB: ("no job waits", "#F0E442"),
    Why.HOLE_SHORT: ("hole too short", "#D55E00"),
    Why.UNFIT: ("no job fits", "#999999"),
    Why.SUSPECT: ("suspect node", "#000000"),
    Why.RESTING: ("just shrunk", "#0072B2"),
    Why.PROBED: ("speed measured", "#88CCEE"),
    Why.CEILING: ("ceiling", "#44AA99"),
    Why.NOT_GIVEN: ("not given", "#CC79A7"),
}
MOST = 15  # bars of users
LONGEST = 24  # letters of a name beside a bar; the tables have the whole name
# Text stays text, so that it can be searched and weighs little. Names are not formulas.
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "malleable", "text.parse_math": False}
_Layers = Sequence[tuple[str, str, Sequence[float]]]  # name, colour, nodes at each moment
_Bars = Sequence[tuple[str, str, float]]  # name, colour, value


@dataclass(frozen=True)
class Chart:
    """A chart: its heading, its subject in words, its SVG."""

    title: str
    caption: str
    svg: str
    is_wide: bool = False


def charts(totals: Totals) -> tuple[Chart, ...]:
    """All charts of a span that have data. Raises MissingProgram without matplotlib."""
    samples, drawn = totals.samples, []
    if samples:
        caption = "Who used the nodes of the malleable partitions."
        drawn.append(_wide("Nodes over time", caption, samples, _nodes(samples)))
    if layers := _idle_nodes(samples):
        caption = "Free nodes at each tick, by its reason. The bars below weigh the time instead."
        drawn.append(_wide("Idle nodes, and why", caption, samples, layers))
    if totals.users:
        caption = "Node-hours on nodes that others left idle."
        drawn.append(_narrow("Harvested, by user", caption, _users(totals), "node-hours"))
    if totals.idle:
        caption = "Node-hours without a job."
        drawn.append(_narrow("Why nodes stayed idle", caption, _idle(totals), "node-hours"))
    for name, unused in tuple(totals.unused.items())[:1]:
        caption = f"{UNITS[name]}s that no job used, by where they were."
        title, unit = "Resources that no job used", f"{UNITS[name]}-hours"
        drawn.append(_narrow(title, caption, _unused(unused), unit))
    if totals.ends:
        caption = "An interruption is an end that neither a tick nor the user wanted."
        drawn.append(_narrow("How runs ended", caption, _ends(totals), "runs"))
    return tuple(drawn)


def picture(path: Path, totals: Totals) -> None:
    """Write the report as a picture, for mails and slides. Raises MissingProgram."""
    with pyplot().rc_context(_STYLE):
        figure = pyplot().figure(figsize=(12, 7.2), layout="constrained")
        over, left, right = figure.subplot_mosaic([["over", "over"], ["left", "right"]]).values()
        figure.suptitle("    ".join(f"{number} {text}" for number, text in figures(totals)[:4]))
        _stack(over, totals.samples, _nodes(totals.samples))
        for axes, title, bars in (
            (left, "Harvested, by user", _users(totals)),
            (right, "Why nodes stayed idle", _idle(totals)),
        ):
            _bar(axes, bars, "node-hours")
            axes.set_title(title)
        figure.savefig(path, dpi=130, format="png")
        pyplot().close(figure)


def _nodes(samples: Sequence[Sample]) -> _Layers:
    idle = [sum(sample.idle.values()) for sample in samples]
    return (
        ("malleable jobs", OURS, [sample.ours for sample in samples]),
        ("other jobs", OTHERS, [sample.busy for sample in samples]),
        ("idle", IDLE, idle),
        ("out of service", OUT, [sample.out for sample in samples]),
    )


def _idle_nodes(samples: Sequence[Sample]) -> _Layers:
    reasons = [reason for reason in Of.IDLE.whys if any(s.idle.get(reason) for s in samples)]
    return [(WHY_IDLE[r], BARS[r][1], [s.idle.get(r, 0.0) for s in samples]) for r in reasons]


def _users(totals: Totals) -> _Bars:
    return [(s.name or "(none)", OURS, s.node_s / HOUR_S) for s in totals.users[:MOST]]


def _idle(totals: Totals) -> _Bars:
    ranked = sorted(totals.idle.items(), key=lambda item: -item[1])
    return [(*BARS[reason], node_s / HOUR_S) for reason, node_s in ranked]


def _unused(unused: Unused) -> _Bars:
    bars = (
        ("on idle nodes", IDLE, unused.idle),
        ("on partly used nodes", "#56B4E9", unused.part),
        ("stranded", OUT, unused.stranded),
    )
    return [(name, colour, seconds / HOUR_S) for name, colour, seconds in bars]


def _ends(totals: Totals) -> _Bars:
    ranked = sorted(totals.ends, key=lambda end: -end.count)
    return [(*_end_bar(end.kind), end.count) for end in ranked]


def _end_bar(kind: Why) -> tuple[str, str]:
    if kind in INTERRUPTIONS:
        return f"{HOW_ENDED[kind]} (interruption)", LOST
    is_planned = kind in (Why.LEFT, Why.LEASE_ENDED, Why.FINISHED)
    return HOW_ENDED[kind], OURS if is_planned else OTHERS


def _wide(title: str, caption: str, samples: Sequence[Sample], layers: _Layers) -> Chart:
    svg = _svg((12, 3.6), lambda axes: _stack(axes, samples, layers))
    return Chart(title, caption, svg, is_wide=True)


def _narrow(title: str, caption: str, bars: _Bars, unit: str) -> Chart:
    return Chart(title, caption, _svg((4.2, 0.9 + 0.32 * len(bars)), lambda a: _bar(a, bars, unit)))


def _svg(size: tuple[float, float], draw: Callable[[Any], None]) -> str:
    """The drawing of `draw`, as an element of a page."""
    with pyplot().rc_context(_STYLE):
        figure = pyplot().figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
        pyplot().close(figure)
    return text.getvalue().partition("<svg")[2].join(("<svg", ""))


def _stack(axes: Any, samples: Sequence[Sample], layers: _Layers) -> None:
    names, colours, values = zip(*layers) if layers else ((), (), ())
    axes.stackplot(moments(samples), *values, labels=names, colors=colours, step="post")
    axes.set(ylabel="nodes")
    axes.margins(x=0)
    columns = 4 if max(map(len, names), default=0) < LONGEST else 2
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, frameon=False)


def _shortened(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _bar(axes: Any, bars: _Bars, unit: str) -> None:
    """Bars from above to below, each with its value."""
    names, colours, values = zip(*bars) if bars else ((), (), ())
    drawn = axes.barh(range(len(names)), values, color=colours, edgecolor="#1c2733", linewidth=0.5)
    axes.set_yticks(range(len(names)), [_shortened(name) for name in names])
    axes.bar_label(
        drawn, [f"{value:,.3g}" if value < 1000 else f"{value:,.0f}" for value in values], padding=3
    )
    axes.margins(x=0.25)
    axes.locator_params(axis="x", nbins=4)  # of a narrow picture, beside long numbers
    axes.invert_yaxis()
    axes.set(xlabel=unit)
