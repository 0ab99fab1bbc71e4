"""Run Slurm's commands for the user's own job."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

LIMIT_S = 30.0


def tell(*argv: str) -> str:
    """Run a command. Return why it failed, empty if it did not."""
    return ask(*argv)[1]


def ask(*argv: str, limit_s: float = LIMIT_S) -> tuple[str, str]:
    """Run a command. Return what it printed, and why it failed, empty if it did not."""
    try:
        done = run(argv, limit_s)
    except FileNotFoundError:
        return "", f"{argv[0]} is not in PATH; this host has no Slurm commands"
    except subprocess.TimeoutExpired:
        return "", f"{argv[0]} did not answer within {limit_s:.0f} s; look at `squeue --me`"
    except (OSError, subprocess.SubprocessError) as error:
        return "", str(error)
    why = done.stderr.strip() or f"{argv[0]}: exit code {done.returncode}"
    return done.stdout, why if done.returncode else ""


def run(argv: Sequence[str], limit_s: float) -> subprocess.CompletedProcess[str]:
    """Run a command without input. What the user has set for squeue or sacct would hide elements,
    and sbatch would wait. Raises OSError, SubprocessError.
    """
    hides = ("SQUEUE_", "SACCT_", "SINFO_", "SBATCH_WAIT")
    return subprocess.run(
        argv,
        env={name: value for name, value in os.environ.items() if not name.startswith(hides)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=limit_s,
        check=False,
    )
