"""What the Epilog costs a job that is not ours, beside the shell that does nothing at all.

Run: python benchmarks/hooks.py; the last line is one JSON object. Pairs, one after the other.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time

from slurm_hooks.hooks import EPILOG

RUNS = 300
NOTHING = ("/bin/sh", "-c", ":")
ENVIRONMENT = {"SLURM_JOB_ID": "1", "SLURM_JOB_UID": "65534"}


def seconds(argv: tuple[str, ...]) -> float:
    """Wall time of one run, fork and exec included."""
    began = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, ENVIRONMENT)
    _, status = os.waitpid(pid, 0)
    if status:
        raise SystemExit(f"{' '.join(argv)} ended with {status}")
    return time.perf_counter() - began


def main() -> None:
    hooks = {"epilog": (str(EPILOG),)}
    subprocess.run(NOTHING, check=True)
    result = {}
    for name, argv in hooks.items():
        pairs = [(seconds(argv), seconds(NOTHING)) for _ in range(RUNS)]
        mine, bare = zip(*pairs)
        result[name] = {
            "median_ms": round(1e3 * statistics.median(mine), 3),
            "bare_shell_ms": round(1e3 * statistics.median(bare), 3),
            "median_ratio": round(statistics.median(a / b for a, b in pairs), 3),
        }
        print(name, result[name])
    print(json.dumps(result))


if __name__ == "__main__":
    main()
