"""A site is its module's own Slurm. Each test leaves it without a job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from promises.bench import Bench
from slurm_hooks.sandbox import Sandbox


@pytest.fixture
def bench(site: Sandbox) -> Iterator[Bench]:
    bench = Bench(site)
    yield bench
    bench.cancel_all()
