"""`malleable reconcile --loop`: survives a failed tick, and ends once none succeeds for long."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path


def test_a_loop_that_cannot_tick_for_long_ends(site: Path) -> None:
    (site / "bin" / "squeue").write_text("#!/bin/sh\necho Unable to contact >&2\nexit 1\n")
    stamp = site / "tick.lock.done"
    stamp.touch(mode=0o600)
    os.utime(stamp, (time.time() - 600,) * 2)
    done = subprocess.run(
        [sys.executable, "-m", "slurm_hooks.cli", "reconcile", "--loop", "1"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 69
    assert re.match(r"malleable: no tick has been completed since .*\(10 min\)", done.stderr)
    assert "Unable to contact" in done.stderr


def test_a_loop_ends_with_a_signal_and_survives_failures(site: Path) -> None:
    (site / "bin" / "squeue").write_text("#!/bin/sh\necho Unable to contact >&2\nexit 1\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "slurm_hooks.cli", "reconcile", "--loop", "1"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert [process.stderr.readline()[:11] for _ in range(2)] == ["malleable: "] * 2
        process.terminate()
        assert process.wait(timeout=10) == 0
    finally:
        process.kill()
        process.communicate(timeout=10)
