"""A submission calls for a tick, in a real Slurm: from job_submit to a waiting loop."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from promises.bench import Bench, has
from sites.admin import render
from slurm_hooks.sandbox import Sandbox

pytestmark = pytest.mark.slurm
PAUSE_S = 45  # between two ticks that nobody calls for


@pytest.fixture
def bench(fresh_sandbox: Callable[..., Sandbox]) -> Bench:
    """A site whose policy names a file. Touching that file calls for a tick."""
    sandbox = fresh_sandbox(nodes=4)
    bench = Bench(sandbox)
    wake = sandbox.dir / "run" / "wake"
    wake.touch()
    tick = f'every_s = {PAUSE_S}\nshortest_s = {PAUSE_S}\nwake = "{wake}"'
    sandbox.settings.write_text(sandbox.settings.read_text().replace("every_s = 2", tick))
    assert render(bench).stderr == ""
    return bench


@pytest.fixture
def ticking(bench: Bench) -> Iterator[None]:
    """A loop at its own pace, which has made its first tick."""
    with subprocess.Popen(
        [sys.executable, "-m", "slurm_hooks.cli", "reconcile", "--loop"],
        env={**os.environ, **bench.box.environment},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("tick at")
            yield
        finally:
            process.kill()


def test_a_submitted_job_starts_long_before_the_next_tick_is_due(
    bench: Bench, ticking: None
) -> None:
    job = bench.submit("exec sleep 600", "1-2")
    bench.until(job, has(2), PAUSE_S - 15)
