"""Compare time limits for the elements of `malleable submit` on recorded weeks.

A job of 1 to 16 nodes runs in a preemptible lane. Short limits fit into more holes before planned
starts, and elements leave more often. A training that keeps its state repeats a step at a loss and
none at a leave. A training that has nothing but files repeats all steps since the last file at each
change. Steps are those of a node that makes 86,400 a day alone. `worst` is the smallest share of
the best limit's steps, over both kinds of training and all machines.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace

from parts.lane_week import FILES, JOB, KEEPS, Costs, Lane, Rules
from parts.printing import Row, arguments, show, tell
from parts.replay_runs import record_of

from slurm_hooks.elastic.selfservice.submit import LEASE_S
from slurm_hooks.replay.record import Record

LOGS = ("kth_sp2_1996", "thetagpu_2020", "theta_2022", "curie_2012_thin", "summit")
MINUTES = (2, 5, 10, 15, 30, 60, 120, 240, 480, 720, 1440)
KINDS = {"keeps its state": KEEPS, "has files only": FILES}
Table = dict[str, dict[tuple[str, float], float]]


def steps(record: Record, minutes: float, costs: Costs) -> float:
    """Return the steps of a day."""
    return Lane(record, Rules(JOB.max_nodes, 1, 60 * minutes), costs).run().steps_a_day


def unplanned(record: Record) -> Record:
    """Return the record without planned starts."""
    return replace(record, intervals=tuple(replace(i, known_s=math.inf) for i in record.intervals))


def worst(table: Table, minutes: float) -> float:
    """Return the smallest share of what the best limit brings."""
    cells = {(kind, log) for kind, row in table.items() for log, _ in row}
    return min(
        table[kind][log, minutes]
        / max(value for (other, _), value in table[kind].items() if other == log)
        for kind, log in cells
    )


def rows_of(table: Table, kind: str, logs: Sequence[str], minutes: Sequence[float]) -> list[Row]:
    """Return the printed rows of a kind of training."""
    return [
        {
            "limit_min": each,
            **{log: f"{table[kind][log, each]:,.0f}" for log in logs},
            "worst": round(worst(table, each), 3),
        }
        for each in minutes
    ]


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--logs", nargs="+", default=LOGS, choices=LOGS, help="machines")
    parser.add_argument("--minutes", nargs="+", type=float, default=MINUTES, help="limits")
    parser.add_argument("--unplanned", action="store_true", help="Slurm plans no start")
    options = parser.parse_args()
    change = unplanned if options.unplanned else lambda record: record
    records = {log: change(record_of(log)) for log in options.logs}
    table = {
        kind: {
            (log, each): steps(record, each, costs)
            for log, record in records.items()
            for each in options.minutes
        }
        for kind, costs in KINDS.items()
    }
    rows = {kind: rows_of(table, kind, options.logs, options.minutes) for kind in KINDS}
    for kind in KINDS:
        show(f"steps a day of a training that {kind}", rows[kind])
    best = max(options.minutes, key=lambda each: worst(table, each))
    show("the limit", [{"shipped_min": LEASE_S / 60, "best_of_the_worst_min": best}])
    return tell("lease", rows=rows, best=best)


if __name__ == "__main__":
    sys.exit(main())
