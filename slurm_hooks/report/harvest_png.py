"""The report as one picture, drawn by matplotlib: for mails and slides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slurm_hooks.harvest.totals import Totals
from slurm_hooks.report.drawing import pyplot
from slurm_hooks.report.harvest_text import HOUR_S, SHORT_WHY, figures, moments

_LAYERS = (("malleable jobs", "#009E73"), ("other jobs", "#B8BEC6"), ("idle", "#E69F00"))
_MOST = 10


def picture(path: Path, totals: Totals) -> None:
    """Write the picture. Raises MissingProgram without matplotlib."""
    figure = pyplot().figure(figsize=(12, 7.2), layout="constrained")
    over, left, right = figure.subplot_mosaic([["over", "over"], ["left", "right"]]).values()
    figure.suptitle("    ".join(f"{number} {text}" for number, text in figures(totals)[:4]))
    when: Any = moments(totals.samples)
    idle = [sum(sample.idle.values()) for sample in totals.samples]
    used = ([s.ours for s in totals.samples], [s.busy for s in totals.samples], idle)
    over.stackplot(
        when, *used, labels=[n for n, _ in _LAYERS], colors=[c for _, c in _LAYERS], step="post"
    )
    over.set(title="Nodes over time", ylabel="nodes")
    over.margins(x=0, y=0.18)
    over.legend(loc="upper left", ncols=3)
    shares = totals.users[:_MOST][::-1]
    left.barh(
        [share.name or "(none)" for share in shares],
        [share.node_s / HOUR_S for share in shares],
        color="#009E73",
    )
    left.set(title="Harvested, by user", xlabel="node-hours")
    ranked = sorted(totals.idle.items(), key=lambda item: item[1])
    names = [SHORT_WHY[reason] for reason, _ in ranked]
    right.barh(names, [node_s / HOUR_S for _, node_s in ranked], color="#E69F00")
    right.set(title="What stayed idle, and why", xlabel="node-hours")
    figure.savefig(path, dpi=130, format="png")
    pyplot().close(figure)
