"""The Epilog in a real Slurm, which tracks processes by their parents there."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(os.geteuid() != 0, reason="submits as another user, which needs root"),
]
DAEMON = "#!/bin/sh\nsetsid sh -c 'sleep 300 & echo $!' >{pid}\nexit 0\n"


def wait_for(path: Path) -> int:
    deadline = time.monotonic() + 30
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return int(path.read_text())


def test_a_daemon_does_not_outlive_its_fragment(sandbox: Any) -> None:
    path = sandbox.work / "epilog_pid"
    script = sandbox.work / "epilog.sh"
    script.write_text(DAEMON.format(pid=path))
    script.chmod(0o755)
    argv = ["sbatch", "--parsable", "--malleable=1-1", "--output=/dev/null", str(script)]
    job = sandbox.run(argv, user="nobody").stdout.strip()
    sandbox.run(["scontrol", "release", f"{job}_0"])
    pid = wait_for(path)
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.1)
    states = sandbox.run(["sinfo", "-h", "-o", "%T"]).stdout.split()
    assert not [state for state in states if "drain" in state]
