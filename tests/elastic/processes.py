"""Processes of tests. No process outlives its test, whether the test passes or fails."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

STARTED: list[subprocess.Popen[str]] = []


def launch(
    words: Sequence[str], env: Mapping[str, str], stderr: int | None = None
) -> subprocess.Popen[str]:
    """Start a process whose output is read through a pipe. `end_all` ends it if the test
    did not.
    """
    process = subprocess.Popen(
        words, env=dict(env), stdout=subprocess.PIPE, stderr=stderr, text=True
    )
    STARTED.append(process)
    return process


def end_all() -> None:
    """End the processes that still run, and close their pipes."""
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            process.kill()
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()
        process.wait()
