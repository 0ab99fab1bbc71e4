"""Time the replay of the Curie week (9,036 jobs, 5,040 nodes).

Everything counts: reading the log, the run on dedicated nodes, the replay with the defaults that
ship. The goal is under 60 s.
"""

from __future__ import annotations

import sys
import time

from parts.printing import arguments, peak_mib, show, tell, timed
from parts.replay_runs import RESCALES, SETTINGS, Run, measure, with_policy

MOST_S = 60.0


def main() -> int:
    arguments(__doc__).parse_args()
    rows = []
    for policy, tick_s in (("default", SETTINGS.tick.every_s), ("optimum", 0.0)):
        run = Run("curie_2012_thin", policy, 35, RESCALES[0], ends="planned", tick_s=tick_s)
        began = time.process_time()
        _, wall_s = timed(lambda run=run, policy=policy: measure(with_policy(run, policy)))
        cpu_s = time.process_time() - began
        rows.append({"policy": policy, "wall_s": round(wall_s, 1), "cpu_s": round(cpu_s, 1)})
    show("the Curie week", rows)
    return tell("replay-speed", rows[0]["wall_s"] < MOST_S, rows=rows, peak_mib=round(peak_mib()))


if __name__ == "__main__":
    sys.exit(main())
