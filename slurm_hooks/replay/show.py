"""Results for people: an answer, tables and a picture, without simulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from slurm_hooks.model.moments import plural
from slurm_hooks.model.resources import GPU
from slurm_hooks.model.unused import CPU
from slurm_hooks.replay.outcome import Outcome
from slurm_hooks.replay.parts import SEVERAL, Idle, idle_parts, sizes_of
from slurm_hooks.replay.record import Record
from slurm_hooks.report.drawing import pyplot
from slurm_hooks.report.tables import Rows, table_of
from slurm_hooks.report.text import UNITS

HOUR_S, DAY_S, WEEK_S = 3600.0, 86_400.0, 604_800.0


ROWS: tuple[tuple[str, Callable[[Mapping[str, Any]], str]], ...] = (
    ("efficiency (1: as on dedicated nodes)", lambda line: f"{line['efficiency']:.4f}"),
    ("{noun}-hours harvested", lambda line: f"{line['node_hours']:,.0f}"),
    ("share of idle time", lambda line: f"{line['used_share']:.1%}"),
    ("interruptions", lambda line: f"{line['preemptions']:,}"),
    ("work lost, {noun}-hours", lambda line: f"{line['work_lost_node_s'] / HOUR_S:,.1f}"),
    ("rescales", lambda line: f"{line['rescales']:,}"),
    ("jobs done", lambda line: f"{line['jobs_done']:,}"),
    ("solve median, ms", lambda line: f"{line['solve_s']['median'] * 1e3:.2f}"),
    ("solve maximum, ms", lambda line: f"{line['solve_s']['maximum'] * 1e3:.1f}"),
)


def idle_line(record: Record, least_s: float) -> str:
    """The sentence on the idle time in gaps of at least `least_s`."""
    hours = record.idle_in_gaps_s(least_s) * WEEK_S / record.window_s / HOUR_S
    gaps = f" in gaps of at least {least_s / 60:g} minutes" if least_s else ""
    return f"{hours:,.0f} {record.noun}-hours a week were idle{gaps}."


def use_line(line: Mapping[str, Any], record: Record, least_s: float, who: str) -> str:
    """The sentence on the use of that time. `who` says which jobs used it."""
    idle_s, worked_s = record.idle_in_gaps_s(least_s), line["worked_node_s"]
    hours = worked_s * WEEK_S / record.window_s / HOUR_S
    share = worked_s / idle_s if idle_s else 0.0
    trained = f"would have trained for {hours:,.0f} {record.noun}-hours of that"
    return f"{who} {trained} ({_percent(share)})."


def held_up_line(line: Mapping[str, Any], usual_s: float, most_s: float) -> str:
    """The sentence on the starts of other jobs that found fragments on their nodes."""
    rows = line["held_up"]
    starts = sum(row["starts"] for row in rows)
    late = sum(row["planned"] + row["at_once"] for row in rows)
    share = f" ({100 * late / starts:.1f} %)" if starts else ""
    wait = f", each for about {usual_s:g} s, and {most_s:g} s at most" if late else ""
    of = f"{late:,} of {starts:,} starts of other jobs"
    return f"Fragments would have held up {of} on idle nodes{share}{wait}."


def held_up_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each size of starts: how many fragments held up, by cause."""
    cells = (
        (_sizes(row), f"{row['starts']:,}", f"{row['planned']:,}", f"{row['at_once']:,}")
        for row in rows
    )
    heads = ("nodes", ">starts", ">planned, held up", ">at once, held up")
    return table_of(Rows("Starts of other jobs on idle nodes", heads, tuple(cells)))


def _sizes(row: Mapping[str, Any]) -> str:
    least, most = row["least"], row["most"]
    return f"{least} or more" if most is None else f"{least}" + f"-{most}" * (most > least)


def parts(record: Record) -> dict[str, Any]:
    """Idle GPUs and CPUs by place, as plain data, empty if the log does not list them."""
    if not record.uses:
        return {}
    idle = {name: _part(idle_parts(record, name)) for name in (GPU, CPU)}
    sized = len(sizes_of(record))
    return {
        **idle,
        "sizes": "told" if record.sizes else "most_used_at_once",
        "nodes": sized,
        "nodes_without_size": record.nodes - sized,
    }


def _part(idle: Idle) -> dict[str, Any]:
    """The seconds by place, and shares of the seconds on partly used nodes."""
    shares = {f"{n}_or_more_share": idle.part_share(s) for n, s in idle.beside_s.items()}
    return {
        "all_s": idle.all_s,
        "idle_s": idle.idle_s,
        "on_idle_nodes_s": idle.on_idle_s,
        "on_partly_used_nodes_s": idle.part_s,
        "stranded_s": idle.stranded_s,
        "an_hour_or_more_share": idle.part_share(idle.long_s),
        **shares,
    }


