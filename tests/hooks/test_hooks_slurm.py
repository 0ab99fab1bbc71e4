"""The Epilog in a real Slurm, which tracks processes by their parents there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from waiting import wait_until

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(os.geteuid() != 0, reason="submits as another user, which needs root"),
]
DAEMON = "#!/bin/sh\nsetsid sh -c 'sleep 300 & echo $!' >{pid}\nexit 0\n"


def test_a_daemon_does_not_outlive_its_fragment(sandbox: Any) -> None:
    path = sandbox.work / "epilog_pid"
    script = sandbox.work / "epilog.sh"
    script.write_text(DAEMON.format(pid=path))
    script.chmod(0o755)
    argv = ["sbatch", "--parsable", "--malleable=1-1", "--output=/dev/null", str(script)]
    job = sandbox.run(argv, user="nobody").stdout.strip()
    sandbox.run(["scontrol", "release", f"{job}_0"])
    pid = int(wait_until(lambda: path.exists() and path.read_text().strip()))
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    states = sandbox.run(["sinfo", "-h", "-o", "%T"]).stdout.split()
    assert not [state for state in states if "drain" in state]
