"""`make test-pyslurm` where it cannot run: it says what is missing, and builds nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "packaging" / "pyslurm.sh"
UNAVAILABLE = 69


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SCRIPT), *arguments], capture_output=True, text=True, timeout=30, check=False
    )


@pytest.mark.parametrize("arguments", [(), ("",)])
def test_without_a_source(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == UNAVAILABLE
    assert "SLURM_SOURCE=" in done.stderr


def test_with_what_is_no_source(tmp_path: Path) -> None:
    done = run(str(tmp_path))
    assert done.returncode == UNAVAILABLE
    assert done.stderr.startswith("make test-pyslurm: ")
