"""Run squeue, with times in epoch seconds."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from slurm_hooks.elastic.log import debug

TIMEOUT_S = 5.0


def answer(command: Sequence[str]) -> str:
    """Return the output of the command, empty if it fails or does not answer within seconds.

    Options that the user has set for squeue, such as SQUEUE_PARTITION, would hide fragments.
    """
    known = {name: value for name, value in os.environ.items() if not name.startswith("SQUEUE_")}
    try:
        done = subprocess.run(
            command,
            env={**known, "SLURM_TIME_FORMAT": "%s"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        debug(" ".join(command), error)
        return ""
    if done.returncode:
        debug(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()}")
        return ""
    return done.stdout
