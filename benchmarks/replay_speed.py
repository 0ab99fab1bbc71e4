"""Time the replay of a week of Summit: 400 nodes, and with --wide 1,024.

All parts count: reading the log, the run on dedicated nodes, and the replay with the shipped
defaults, for 10 jobs. The goals are two minutes and ten minutes of a single core.
"""

from __future__ import annotations

import sys
import time

from parts.printing import arguments, peak_mib, show, tell, timed
from parts.replay_runs import RESCALES, SETTINGS, Run, measure

MOST_S = {"summit-400": 120.0, "summit": 600.0}


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--wide", action="store_true", help="1,024 nodes too")
    logs = list(MOST_S) if parser.parse_args().wide else list(MOST_S)[:1]
    rows = []
    for log in logs:
        run = Run(log, "default", 10, RESCALES[0], tick_s=SETTINGS.tick.every_s)
        began = time.process_time()
        line, wall_s = timed(lambda run=run: measure(run))
        cpu_s = time.process_time() - began
        row = {"log": log, "wall_s": round(wall_s, 1), "cpu_s": round(cpu_s, 1)}
        plans = line["solve_s"]["count"]
        rows.append({**row, "plans": plans, "is_met": cpu_s < MOST_S[log]})
    show("a week of Summit", rows)
    is_met = all(row["is_met"] for row in rows)
    return tell("replay-speed", is_met, rows=rows, peak_mib=round(peak_mib()))


if __name__ == "__main__":
    sys.exit(main())
