"""Run Slurm's commands for the user's own job.

A user's settings of squeue and sacct would hide elements, and SBATCH_WAIT would make sbatch wait.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from slurm_hooks.elastic.log import debug

LIMIT_S = 30.0
ANSWER_S = 5.0  # for a question that is asked again
_HIDE = ("SQUEUE_", "SACCT_", "SINFO_", "SBATCH_WAIT")


def answer(command: Sequence[str]) -> str:
    """Return what the command printed, with times in epoch seconds. It is empty if the command
    fails or does not answer within seconds.
    """
    said, why = _run(command, ANSWER_S, {"SLURM_TIME_FORMAT": "%s"})
    if why:
        debug(f"{' '.join(command)}: {why}")
    return "" if why else said


def tell(*argv: str) -> str:
    """Run a command. Return why it failed, empty if it did not."""
    return ask(*argv)[1]


def ask(*argv: str, limit_s: float = LIMIT_S) -> tuple[str, str]:
    """Run a command. Return what it printed, and why it failed, empty if it did not."""
    return _run(argv, limit_s, {})


def _run(argv: Sequence[str], limit_s: float, env: dict[str, str]) -> tuple[str, str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith(_HIDE)}
    try:
        done = subprocess.run(
            argv,
            env={**known, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except FileNotFoundError:
        return "", f"{argv[0]} is not in PATH; this host has no Slurm commands"
    except subprocess.TimeoutExpired:
        return "", f"{argv[0]} did not answer within {limit_s:.0f} s"
    except (OSError, subprocess.SubprocessError) as error:
        return "", str(error)
    why = done.stderr.strip() or f"{argv[0]}: exit code {done.returncode}"
    return done.stdout, why if done.returncode else ""
