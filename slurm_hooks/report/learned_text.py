"""Words on how jobs scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Optional

from slurm_hooks.learning.reports import JobReport, report_of
from slurm_hooks.model import Curve, Learned, MalleableJob, Pauses, Rate
from slurm_hooks.model.moments import age_text, noun_of, sized
from slurm_hooks.report.pages import address

_NOTHING = "its scaling is not measured yet, so {}s are shared equally"
_UNSEEN = (
    "its steps cannot be counted: it uses neither an optimizer nor a DataLoader of torch. Call "
    "`report()` in its script ({})"
)
_UNCOUNTED = "with engine={} the speed of all fragments together cannot be measured"
NO_GAIN = 1.05  # times as fast: less is not worth a resize
QUIET_S = 300.0  # a job that has had its minimum for so long without a report will not report


def learned_lines(job: MalleableJob, learned: Optional[Learned], now_s: float) -> list[str]:
    """Lines for `explain` on how a job scales: figures, their error and their source."""
    if learned is None or not (learned.curve or learned.sizes_seen):
        lines = _unknown_lines(job, now_s)
    else:
        report = report_of(job, now_s)
        lines = [*_seen_lines(job, learned, report.rates, now_s), *_cost_lines(report)]
    return [f"learned: {line}" for line in lines]


def _unknown_lines(job: MalleableJob, now_s: float) -> list[str]:
    nothing = _NOTHING.format(noun_of(job.request.size_unit))
    if not job.tells_rates:
        return [f"{nothing}. {_UNCOUNTED.format(job.request.engine).capitalize()}"]
    whole = job.since(job.request.min_nodes)
    has_told = any(fragment.telemetry for fragment in job.fragments)
    is_quiet = whole and now_s - whole.timestamp() > QUIET_S and not has_told
    return [nothing, _UNSEEN.format(address("users/checkpoints"))] if is_quiet else [nothing]


def _seen_lines(
    job: MalleableJob, learned: Learned, rates: Sequence[Rate], now_s: float
) -> list[str]:
    sizes, unit = learned.sizes_seen, job.request.unit
    noun = noun_of(job.request.size_unit)
    age = f", last {age_text(now_s - rates[-1].at)} ago" if rates else ""
    seen = f"measured at: {', '.join(map(str, sizes))}{age}" if sizes else "not measured itself"
    if learned.curve is None:
        lacks = "a small size is missing" if len(sizes) > 1 else "a second size is missing"
        return [f"{seen}; {lacks}, so {noun}s are shared equally"]
    far, most = sizes[-1] if sizes else job.request.max_nodes, job.request.max_nodes
    error = next((rate.error for rate in rates if rate.nodes == far), 0.0)
    lines = [f"{_gain(job, learned, far, error)} ({seen})"]
    if learned.is_shared:
        lines.append("your jobs of the same name count too, since its own sizes are too few")
    if job.size < far and speedup(learned.curve, far, unit) < NO_GAIN:
        lines.append(f"more {noun}s are no faster, so the job takes no free {noun}")
    if most > far:
        lines.append(f"{_gain(job, learned, most)}: assumed, not measured")
    return lines


def _gain(job: MalleableJob, learned: Learned, size: int, error: float = 0.0) -> str:
    unit = job.request.unit
    gain = speedup(learned.curve, size, unit)
    return (
        f"{sized(size, job.request.size_unit)} {'trains' if size == 1 else 'train'} "
        f"{gain:.1f} times as fast as {unit} "
        f"(give or take {100 * math.hypot(learned.spread(size), error):.0f} %)"
    )


def _cost_lines(report: JobReport) -> list[str]:
    words = pause_words(report.pauses)
    lines = [f"measured pauses: {words}"] if words else []
    if report.sync is not None:
        lines.append(f"{100 * report.sync:.0f} % of a step waits for other workers")
    return lines


def pause_words(pauses: Pauses) -> str:
    """The pauses that were measured, empty without a measurement."""
    named = (
        ("start", pauses.start_s),
        ("growth", pauses.grow_s),
        ("shrink", pauses.shrink_s),
        ("a lost node", pauses.loss_s),
    )
    return ", ".join(f"{name} {s:.0f} s" for name, s in named if s is not None)


def speedup(curve: Optional[Curve], nodes: int, unit: int) -> float:
    """The speed over the speed on a single unit."""
    base = curve(unit) if curve else 0.0
    return curve(nodes) / base if curve and base > 0 else 0.0
