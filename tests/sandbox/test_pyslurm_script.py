"""`make test-pyslurm` where it cannot run: it says what is missing, and builds nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "packaging" / "pyslurm.sh"
UNAVAILABLE = 69


@pytest.mark.parametrize(("source", "told"), [("", "SLURM_SOURCE="), ("/", "make test-pyslurm: ")])
def test_without_a_source_or_with_what_is_none(source: str, told: str) -> None:
    done = subprocess.run(
        [str(SCRIPT), source], capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == UNAVAILABLE
    assert told in done.stderr
