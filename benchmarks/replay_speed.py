"""How long the Curie week takes (9,036 jobs, 5,040 nodes): `make bench-replay-speed`.

Everything counts: reading the log, the run on dedicated nodes, the replay with the defaults that
ship. The aim is under 60 s; the exit code says whether it was met. Prints one JSON object as its
last line.
"""

from __future__ import annotations

import json
import resource
import sys
import time

from replay_runs import RESCALES, SETTINGS, Run, measure, with_policy

MOST_S = 60.0


def main() -> int:
    """Time the default with known ends, and the published objective event-driven."""
    times = {}
    cpu = {}
    for policy, tick_s in (("default", SETTINGS.tick.every_s), ("optimum", 0.0)):
        start, cpu_start = time.perf_counter(), time.process_time()
        run = Run("curie_2012_thin", policy, 35, RESCALES[0], ends="planned", tick_s=tick_s)
        measure(with_policy(run, policy))
        times[policy] = round(time.perf_counter() - start, 1)
        cpu[policy] = round(time.process_time() - cpu_start, 1)
    fits = times["default"] < MOST_S
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = {"benchmark": "replay-speed", "wall_s": times, "cpu_s": cpu, "peak_mib": round(peak)}
    print(json.dumps({**found, "under_60_s": fits}))
    return 0 if fits else 1


if __name__ == "__main__":
    sys.exit(main())
