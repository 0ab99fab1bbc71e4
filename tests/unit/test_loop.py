"""`malleable reconcile --loop`: survives a failed tick, and ends once none succeeds for long."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm_hooks.commands import reconcile
from slurm_hooks.errors import NoTickForLong


def test_a_loop_that_cannot_tick_for_long_ends(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not at its first tick, though: what was long ago is another loop's affair."""
    (site / "bin" / "squeue").write_text("#!/bin/sh\necho Unable to contact >&2\nexit 1\n")
    stamp = site / "tick.lock.done"
    stamp.touch(mode=0o600)
    os.utime(stamp, (time.time() - 600,) * 2)
    arguments = argparse.Namespace(settings=None, dry_run=False, json=False)
    reconcile._tolerant_tick(arguments, time.monotonic(), 1.0)
    told = capsys.readouterr().err
    assert told.startswith("malleable: no tick has been completed since ")
    assert "Unable to contact" in told
    with pytest.raises(NoTickForLong, match=r"\(10 min\)"):
        reconcile._tolerant_tick(arguments, time.monotonic() - 400, 1.0)
    assert NoTickForLong.exit_code == 69


def test_ticks_for_a_while_end_with_the_code_of_the_last(site: Path) -> None:
    """As the timer runs them: many in a row, and the unit fails if the last one did."""
    squeue = site / "bin" / "squeue"
    broken = "#!/bin/sh\necho Unable to contact >&2\nexit 1\n"
    works = squeue.read_text()
    argv = [sys.executable, "-m", "slurm_hooks.cli", "reconcile", "--loop", "1", "--for", "2"]
    for text, code in ((works, 0), (broken, 75)):
        squeue.write_text(text)
        began = time.monotonic()
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == code, done.stderr
        assert time.monotonic() - began >= 1.0
        assert (done.stderr.count("malleable: ") >= 2) == bool(code)


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
