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

MODE = 0o644  # the exporter runs as a user of its own


class Books(Collector):
    """Asks for the ledger's standing at every scrape; `malleable_ledger_readable` says whether
    that worked. `look` returns None if it did not."""

    def __init__(self, look: Callable[[], Optional[Standing]], chosen: Chosen) -> None:
        self._look, self._chosen = look, chosen

    def collect(self) -> Iterator[Metric]:
        """All families."""
        standing = self._look()
        yield GaugeMetricFamily(
            "malleable_ledger_readable",
            "1 if the ledger could be read",
            value=standing is not None,
        )
        if standing is not None:
            yield from families(standing, self._chosen)


def registry_of(look: Callable[[], Optional[Standing]], chosen: Chosen) -> CollectorRegistry:
    """A registry with our metrics and no others."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Books(look, chosen))
    return registry


def text_of(standing: Optional[Standing], chosen: Chosen) -> bytes:
    """The metrics as text; of None, that the ledger cannot be read."""
    return generate_latest(registry_of(lambda: standing, chosen))


def samples_of(standing: Standing, chosen: Chosen) -> list[dict[str, Any]]:
    """The same for programs that read JSON: a name, labels and a value each."""
    found = (s for family in Books(lambda: standing, chosen).collect() for s in family.samples)
    return [{"name": s.name, "labels": dict(s.labels), "value": s.value} for s in found]


def write_textfile(path: Path, text: bytes) -> None:
    """Put the text at `path`: whoever reads it sees the old or the new, never a part. Raises
    OSError, also where the path is that of a device such as /dev/null."""
    if path.exists() and not path.is_file():
        raise FileExistsError("no regular file is there, and nothing takes its place")
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
    address: str, port: int, look: Callable[[], Optional[Standing]], chosen: Chosen
) -> Callable[[], None]:
    """Answer HTTP in threads of their own until what is returned is called. Raises OSError."""
    server, thread = start_http_server(port, address, registry_of(look, chosen))

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return close
