"""Measure the Epilog's cost for an ordinary job, beside an empty shell."""

from __future__ import annotations

import os
import sys
import time
from functools import partial

from parts.printing import arguments, in_turns, middle, seconds_of, show, tell

from slurm_hooks.hooks import EPILOG

NOTHING = ("/bin/sh", "-c", ":")
ENVIRONMENT = {"SLURM_JOB_ID": "1", "SLURM_JOB_UID": "65534"}


def start(argv: tuple[str, ...]) -> None:
    """Run a program to its end, fork and exec included."""
    pid = os.posix_spawn(argv[0], argv, ENVIRONMENT)
    if os.waitpid(pid, 0)[1]:
        raise SystemExit(f"{' '.join(argv)} failed")


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=300, help="pairs")
    runs = parser.parse_args().runs
    hook, bare = (
        partial(seconds_of, partial(start, argv), time.perf_counter)
        for argv in ((str(EPILOG),), NOTHING)
    )
    pairs = in_turns(hook, bare, runs)
    row = {
        "epilog_ms": middle(1e3 * mine for mine, _ in pairs),
        "bare_shell_ms": middle(1e3 * shell for _, shell in pairs),
        "median_ratio": middle(mine / shell for mine, shell in pairs),
    }
    show("the Epilog of a job that is not ours", [row])
    return tell("hooks", **row)


if __name__ == "__main__":
    sys.exit(main())
