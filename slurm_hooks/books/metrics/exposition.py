"""Metrics as the text that Prometheus reads: in a file of the textfile collector, or over HTTP."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Optional

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slurm_hooks.books.harvest.totals import Chosen, Standing
from slurm_hooks.books.metrics.families import families

MODE = 0o644  # the exporter runs as another user


class Books(Collector):
    """Reads the ledger's standing at every scrape. If `read_standing` returns None,
    `malleable_ledger_readable` is 0."""

    def __init__(self, read_standing: Callable[[], Optional[Standing]], chosen: Chosen) -> None:
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
    read_standing: Callable[[], Optional[Standing]], chosen: Chosen
) -> CollectorRegistry:
    """Return a registry with only our metrics."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Books(read_standing, chosen))
    return registry


def text_of(standing: Optional[Standing], chosen: Chosen) -> bytes:
    """Return the metrics as text. None stands for a ledger that cannot be read."""
    return generate_latest(registry_of(lambda: standing, chosen))


def samples_of(standing: Standing, chosen: Chosen) -> list[dict[str, Any]]:
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
    address: str, port: int, read_standing: Callable[[], Optional[Standing]], chosen: Chosen
) -> Callable[[], None]:
    """Answer HTTP in separate threads. Return a function that stops them. Raises OSError."""
    server, thread = start_http_server(port, address, registry_of(read_standing, chosen))

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return close
