"""Check the replay against the reference table of BFTrainer's rules.

First half of the Summit log, columns 0 to 1023, endless ShuffleNet queue, event-driven, look-ahead
120 s. Every value has to be within .004.
"""

from __future__ import annotations

import sys

from parts.printing import arguments, show, tell
from parts.replay_runs import PUBLISHED_T_FWD_S, Run, label, measure

from slurm_hooks.replay.costs import Rescale

WITHIN = 0.004
CASES = (
    ("equal", Rescale(18.0, 12.0), (0.803, 0.863)),
    ("optimum", Rescale(18.0, 12.0), (0.878, 0.931)),
    ("optimum", Rescale(1.0, 0.7), (0.921, 0.963)),
    ("optimum", Rescale(0.0, 0.0), (0.924, 0.965)),
)


def main() -> int:
    arguments(__doc__).parse_args()
    rows = []
    for policy, rescale, wanted in CASES:
        for jobs, target in zip((10, 35), wanted):
            run = Run("summit", policy, jobs, rescale, t_fwd_s=PUBLISHED_T_FWD_S)
            line = measure(run)
            rows.append(
                {
                    "policy": policy,
                    "rescale_s": label(rescale),
                    "jobs": jobs,
                    "reference": target,
                    "efficiency": round(line["efficiency"], 4),
                    "agrees": abs(line["efficiency"] - target) <= WITHIN,
                    "wall_s": round(line["wall_s"], 1),
                }
            )
    show("the published rules", rows)
    return tell("replay-reference", all(row["agrees"] for row in rows), rows=rows)


if __name__ == "__main__":
    sys.exit(main())
