"""What the ledger adds to a tick: a machine with running fragments, a tick every 30 seconds.

Run: python benchmarks/ledger.py [--ticks N] [DIRECTORY]; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from tick_plan import snapshot

from slurm_hooks.bookkeeping import keep_books
from slurm_hooks.model import MalleableJob, Snapshot
from slurm_hooks.planning.plan import make_plan
from slurm_hooks.report.tick import TickReport
from slurm_hooks.settings import Settings
from slurm_hooks.slurm.recorded import Recorded

SIZES = ((1000, 16), (5000, 150))  # nodes, jobs of 64 fragments each, half of them running
STEP = timedelta(seconds=30)


def main() -> None:
    parser = argparse.ArgumentParser(description="What the ledger adds to a tick.")
    parser.add_argument("--ticks", type=int, default=60)
    parser.add_argument("directory", nargs="?", help="where the ledger is written")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as place:
        rows = [measure(Path(place), *size, options.ticks) for size in SIZES]
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))
    print(json.dumps(rows))


def measure(place: Path, nodes: int, jobs: int, ticks: int) -> dict[str, object]:
    """CPU milliseconds of each tick's bookkeeping, with metrics in a file and without."""
    seen = snapshot(nodes, jobs, 64)
    plain = settings_in(place / f"{nodes}")
    told = replace(plain, metrics=replace(plain.metrics, textfile=str(place / "malleable.prom")))
    plain_ms, size = run(seen, plain, ticks)
    told_ms, _ = run(seen, told, ticks)
    return {
        "nodes": nodes,
        "fragments": sum(len(job.fragments) for job in seen.jobs),
        "running": sum(len(job.active) for job in seen.jobs),
        "ledger_cpu_ms": round(statistics.median(plain_ms), 1),
        "with_textfile_cpu_ms": round(statistics.median(told_ms), 1),
        "bytes_a_tick": size,
    }


def settings_in(place: Path) -> Settings:
    shipped = Settings()
    return replace(shipped, tick=replace(shipped.tick, state_dir=str(place)))


def run(seen: Snapshot, settings: Settings, ticks: int) -> tuple[list[float], int]:
    """Ticks that follow each other; in each, one fragment of every job has been preempted."""
    found = []
    path = Path(settings.tick.state_dir, "ledger.sqlite")
    before = path.stat().st_size if path.exists() else 0
    plan = make_plan(seen, settings, time.process_time)
    for number in range(ticks):
        now = replace(seen, now=seen.now + number * STEP, jobs=later(seen.jobs, number))
        report = TickReport(now.now, plan, now, (), (), 0.1, is_dry=False)
        began = time.process_time()
        warnings = keep_books(report, settings, Recorded({"squeue": ""}))
        found.append((time.process_time() - began) * 1000)
        assert warnings == (), warnings
    return found, (path.stat().st_size - before) // ticks


def later(jobs: tuple[MalleableJob, ...], number: int) -> tuple[MalleableJob, ...]:
    """The jobs with the run of one fragment of each begun anew."""
    done = []
    for job in jobs:
        index = number % len(job.fragments)
        anew = replace(job.fragments[index], restarts=number)
        fragments = (*job.fragments[:index], anew, *job.fragments[index + 1 :])
        done.append(replace(job, fragments=fragments))
    return tuple(done)


if __name__ == "__main__":
    main()
