from __future__ import annotations

from collections.abc import Iterator

import pytest

from promises.bench import Bench
from slurm_hooks.sandbox import Sandbox


@pytest.fixture
def bench(sandbox: Sandbox) -> Iterator[Bench]:
    bench = Bench(sandbox, notice_s=10)
    bench.share_at_once()
    yield bench
    bench.cancel_all()
