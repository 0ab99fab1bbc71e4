"""`malleable top` on a terminal, beside a real Slurm."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from promises.bench import Bench, has
from waiting import wait_until

pytestmark = pytest.mark.slurm
pytest.importorskip("textual")


@contextmanager
def on_a_terminal(bench: Bench, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A command of ours on a terminal of its own, and this terminal."""
    ours, its = pty.openpty()
    environment = {**os.environ, **bench.box.environment, "TERM": "xterm", "COLUMNS": "120"}
    argv = [sys.executable, "-m", "slurm_hooks.cli", *words]
    program = subprocess.Popen(
        argv, env={**environment, "LINES": "40"}, stdin=its, stdout=its, stderr=its
    )
    os.close(its)
    try:
        yield program, ours
    finally:
        program.kill()
        program.wait()
        os.close(ours)


def test_it_shows_the_job_and_ends_at_a_key(bench: Bench) -> None:
    job = bench.submit("exec sleep 600", "1-2")
    bench.tick_until(job, has(2))
    user = bench.job(job).user
    with on_a_terminal(bench, "top") as (program, terminal):
        seen = b""

        def shows(text: str) -> bool:
            nonlocal seen
            while select.select([terminal], [], [], 0)[0]:
                seen += os.read(terminal, 65_536)
            return text.encode() in seen

        wait_until(lambda: shows(user), explain=lambda: repr(seen[-3000:]))
        os.write(terminal, b"q")
        assert program.wait(30) == 0
