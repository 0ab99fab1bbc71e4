"""Draw the picture of a run: the jobs on the nodes over time, and node by node. Values in, a PNG
out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from demo.records import Recording
from demo.scenario import Scenario
from demo.story import (
    IDLE,
    OURS,
    RESERVED,
    Place,
    occupants,
    places,
    preempted,
    sizes,
)
from slurm_hooks.report import palette

COLOURS = {
    "rigid": palette.OTHERS,
    OURS: palette.OURS,
    RESERVED: palette.RESERVED,
    IDLE: palette.IDLE,
}
HATCHES = {RESERVED: "///"}
BOXES = {RESERVED: {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0}}
ORDER = ("rigid", OURS, IDLE, RESERVED)
TOUCHING_S = 30.0
Bar = tuple[float, float, str]


def draw(recording: Recording, path: Path) -> Path:
    """Write the picture to `path` and return it."""
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(12, 7.5), sharex=True, height_ratios=(3, 4), layout="constrained"
    )
    _draw_stack(top, recording)
    _draw_nodes(bottom, recording)
    _draw_markers((top, bottom), recording)
    bottom.set_xlabel("time since the load began (s)")
    figure.suptitle(title(recording), fontsize=14)
    handles = [
        Patch(facecolor=COLOURS[kind], hatch=HATCHES.get(kind), label=_kind_label(kind))
        for kind in ORDER
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(ORDER), frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path


def title(recording: Recording) -> str:
    """The subject of the picture, and how much the job did."""
    work, done = recording.work, recording.result.get(f"{recording.work.unit}s")
    amount = f", {done} {work.unit}s" if done is not None else ""
    where = recording.scenario.title
    return f"One malleable {work.name} in the holes of {where}{amount}"


def _kind_label(kind: str) -> str:
    return {"rigid": "rigid jobs", OURS: "malleable job"}.get(kind, kind)


def _draw_stack(axes: Any, recording: Recording) -> None:
    times, counts = stack(recording)
    heights = [counts[kind] for kind in ORDER]
    colours = [COLOURS[kind] for kind in ORDER]
    areas = axes.stackplot(times, heights, colors=colours, step="post", edgecolor="white", lw=0.3)
    for area, kind in zip(areas, ORDER):
        area.set_hatch(HATCHES.get(kind))
    axes.set_ylabel(f"{recording.scenario.unit}s")
    axes.set_ylim(0, len(places(recording.scenario)))
    axes.set_xlim(0, max([*times, 1.0]))


def stack(recording: Recording) -> tuple[list[float], dict[str, list[int]]]:
    """Moments, and for each of ORDER its nodes, or GPUs, at these moments."""
    times, counts = [], {kind: [] for kind in ORDER}  # type: ignore[var-annotated]
    for sample in recording.with_it:
        kinds = [kind_of(name) for name in occupants(sample, recording).values()]
        times.append(max(0.0, sample.t - recording.zero))
        for kind in ORDER:
            counts[kind].append(kinds.count(kind))
    return times, counts


def kind_of(name: str) -> str:
    """The kind of an occupant: every other name is a rigid job's."""
    return name if name in COLOURS else "rigid"


def _draw_nodes(axes: Any, recording: Recording) -> None:
    scenario, above = recording.scenario, []
    for line, place in enumerate(places(scenario)):
        stretches = bars(recording, place)
        for begin, end, name in stretches:
            kind = kind_of(name)
            axes.barh(
                line,
                end - begin,
                left=begin,
                height=0.82 if scenario.per_node == 1 else 1.0,
                color=COLOURS[kind],
                edgecolor="white",
                linewidth=0.6,
                hatch=HATCHES.get(kind),
            )
            if kind != IDLE and end - begin > 2.2 * len(name) and (begin, end, name) not in above:
                colour = "white" if kind == OURS else "black"
                axes.text(
                    begin + 2,
                    line,
                    name,
                    va="center",
                    fontsize=8,
                    color=colour,
                    bbox=BOXES.get(kind),
                )
        above = stretches if place[1] + 1 < scenario.per_node else []
    _label_nodes(axes, scenario)
    axes.invert_yaxis()
    axes.set_ylabel("node")


def _label_nodes(axes: Any, scenario: Scenario) -> None:
    """Label each node with its name, and draw a line below it if it has several rows."""
    of_node = scenario.per_node
    starts = [index * of_node for index in range(scenario.nodes)]
    axes.set_yticks([start + (of_node - 1) / 2 for start in starts], scenario.node_names)
    for start in starts[1:] if of_node > 1 else ():
        axes.axhline(start - 0.5, color="black", linewidth=1.5)


def bars(recording: Recording, place: Place) -> list[Bar]:
    """Stretches of an occupant at a place: begin, end (seconds), name."""
    stretches: list[Bar] = []
    last = None
    for sample in recording.with_it:
        t = max(0.0, sample.t - recording.zero)
        name = occupants(sample, recording)[place]
        if last is not None and last[1] == name:
            stretches[-1] = (stretches[-1][0], t, name)
        else:
            if stretches:
                stretches[-1] = (stretches[-1][0], t, stretches[-1][2])
            stretches.append((t, t, name))
        last = (t, name)
    return stretches


def markers(recording: Recording) -> list[tuple[float, str]]:
    """Moments worth a line through the picture, with a short name each."""
    renewals = sorted(
        {act.t - recording.zero for t in recording.ticks for act in t.acts if act.is_renewal}
    )
    moments = [(renewals[0], "first renewal")] if renewals else []
    moments += [(t, "preemption") for t, _ in preempted(recording)]
    booking = recording.scenario.booking
    if booking and recording.with_it and recording.with_it[-1].t >= recording.begin:
        moments.append((recording.begin - recording.zero, f"{booking.name} begins"))
    changes = sizes(recording)
    if recording.result and changes[-1].count == 0:
        moments.append((changes[-1].t, f"{recording.work.name} done"))
    return sorted(moments)


def _draw_markers(both: Sequence[Any], recording: Recording) -> None:
    """Draw the names above the picture, on two levels where they would touch."""
    is_raised, before = False, float("-inf")
    for t, name in markers(recording):
        for axes in both:
            axes.axvline(t, color="black", linestyle="--", linewidth=1.0)
        is_raised = t - before < TOUCHING_S and not is_raised
        before = t
        both[0].annotate(
            name,
            (t, both[0].get_ylim()[1]),
            xytext=(0, 16 if is_raised else 4),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=9,
            annotation_clip=False,
        )
