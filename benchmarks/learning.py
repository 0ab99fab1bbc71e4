"""Measure the loss because the curves of jobs are unknown.

The holes are recorded, the replay is event-driven, and the advisor does not see the true curves. A
job reports the rate of a size after a few steady seconds there, 3 % off. The alternatives are equal
shares, linear until known, and the largest size first. All are relative to the allocation by the
true curves. `short` is a queue of many short jobs, `search` a search with early stopping.
"""

from __future__ import annotations

import csv
import math
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papers import scenario as events
from papers.question import Learnt
from parts.printing import SAY, arguments, show, tell
from parts.replay_runs import RESCALES, SETTINGS, data, record_of

from slurm_hooks.model import Curve
from slurm_hooks.replay import scenario
from slurm_hooks.replay.outcome import Outcome
from slurm_hooks.replay.record import Record
from slurm_hooks.replay.scenario import Conditions
from slurm_hooks.replay.work import Kind, Queue, kind, read_queue, read_scaling

TRUE, LEARNED = "default", "learned"
OTHERS = ("equal", "linear", "descending")
GOALS = {"summit": 0.97, "sia": 0.96}
MOST_PROBING = 0.02
JOB_NODE_S = 54_000.0  # work of a job of the Sia queue, in seconds of a single node
SHORT_NODE_S = 3_000.0
PARTS = ("shufflenet", "mix7", "sia", "short", "search")


@dataclass(frozen=True)
class Case:
    """A queue on the holes of Summit, with so many jobs at the same time."""

    name: str
    jobs: int
    queue: Queue
    shares_family: bool = False


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--span", type=float, default=math.inf, help="seconds of the log")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to run")
    parser.add_argument("--jobs", type=int, nargs="+", default=(10, 35), help="at once")
    options = parser.parse_args()
    whole = record_of("summit")
    record = scenario.window(whole, None, min(whole.from_s + options.span, whole.to_s))
    rows = []
    for case in _cases(options.only, options.jobs):
        SAY.print(f"{case.name}, {case.jobs} jobs")
        rows.append(_measured(case, record))
    if "short" in options.only:
        rows.append(_short(record))
    if "search" in options.only:
        rows += [_search(record, jobs) for jobs in options.jobs]
    for row in rows:
        show(f"{row['queue']}, {row['jobs']} jobs", [row])
    return tell("learning", all(row.get("reached", True) for row in rows), rows=rows)


def _cases(parts: Iterable[str], jobs: Iterable[int]) -> list[Case]:
    scaling = read_scaling(data() / "bftrainer" / "dnn_scaling.json")
    sia = sia_curves(data() / "sia")
    queues = {name: read_queue(name, scaling, 1) for name in ("shufflenet", "mix7")}
    queues["sia"] = Queue(tuple(_sized(n, c) for n, c in sia.items()), seed=1)
    return [Case(part, n, queues[part]) for part in parts if part in queues for n in jobs]


