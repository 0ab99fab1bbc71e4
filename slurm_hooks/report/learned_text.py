"""Words and tables on how jobs scale."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Optional

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slurm_hooks.learning.store.profile import FamilyProfile, JobProfile
from slurm_hooks.model import Counts, Curve, Learned, MalleableJob, Pauses, Rate
from slurm_hooks.model.moments import age_text
from slurm_hooks.model.plural import noun_of, plural, sized, unit_word
from slurm_hooks.report.pages import address
from slurm_hooks.report.tables import Rows, table_of

UNITS = {Counts.SAMPLES: "samples/s", Counts.STEPS: "steps/s x {}s"}
_NOTHING = "its scaling is not measured yet, so {}s are shared equally"
_UNSEEN = (
    "its steps cannot be counted: it uses neither an optimizer nor a DataLoader of torch. Call "
    "`report()` in its script ({})"
)
_UNCOUNTED = "with engine={} the speed of all fragments together cannot be measured"
NO_GAIN = 1.05  # times as fast: less is not worth a resize
QUIET_S = 300.0  # a job that has had its minimum for so long without a report will not report


def learned_lines(
    job: MalleableJob, learned: Optional[Learned], profile: Optional[JobProfile], now_s: float
) -> list[str]:
    """Lines for `explain` on how a job scales: figures, their error and their source."""
    noun = noun_of(job.request.size_unit)
    if learned is None or not (learned.curve or learned.sizes_seen):
        has_told = profile is not None and profile.rates
        whole = job.since(job.request.min_nodes)
        is_quiet = whole and now_s - whole.timestamp() > QUIET_S and not has_told
        if not job.tells_rates:
            uncounted = _UNCOUNTED.format(job.request.engine)
            return [f"learned: {_NOTHING.format(noun)}. {uncounted.capitalize()}"]
        unseen = [f"learned: {_UNSEEN.format(address('users/checkpoints'))}"] if is_quiet else []
        return [f"learned: {_NOTHING.format(noun)}", *unseen]
    lines = (*_seen_lines(job, learned, profile, now_s), *_pause_lines(profile))
    return [f"learned: {line}" for line in lines]


def _seen_lines(
    job: MalleableJob, learned: Learned, profile: Optional[JobProfile], now_s: float
) -> list[str]:
    sizes, unit = learned.sizes_seen, job.request.unit
    newest = max((rate.at for rate in profile.counted), default=None) if profile else None
    age = f", last {age_text(now_s - newest)} ago" if newest is not None else ""
    seen = f"measured at: {_list(sizes)}{age}" if sizes else "not measured itself"
    if learned.curve is None:
        lacks = "a small size is missing" if len(sizes) > 1 else "a second size is missing"
        return [f"{seen}; {lacks}, so nodes are shared equally"]
    far = sizes[-1] if sizes else job.request.max_nodes
    lines = []
    if far > unit:
        error = profile.newest[far].error if profile and far in profile.newest else 0.0
        lines.append(f"{_gain(job, learned, far, error)} ({seen})")
        if job.size < far and speedup(learned.curve, far, unit) < NO_GAIN:
            noun = noun_of(job.request.size_unit)
            lines.append(f"more {noun}s are no faster, so the job takes no free {noun}")
    else:
        lines.append(seen)
    most = job.request.max_nodes
    if most > far:
        lines.append(f"{_gain(job, learned, most)}: assumed, not measured")
    if learned.is_shared:
        lines.append("jobs of the same name count too (malleable profile --family)")
    return lines


def _gain(job: MalleableJob, learned: Learned, size: int, error: float = 0.0) -> str:
    unit = job.request.unit
    gain = speedup(learned.curve, size, unit)
    return (
        f"{sized(size, job.request.size_unit)} {'trains' if size == 1 else 'train'} "
        f"{gain:.1f} times as fast as {unit} "
        f"(give or take {100 * math.hypot(learned.spread(size), error):.0f} %)"
    )


def _pause_lines(profile: Optional[JobProfile]) -> list[str]:
    words = pause_words(profile.pauses) if profile else ""
    return [f"measured pauses: {words}"] if words else []


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


def _list(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes))


def job_view(profile: JobProfile, now_s: float) -> RenderableType:
    """A job: measured and assumed rates, with their age."""
    learned = profile.learned
    head = [
        f"job {profile.job_id} of {profile.family}, {profile.min_nodes}-{profile.max_nodes} "
        f"{noun_of(profile.family.size_unit)}s, "
        f"last seen {age_text(now_s - profile.last_at)} ago"
    ]
    if learned.is_shared:
        head.append("jobs of its family count too")
    words = pause_words(profile.pauses)
    head += [f"measured pauses: {words}"] if words else []
    if profile.sync is not None:
        head.append(f"{100 * profile.sync:.0f} % of a step waits for other workers")
    old = len(profile.rates) - len(profile.counted)
    head += [f"left out: {plural(old, 'older rate')}, since the job has changed"] if old else []
    if not learned.curve:
        head.append("too little is measured for a curve, so nodes are shared equally")
    return Group(Text("\n".join(head)), _sizes_table(profile, now_s))


def _sizes_table(profile: JobProfile, now_s: float) -> Table:
    learned, unit = profile.learned, profile.family.unit
    rows = []
    for nodes in sizes_of(learned, profile.newest):
        rate = profile.newest.get(nodes)
        known = _known(learned, nodes, unit, rate.error if rate else 0.0)
        source = _source(rate, now_s) if rate else "assumed"
        per_s = rate.per_s if rate else (learned.curve(nodes) if learned.curve else 0.0)
        is_rate = rate or profile.newest
        rows.append((str(nodes), f"{per_s:.4g}" if is_rate else "", *known, source))
    size = noun_of(profile.family.size_unit)
    speed = UNITS[profile.counts].format(size)
    return _table(
        (_head(size), f">{speed.upper()}", ">SPEED-UP", ">+-", ">OF LINEAR", "SOURCE"), rows
    )


def sizes_of(learned: Learned, newest: Iterable[int] = ()) -> list[int]:
    """The sizes that get a line."""
    points = learned.curve.points[1:] if learned.curve else ()
    return sorted({nodes for nodes, _ in points} | set(newest))


def _known(learned: Learned, nodes: int, unit: int, error: float = 0.0) -> tuple[str, str, str]:
    """Speed-up, its error, share of linear. `error` is the error of the measurement."""
    if learned.curve is None:
        return "", "", ""
    gain = speedup(learned.curve, nodes, unit)
    spread = f"{100 * math.hypot(learned.spread(nodes), error):.0f} %"
    return f"{gain:.2f}", spread, f"{100 * gain * unit / nodes:.0f} %"


def _source(rate: Rate, now_s: float) -> str:
    return f"measured {age_text(now_s - rate.at)} ago, +- {100 * rate.error:.1f} %"


def families_view(families: Sequence[FamilyProfile], now_s: float) -> RenderableType:
    """All families, a line each."""
    heads = ("FAMILY", ">UNIT", "ENGINE", ">JOBS", ">SHOWN", ">SPEED-UP", "LAST SEEN")
    rows = (
        (
            str(each.family),
            unit_word(each.family.unit, each.family.size_unit),
            each.family.engine,
            str(each.jobs),
            str(each.speaking),
            _begins_with(each),
            f"{age_text(now_s - each.last_at)} ago",
        )
        for each in families
    )
    return _table(heads, rows)


def _begins_with(each: FamilyProfile) -> str:
    if each.learned.curve is None:
        return ""
    return f"{speedup(each.learned.curve, each.most, each.family.unit):.1f} on {each.most}"


def family_view(each: FamilyProfile, jobs: Sequence[JobProfile], now_s: float) -> RenderableType:
    """A family: the curve for its new jobs, and the measurements of each job."""
    family = each.family
    needs = f", nodes with {family.kind}" if family.kind else ""
    head = (
        f"{family}: unit {unit_word(family.unit, family.size_unit)}, {family.engine}{needs}; "
        f"{each.speaking} of {plural(each.jobs, 'job')} reported how they scale"
    )
    known = (
        (str(nodes), *_known(each.learned, nodes, family.unit)) for nodes in sizes_of(each.learned)
    )
    size = noun_of(family.size_unit)
    curve = _table((_head(size), ">SPEED-UP", ">+-", ">OF LINEAR"), known)
    job_rows = (
        (
            str(job.job_id),
            _list(job.learned.sizes_seen),
            f"{age_text(now_s - job.last_at)} ago",
        )
        for job in jobs
    )
    seen = _table((">JOBID", f"{size.upper()}S SEEN", "LAST SEEN"), job_rows)
    return Group(Text(head), curve, seen)


def _head(noun: str) -> str:
    return f">{noun.upper()}S"


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    return table_of(Rows("", heads, tuple(rows)))