def parts_lines(places: Mapping[str, Any], record: Record) -> list[str]:
    """Idle GPUs and CPUs by place, in words, empty if the log does not list them."""
    if not places:
        return []
    gpus = _part_lines(GPU, places[GPU], record.window_s)
    gpus = gpus or ["AllocTRES has no gres/gpu (AccountingStorageTRES): GPUs are not counted."]
    cpus = _part_lines(CPU, places[CPU], record.window_s)
    if record.sizes:
        return [*gpus, *cpus]
    few = places["nodes_without_size"]
    left_out = f" {plural(few, 'node')} had no job and no known size." if few else ""
    size = f"The size of each node is the most that its jobs had at once.{left_out}"
    return [*gpus, *cpus, size]


def _part_lines(name: str, seconds: Mapping[str, Any], window_s: float) -> list[str]:
    noun = UNITS[name]
    if not seconds["idle_s"]:
        return [f"No {noun} was idle."] if seconds["all_s"] else []
    places = ("on_idle_nodes", "on_partly_used_nodes", "stranded")
    idle, part, stranded = (_percent(seconds[f"{p}_s"] / seconds["idle_s"]) for p in places)
    weekly = seconds["idle_s"] * WEEK_S / window_s / HOUR_S
    share = _percent(seconds["idle_s"] / seconds["all_s"])
    lacking = "CPU or memory" if name == GPU else "memory"
    first = (
        f"{weekly:,.0f} {noun}-hours a week were idle ({share}): "
        f"{idle} on idle nodes, {part} on partly used nodes, {stranded} with no {lacking} left."
    )
    if not seconds["on_partly_used_nodes_s"]:
        return [first]
    shares = [f"{_percent(seconds['an_hour_or_more_share'])} in holes of an hour or more"]
    if name == GPU:
        for n in SEVERAL:
            shares.append(f"{_percent(seconds[f'{n}_or_more_share'])} on nodes with {n} or more")
    return [first, f"Shares of the hours on partly used nodes: {', '.join(shares)}."]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def table(lines: Mapping[str, Mapping[str, Any]], noun: str) -> Table:
    """A column for each policy, without empty rows. `noun` is the unit of the sums."""
    nodes = next(iter(lines.values()))["equivalent_nodes"]
    cells = ((title, [text(line) for line in lines.values()]) for title, text in ROWS)
    rows = (
        (title.format(noun=noun), *(word or "-" for word in words))
        for title, words in cells
        if any(words)
    )
    heads = ("", *(f">{name}" for name in lines))
    title = f"Use of {nodes:,.1f} {noun}s that were idle on average"
    return table_of(Rows(title, heads, tuple(rows)))


def models_table(line: Mapping[str, Any]) -> Table:
    """A row for each model of the first line."""
    rows = (
        (
            name,
            f"{model['images_per_s']:,.0f}",
            f"{model['efficiency']:.3f}",
            f"{model['jobs_done']:,}",
            "-" if model["mean_job_s"] is None else f"{model['mean_job_s'] / HOUR_S:.2f}",
        )
        for name, model in line["models"].items()
    )
    heads = ("model", ">images/s", ">of dedicated", ">jobs done", ">mean job, h")
    return table_of(Rows("By model", heads, tuple(rows)))


def chart(path: Path, lines: Mapping[str, Mapping[str, Any]], outcome: Outcome) -> None:
    """Write a picture: nodes over time of the first line, and the lines beside each other.

    Raises MissingProgram without matplotlib.
    """
    names = list(lines)
    figure, axes = pyplot().subplots(1, 4, figsize=(18, 4.2), width_ratios=(4, 1.5, 1.5, 1.5))
    hours = [at / HOUR_S for at, _, _ in outcome.samples]
    axes[0].step(hours, [idle for _, idle, _ in outcome.samples], "0.75", label="idle nodes")
    axes[0].step(
        hours, [used for _, _, used in outcome.samples], "tab:green", lw=0.8, label=names[0]
    )
    axes[0].set(xlabel="hours", ylabel="nodes", title="Idle nodes, and those in use")
    axes[0].legend()
    bars = (
        ("efficiency", [line["efficiency"] for line in lines.values()]),
        ("interruptions", [line["preemptions"] for line in lines.values()]),
        ("work lost, node-h", [line["work_lost_node_s"] / HOUR_S for line in lines.values()]),
    )
    for axis, (title, values) in zip(axes[1:], bars):
        axis.bar(names, values, color=["tab:green"] + ["0.6"] * (len(names) - 1))
        axis.set_title(title)
        axis.tick_params(axis="x", rotation=30)
    figure.tight_layout()
    figure.savefig(path, dpi=120, format="png")
    pyplot().close(figure)