def sia_curves(folder: Path) -> dict[str, Curve]:
    """Samples/s over nodes of four GPUs, a curve for each model and local batch: `bert-8`."""
    by_name: dict[str, dict[int, float]] = defaultdict(lambda: {0: 0.0})
    for path in sorted(folder.glob("*-aws.csv")):
        with path.open(encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                nodes, batch = _nodes(row), int(row["local_bsz"])
                if nodes:
                    rate = 4 * nodes * batch / float(row["step_time"])
                    by_name[f"{path.name.split('-')[0]}-{batch}"][nodes] = rate
    whole = {name: points for name, points in by_name.items() if 1 in points and 16 in points}
    return {name: Curve(tuple(sorted(points.items()))) for name, points in sorted(whole.items())}


def _nodes(row: Mapping[str, str]) -> int:
    """Nodes of a row whose nodes are all full, or else 0."""
    if "placement" in row:
        return len(row["placement"]) if set(row["placement"]) == {"4"} else 0
    nodes = int(row["num_nodes"])
    return nodes if int(row["num_replicas"]) == 4 * nodes else 0


def _sized(name: str, curve: Curve, node_s: float = JOB_NODE_S) -> Kind:
    return kind(name, curve, (1, curve.points[-1][0]), curve(1) * node_s)


def model_of(name: str) -> str:
    """The model of a curve: `bert` of `bert-8`."""
    return name.split("-", maxsplit=1)[0]


def _conditions(case: Case) -> Conditions:
    return Conditions(
        queue=case.queue,
        jobs=case.jobs,
        rescale=RESCALES[0],
        t_fwd_s=SETTINGS.plan.horizon_s,
        tick_s=0.0,
        latency_s=0.0,
        checkpoint_s=0.0,
        ends="unknown",
        shares_family=case.shares_family,
    )


def _run(case: Case, record: Record, policy: str) -> Outcome:
    return events.run(policy, record, _conditions(case), SETTINGS)


def done(outcome: Outcome, queue: Queue) -> float:
    """Images, relative to the images of the model on 1 node in a second, so that models
    count equally.
    """
    unit = {k.name: k.rates[k.min_nodes] / k.min_nodes for k in queue.kinds}
    return math.fsum(images / unit[name] for name, images in outcome.ledger.images.items())


def _measured(case: Case, record: Record) -> dict[str, Any]:
    """All ways, relative to the true curves: in images, and with all models counting equally."""
    row: dict[str, Any] = {"queue": case.name, "jobs": case.jobs}
    began, base, alike = time.process_time(), 0.0, 0.0
    for policy in (TRUE, LEARNED, *OTHERS):
        outcome = _run(case, record, policy)
        images = math.fsum(outcome.ledger.images.values())
        base, alike = base or images, alike or done(outcome, case.queue)
        row[policy] = round(images / base, 4)
        row[f"{policy}_alike"] = round(done(outcome, case.queue) / alike, 4)
        if policy == LEARNED:
            row.update(_spent(outcome))
    row["cpu_s"] = round(time.process_time() - began, 1)
    worst = min(row[LEARNED], row[f"{LEARNED}_alike"])
    goal = GOALS["sia" if case.name == "sia" else "summit"]
    row["reached"] = worst >= goal and row["probing"] < MOST_PROBING
    return row


def _spent(outcome: Outcome) -> dict[str, Any]:
    assert isinstance(outcome, Learnt)
    spent = outcome.spent
    return {
        "probing": round(spent.probed_node_s / max(spent.node_s, 1.0), 4),
        "looks": spent.looks,
        "learners": spent.jobs,
        "looked_at": spent.jobs_probed,
    }


def _short(record: Record) -> dict[str, Any]:
    """A thousand short jobs of a single script."""
    scaling = read_scaling(data() / "bftrainer" / "dnn_scaling.json")
    short = _sized("shufflenet", scaling["shufflenet"], SHORT_NODE_S)
    queue = Queue((short,) * 1000, is_endless=False)
    case = Case("short", 10, queue, shares_family=True)
    known, learned = (_run(case, record, policy) for policy in (TRUE, LEARNED))
    spent = _spent(learned)
    return {
        "queue": case.name,
        "jobs": case.jobs,
        **spent,
        "makespan_s": {TRUE: round(known.last_done_s), LEARNED: round(learned.last_done_s)},
        "reached": _all(learned) == 1000,
    }


TRIALS = 243


def _search(record: Record, jobs: int) -> dict[str, Any]:
    """Trials of a search with asynchronous successive halving: a third reaches the next rung.

    Each rung has three times the work. Batch sizes differ, and so do the curves. Trials of the same
    batch size are a family.
    """
    draw = random.Random(1)
    sia = {n: c for n, c in sia_curves(data() / "sia").items() if model_of(n) == "imagenet"}
    parts = []
    for _ in range(TRIALS):
        name = draw.choice(sorted(sia))
        fate = draw.random()
        share = 1 / 27 if fate > 1 / 3 else 1 / 9 if fate > 1 / 9 else 1 / 3 if fate > 1 / 27 else 1
        parts.append(_sized(name, sia[name], 4 * JOB_NODE_S * share))
    case = Case("search", jobs, Queue(tuple(parts), is_endless=False), shares_family=True)
    outcomes = {p: _run(case, record, p) for p in (TRUE, LEARNED, *OTHERS)}
    ended = {p: o.last_done_s if _all(o) == TRIALS else math.inf for p, o in outcomes.items()}
    return {
        "queue": case.name,
        "jobs": jobs,
        **_spent(outcomes[LEARNED]),
        "makespan_s": {p: round(s) if math.isfinite(s) else None for p, s in ended.items()},
        "of_equal": round(ended[LEARNED] / ended["equal"], 4)
        if ended["equal"] < math.inf
        else None,
    }


def _all(outcome: Outcome) -> int:
    return sum(map(len, outcome.job_s.values()))


if __name__ == "__main__":
    sys.exit(main())
