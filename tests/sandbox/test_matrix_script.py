"""What `make test-matrix` says on a host that cannot run it: why, and that nothing was tested."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "packaging" / "matrix.sh"
CANNOT = 69  # EX_UNAVAILABLE
USED = ("sh", "cat", "chroot", "cksum", "dirname", "tar", "timeout")


@pytest.mark.parametrize(
    ("uid", "unshare", "told", "argument"),
    [
        (1000, "exit 0", "needs root", ""),
        (0, "exit 1", "may not make namespaces", "--if-possible"),
        (0, "exit 0", "needs debootstrap", ""),
    ],
)
def test_a_host_that_cannot_is_told_why(
    tmp_path: Path, uid: int, unshare: str, told: str, argument: str
) -> None:
    for program in USED:
        found = shutil.which(program)
        assert found, program
        (tmp_path / program).symlink_to(found)
    write_program(tmp_path / "id", f"echo {uid}")
    write_program(tmp_path / "unshare", unshare)
    env = {"PATH": str(tmp_path), "MATRIX_RELEASES": "none-of-these"}
    argv = [str(SCRIPT), *argument.split()]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == (0 if argument else CANNOT)
    said, nothing = (done.stdout, done.stderr) if argument else (done.stderr, done.stdout)
    assert told in said
    assert ("skipped" in said) == bool(argument)
    assert not nothing


def write_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
