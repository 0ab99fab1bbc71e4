"""What `make install` lays out: readable by everybody, and naming paths that exist."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parents[2]
CRON = TREE / "etc" / "cron" / "slurm-malleable"


@pytest.mark.parametrize(
    ("told", "code", "mailed"),
    [
        ("echo all well; echo odd >&2", 0, ""),
        ("echo busy >&2", 75, ""),
        ("echo work; echo no tick for long >&2", 69, "no tick for long\n"),
        ("echo 5 mistakes >&2", 78, "5 mistakes\n"),
    ],
)
def test_cron_mails_failures_and_nothing_else(
    tmp_path: Path, told: str, code: int, mailed: str
) -> None:
    program = tmp_path / "malleable"
    program.write_text(f"#!/bin/sh\n{told}\nexit {code}\n")
    program.chmod(0o755)
    (line,) = (text for text in CRON.read_text().splitlines() if text.startswith("*"))
    assert "%" not in line  # cron reads it as the end of the line
    command = line.split(" root ", 1)[1].replace("@BINDIR@", str(tmp_path))
    done = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, timeout=20, check=False
    )
    assert (done.stdout, done.stderr) == (mailed, "")
