"""Metrics for Prometheus: base units, few labels, no job ids. In a file of the textfile collector,
or over HTTP.

All labels of a closed set are present from the beginning, at 0, so that rates have a start.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, Optional, Union

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slurm_hooks import __version__
from slurm_hooks.history.harvest.events import USED
from slurm_hooks.history.harvest.totals import Standing
from slurm_hooks.history.harvest.values import INTERRUPTIONS
from slurm_hooks.model import Of
from slurm_hooks.model.unused import NOT_UNUSED
from slurm_hooks.settings.values import Metrics

MODE = 0o644  # the exporter runs as another user
_REASONS = tuple(reason.value for reason in Of.IDLE.whys)
_ENDS = tuple(kind.value for kind in Of.END.whys)
_USES = ("ours", "others", "out_of_service", "idle")
_PLACES = tuple(asdict(NOT_UNUSED))
_OPTIONAL = ("where", _PLACES, "", True)
_WHERE = "on idle nodes, on partly used nodes, or stranded: without a CPU or memory beside them"
_HARVESTED = "Node-seconds that malleable jobs ran on nodes that others left idle"


class _Row(NamedTuple):
    """A family: its name, meaning, label and the values of the label. `of` are its numbers in the
    ledger, if they have another name. An optional family without numbers is left out."""

    name: str
    text: str
    label: str = ""
    labels: tuple[str, ...] = ("",)
    of: str = ""
    is_optional: bool = False

    def family(self, kind: _Kind, numbers: Mapping[str, float]) -> Metric:
        """Return the family. An unknown number is 0."""
        family = kind(f"malleable_{self.name}", self.text, labels=[self.label] * bool(self.label))
        for value in self.labels:
            family.add_metric([value] * bool(self.label), numbers.get(value, 0.0))
        return family


_Kind = Union[type[CounterMetricFamily], type[GaugeMetricFamily]]
_COUNTERS = (
    _Row("releases", "Fragments released onto idle nodes"),
    _Row("promised_starts", "Starts of other jobs that Slurm had published"),
    _Row(
        "delayed_jobs", "Other jobs that started late while a fragment was on a node of their plan"
    ),
    _Row("delay_seconds", "Upper limit of the delay of these jobs by fragments"),
    _Row("ticks", "Ticks completed"),
    _Row("tick_seconds", "Time that ticks took"),
    _Row("commands", "Commands of Slurm that ticks ran"),
    _Row("rpcs", "Remote procedure calls of these commands to slurmctld"),
    _Row("refused_changes", "Changes that Slurm refused"),
    _Row(
        "core_node_seconds",
        "Node-seconds of cores in the ordinary queue, which are not harvested",
    ),
    _Row("unseen_seconds", "Time too far from any tick to say why nodes were idle"),
    _Row("idle_node_seconds", "Node-seconds that were idle, by reason", "reason", _REASONS),
    _Row("ends", "Runs of fragments that ended, by the way they ended", "how", _ENDS),
    _Row(
        "interrupted_node_seconds",
        "Node-seconds since their starts of fragments that were interrupted",
        *("how", tuple(sorted(kind.value for kind in INTERRUPTIONS)), "ended_node_seconds"),
    ),
    _Row("unused_gpu_seconds", f"GPUs that no job used, times seconds, {_WHERE}", *_OPTIONAL),
    _Row("unused_cpu_seconds", f"CPUs that no job used, times seconds, {_WHERE}", "where", _PLACES),
)
_STANDING = (
    _Row("last_tick_timestamp_seconds", "When the last tick was completed"),
    _Row("last_tick_duration_seconds", "How long it took"),
    _Row("last_tick_solver_seconds", "Of this, the allocator"),
    _Row(
        "no_growth_seconds",
        "Time since the site forbade growth, by the date of its file, 0 if growth is allowed",
    ),
    _Row("jobs", "Malleable jobs that Slurm knows"),
    _Row(
        "limited_jobs",
        "Malleable jobs with this reason for their size, of which a job may have several",
        *("reason", tuple(why.value for why in Of.JOB.whys)),
    ),
    _Row("nodes", "Nodes of the malleable partitions in the last tick", "use", _USES),
    _Row("idle_nodes", "Idle nodes, by reason", "reason", _REASONS),
    _Row("unused_gpus", f"GPUs that no job used in the last tick, {_WHERE}", *_OPTIONAL),
    _Row("unused_cpus", f"CPUs that no job used in the last tick, {_WHERE}", *_OPTIONAL),
)


def families(standing: Standing, chosen: Metrics) -> Iterator[Metric]:
    """Yield all metrics of a ledger."""
    numbers: dict[str, dict[str, float]] = defaultdict(dict)
    for (name, label), number in standing.items():
        numbers[name][label] = number
    build = _Row("build_info", "Version of slurm-malleable", "version", (__version__,))
    yield build.family(GaugeMetricFamily, {__version__: 1})
    size = _Row("ledger_bytes", "Size of the ledger")
    yield size.family(GaugeMetricFamily, numbers[size.name])
    yield from _families(CounterMetricFamily, _COUNTERS, numbers)
    used = numbers[USED]
    yield _Row(USED, _HARVESTED).family(CounterMetricFamily, {"": sum(used.values())})
    if chosen.by_user:
        row = _Row(f"user_{USED}", f"{_HARVESTED}, by user", "user", tuple(sorted(used)))
        yield row.family(CounterMetricFamily, used)
    if numbers["jobs"]:
        yield from _families(GaugeMetricFamily, _STANDING, numbers)


def _families(
    kind: _Kind, rows: Iterable[_Row], numbers: Mapping[str, Mapping[str, float]]
) -> Iterator[Metric]:
    for row in rows:
        known = numbers[row.of or row.name]
        if known or not row.is_optional:
            yield row.family(kind, known)


class Books(Collector):
    """Reads the ledger's standing at every scrape. If `read_standing` returns None,
    `malleable_ledger_readable` is 0."""

    def __init__(self, read_standing: Callable[[], Optional[Standing]], chosen: Metrics) -> None:
        self._read_standing, self._chosen = read_standing, chosen

    def collect(self) -> Iterator[Metric]:
        """Yield all families."""
        standing = self._read_standing()
        yield GaugeMetricFamily(
            "malleable_ledger_readable",
            "1 if the ledger could be read",
            value=standing is not None,
        )
        if standing is not None:
            yield from families(standing, self._chosen)


def registry_of(
    read_standing: Callable[[], Optional[Standing]], chosen: Metrics
) -> CollectorRegistry:
    """Return a registry with only our metrics."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Books(read_standing, chosen))
    return registry


def text_of(standing: Optional[Standing], chosen: Metrics) -> bytes:
    """Return the metrics as text. None stands for a ledger that cannot be read."""
    return generate_latest(registry_of(lambda: standing, chosen))


def samples_of(standing: Standing, chosen: Metrics) -> list[dict[str, Any]]:
    """Return the metrics for JSON: a name, labels and a value each."""
    samples = (s for family in Books(lambda: standing, chosen).collect() for s in family.samples)
    return [{"name": s.name, "labels": dict(s.labels), "value": s.value} for s in samples]


def write_textfile(path: Path, text: bytes) -> None:
    """Write the text to `path` in a single step, so that readers never see a part of it. Raises
    OSError, even if the path is a device such as /dev/null."""
    if path.exists() and not path.is_file():
        raise FileExistsError("it is not a regular file, so it is not replaced: name another path")
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(handle, "wb") as file:
            file.write(text)
            os.fchmod(file.fileno(), MODE)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def serve(
    address: str, port: int, read_standing: Callable[[], Optional[Standing]], chosen: Metrics
) -> Callable[[], None]:
    """Answer HTTP in separate threads. Return a function that stops them. Raises OSError."""
    server, thread = start_http_server(port, address, registry_of(read_standing, chosen))

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return close
