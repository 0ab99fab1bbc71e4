"""Replay three simulated weeks of a shared GPU cluster, by whole nodes and by GPUs.

Nodes have 8 GPUs. The queue has seven models on 1 to 64 GPUs, 35 jobs at a time. A rescale costs
0.3 s up and 0.35 s down. Ticks run every 5 s, the latency is 1 s, and checkpoints are written every
second. U is the work done, relative to the same queue on as many dedicated GPUs as are idle on
average.

The bound is event-driven: each GPU is a node, and each change brings a decision at once. By GPUs,
without manners, U must be at least .95 of it. Manners are GPUs that are left free on partly used
nodes, and parts that leave once a node stays idle.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from papers import scenario as events
from parts.printing import arguments, show, tell, timed
from parts.replay_runs import MEASURED, SETTINGS, data, queue_of

from slurm_hooks.replay import scenario
from slurm_hooks.replay.dedicated import reference
from slurm_hooks.replay.record import Record
from slurm_hooks.replay.result import result
from slurm_hooks.replay.scenario import Conditions, Source

FILES = ("full_64x8", "best_70x8", "spread_70x8")
UNITS = {"node": 0, "4gpu": 4, "2gpu": 2, "gpu": 1}
GOAL = 0.95
SMALL_CHECKPOINT_S = 1.0
NO_HEADROOM = replace(SETTINGS, plan=replace(SETTINGS.plan, headroom_gpus=0))


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--files", nargs="+", choices=FILES, default=FILES)
    parser.add_argument("--units", nargs="+", choices=UNITS, default=tuple(UNITS))
    parser.add_argument("--manners", nargs="+", choices=("off", "on"), default=("off", "on"))
    parser.add_argument("--from", dest="from_s", type=float, help="leave out what was before")
    parser.add_argument("--to", dest="to_s", type=float, help="leave out what comes after")
    given = parser.parse_args()
    rows = []
    for name in given.files:
        log = scenario.load(Source("slots", data() / "gpu-holes" / f"{name}.csv.gz"), print)
        record = scenario.window(log, given.from_s, given.to_s)
        bound = _bound(record)
        rows.append({"file": name, "unit": "bound", "manners": "", **bound, "of bound": 1.0})
        for unit in given.units:
            for manners in given.manners if UNITS[unit] else ("off",):
                line = _replayed(record, UNITS[unit], manners == "on")
                share = round(line["U"] / bound["U"], 4)
                row = {"file": name, "unit": unit, "manners": manners, **line, "of bound": share}
                rows.append(row)
                print(row, file=sys.stderr, flush=True)
    show("holes of nodes of 8 GPUs", rows)
    free = (r for r in rows if (r["unit"], r["manners"]) == ("gpu", "off"))
    return tell("gpu-holes", all(row["of bound"] >= GOAL for row in free), rows=rows)


def _conditions(unit: int = 0, has_manners: bool = True) -> Conditions:
    return Conditions(
        queue=queue_of("mix7"),
        jobs=35,
        rescale=MEASURED,
        t_fwd_s=SETTINGS.plan.horizon_s,
        tick_s=5.0,
        latency_s=1.0,
        checkpoint_s=SMALL_CHECKPOINT_S,
        unit=unit,
        has_manners=has_manners,
    )


def _bound(record: Record) -> dict[str, Any]:
    """The bound: each GPU is a separate node, and no work is done again after an interruption."""
    conditions = replace(_conditions(), latency_s=0.0, checkpoint_s=0.0, ends="unknown")
    return _line(lambda r: events.run("default", r, conditions, SETTINGS), _apart(record))


def _replayed(record: Record, unit: int, has_manners: bool) -> dict[str, Any]:
    settings, conditions = SETTINGS if has_manners else NO_HEADROOM, _conditions(unit, has_manners)
    return _line(lambda r: scenario.run("default", r, conditions, settings), record)


def _line(play: Any, record: Record) -> dict[str, Any]:
    outcome, wall_s = timed(lambda: play(record))
    figures = result(outcome, record, reference(record, queue_of("mix7"), 35))
    return {
        "U": round(figures["efficiency"], 4),
        "images/s": round(figures["images_per_s"]),
        "used": round(figures["used_share"], 4),
        "interruptions": figures["preemptions"],
        "rescales": figures["rescales"],
        "plans": figures["solve_s"]["count"],
        "wall_s": round(wall_s),
    }


def _apart(record: Record) -> Record:
    """The record in which each idle time of a slot belongs to a separate node."""
    apart = tuple(replace(interval, node=at) for at, interval in enumerate(record.intervals))
    return replace(record, intervals=apart, nodes=len(apart), slots=1)


if __name__ == "__main__":
    sys.exit(main())
