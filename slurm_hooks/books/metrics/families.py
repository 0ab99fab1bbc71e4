"""The ledger's counts as metric families: base units, few labels, no job ids.

All labels of a closed set are present from the beginning, at 0, so that rates have a start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Optional, Union

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from slurm_hooks import __version__
from slurm_hooks.books.harvest.totals import Chosen, Standing
from slurm_hooks.books.harvest.values import INTERRUPTIONS
from slurm_hooks.model import Of
from slurm_hooks.model.resources import GPU
from slurm_hooks.model.unused import CPU, NOT_UNUSED

_PLAIN = {  # counters of the ledger without labels: name in the metrics, meaning
    "releases": ("releases", "Fragments released onto idle nodes"),
    "promised_starts": ("promised_starts", "Starts of other jobs that Slurm had published"),
    "delayed_jobs": (
        "delayed_jobs",
        "Other jobs that started late while a fragment was on a node of their plan",
    ),
    "delay_seconds": ("delay_seconds", "Upper limit of the delay of these jobs by fragments"),
    "ticks": ("ticks", "Ticks completed"),
    "tick_seconds": ("tick_seconds", "Time that ticks took"),
    "commands": ("commands", "Commands of Slurm that ticks ran"),
    "rpcs": ("rpcs", "Remote procedure calls of these commands to slurmctld"),
    "refused": ("refused_changes", "Changes that Slurm refused"),
    "core_node_seconds": (
        "core_node_seconds",
        "Node-seconds of cores in the ordinary queue, which are not harvested",
    ),
    "unseen_seconds": ("unseen_seconds", "Time too far from any tick to say why nodes were idle"),
}


def families(standing: Standing, chosen: Chosen) -> Iterator[Metric]:
    """Yield all metrics of a ledger."""
    yield _gauge("build_info", "Version of slurm-malleable", {"version": __version__})
    yield _gauge("ledger_bytes", "Size of the ledger", value=standing.bytes)
    yield from _counters(standing.counters, chosen)
    yield from _last_tick(standing)


def _counters(counters: Mapping[tuple[str, str], float], chosen: Chosen) -> Iterator[Metric]:
    for name, (shown, text) in _PLAIN.items():
        yield CounterMetricFamily(f"malleable_{shown}", text, value=counters.get((name, ""), 0.0))
    kinds = [kind.value for kind in Of.END.whys]
    interruptions = sorted(kind.value for kind in INTERRUPTIONS)
    reasons = [reason.value for reason in Of.IDLE.whys]
    labelled = (
        ("idle_node_seconds", "Node-seconds that were idle, by reason", "reason", reasons),
        ("ends", "Runs of fragments that ended, by the way they ended", "how", kinds),
        (
            "interrupted_node_seconds",
            "Node-seconds since their starts of fragments that were interrupted",
            "how",
            interruptions,
        ),
    )
    for name, text, label, values in labelled:
        series = {value: counters.get((name, value)) for value in values}
        yield _family(CounterMetricFamily, name, text, label, series)
    yield from _unused_seconds(counters)
    yield from _harvested(counters, chosen)


_UNUSED = {GPU: "GPUs", CPU: "CPUs"}
_WHERE = "on idle nodes, on partly used nodes, or stranded: without a CPU or memory beside them"


def _unused_seconds(counters: Mapping[tuple[str, str], float]) -> Iterator[Metric]:
    for resource, word in _UNUSED.items():
        name = f"unused_{resource}_seconds"
        series = {where: counters.get((name, where)) for where in asdict(NOT_UNUSED)}
        if resource == CPU or None not in series.values():
            text = f"{word} that no job used, times seconds, {_WHERE}"
            yield _family(CounterMetricFamily, name, text, "where", series)


def _harvested(counters: Mapping[tuple[str, str], float], chosen: Chosen) -> Iterator[Metric]:
    name = "harvested_node_seconds"
    by_user = {label: value for (of, label), value in counters.items() if of == name}
    text = "Node-seconds that malleable jobs ran on nodes that others left idle"
    yield CounterMetricFamily("malleable_harvested_node_seconds", text, value=sum(by_user.values()))
    if chosen.by_user:
        family = CounterMetricFamily(
            "malleable_user_harvested_node_seconds", f"{text}, by user", labels=["user"]
        )
        for user, value in sorted(by_user.items()):
            family.add_metric([user], value)
        yield family


def _last_tick(standing: Standing) -> Iterator[Metric]:
    tick = standing.tick
    if tick is None:
        return
    yield _gauge("last_tick_timestamp_seconds", "When the last tick was completed", value=tick.at)
    yield _gauge("last_tick_duration_seconds", "How long it took", value=tick.seconds)
    yield _gauge("last_tick_solver_seconds", "Of this, the allocator", value=tick.solver_s)
    text = "Time since the site forbade growth, by the date of its file, 0 if growth is allowed"
    yield _gauge("no_growth_seconds", text, value=tick.no_growth_s)
    yield _gauge("jobs", "Malleable jobs that Slurm knows", value=tick.jobs)
    text = "Malleable jobs with this reason for their size, of which a job may have several"
    limited = {why.value: tick.whys.get(why) for why in Of.JOB.whys}
    yield _family(GaugeMetricFamily, "limited_jobs", text, "reason", limited)
    text = "Nodes of the malleable partitions in the last tick"
    uses = _uses(tick.ours, tick.busy, tick.out, sum(tick.idle.values()))
    yield _family(GaugeMetricFamily, "nodes", text, "use", uses)
    idle = {reason.value: tick.idle.get(reason) for reason in Of.IDLE.whys}
    yield _family(GaugeMetricFamily, "idle_nodes", "Idle nodes, by reason", "reason", idle)
    for resource, unused in tick.unused.items():
        word = _UNUSED[resource]
        text = f"{word} that no job used in the last tick, {_WHERE}"
        yield _family(GaugeMetricFamily, f"unused_{word.lower()}", text, "where", asdict(unused))


def _uses(ours: int, busy: int, out: int, idle: int) -> dict[str, Optional[float]]:
    return {"ours": ours, "others": busy, "out_of_service": out, "idle": idle}


_Family = Union[type[CounterMetricFamily], type[GaugeMetricFamily]]


def _family(
    kind: _Family, name: str, text: str, label: str, values: Mapping[str, Optional[float]]
) -> Metric:
    """Return a family with a single label. An unknown value is 0."""
    family = kind(f"malleable_{name}", text, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number or 0.0)
    return family


def _gauge(name: str, text: str, labels: Mapping[str, str] = {}, value: float = 1) -> Metric:
    family = GaugeMetricFamily(f"malleable_{name}", text, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family
