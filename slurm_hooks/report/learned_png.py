"""A picture of how a job or a family scales, drawn by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slurm_hooks.learning.store.family import Family
from slurm_hooks.learning.store.profile import FamilyProfile, JobProfile
from slurm_hooks.model import Learned
from slurm_hooks.model.plural import noun_of, plural
from slurm_hooks.report.drawing import pyplot
from slurm_hooks.report.learned_text import sizes_of, speedup
from slurm_hooks.report.palette import LOST, OURS

_GREY = "#8A929C"


def job_picture(path: Path, profile: JobProfile) -> None:
    """Write the picture of a job. Raises MissingProgram without matplotlib."""
    title = f"job {profile.job_id}, {profile.family}"
    _picture(path, title, profile.learned, profile.family, profile.max_nodes, [profile])


def family_picture(path: Path, each: FamilyProfile, jobs: Sequence[JobProfile]) -> None:
    """Write the picture of a family. Raises MissingProgram without matplotlib."""
    title = f"{each.family}: {each.speaking} of {plural(each.jobs, 'job')} reported how they scale"
    _picture(path, title, each.learned, each.family, each.most, jobs)


def _picture(
    path: Path, title: str, learned: Learned, family: Family, most: int, jobs: Sequence[JobProfile]
) -> None:
    unit, noun = family.unit, noun_of(family.size_unit)
    figure = pyplot().figure(figsize=(8, 5.4), layout="constrained")
    axes = figure.subplots()
    ends = [unit, max(most, unit)]
    axes.plot(ends, [n / unit for n in ends], "--", color=_GREY, label="linear")
    _draw_learned(axes, learned, unit)
    _draw_measured(axes, unit, jobs)
    axes.set(title=title, xlabel=f"{noun}s", ylabel=f"times as fast as on {unit}")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left")
    figure.savefig(path, dpi=130, format="png")
    pyplot().close(figure)


def _draw_learned(axes: Any, learned: Learned, unit: int) -> None:
    sizes = sizes_of(learned)
    if not sizes:
        return
    likely = [[speedup(curve, n, unit) for curve in learned.plausible] for n in sizes]
    if all(likely):
        low, high = [min(each) for each in likely], [max(each) for each in likely]
        axes.fill_between(sizes, low, high, color=OURS, alpha=0.15, label="plausible")
    values = [speedup(learned.curve, n, unit) for n in sizes]
    axes.plot(sizes, values, color=OURS, label="learned")


def _draw_measured(axes: Any, unit: int, jobs: Sequence[JobProfile]) -> None:
    """Rates over the rate of a single unit on the job's own curve."""
    label = "measured"
    for job in jobs:
        base = job.learned.curve(unit) if job.learned.curve else 0.0
        if base <= 0:
            continue
        rates = list(job.newest.values())
        values = [rate.per_s / base for rate in rates]
        errors = [value * rate.error for value, rate in zip(values, rates)]
        nodes = [rate.nodes for rate in rates]
        axes.errorbar(nodes, values, errors, fmt="o", color=LOST, ms=4, label=label)
        label = "_nolegend_"
