"""Pauses of frameworks' trainings at changes of size: growth by one, one that leaves with notice,
one that is killed. Several torchrun agents on this host, without Slurm; run by the Python that has
the frameworks: build/frameworks/bin/python benchmarks/frameworks.py [--changes 3]

With --job-path the job gets that directory, of an older version, say; --plain gives Lightning's
script the right number of nodes itself, which older versions need.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from elastic.gang import Gang  # noqa: E402
from slurm_hooks.jobpath import write_job_path  # noqa: E402

SCRIPTS = ROOT / "tests" / "frameworks"
LONG, PATIENCE_S, WARM_S = 1_000_000, 200.0, 10.0


def pause(gang: Gang, since: float, world: int) -> float:
    """The longest time without a step around a change, until a second after the first step of the
    new world."""
    first = gang.wait_world(world, since=since, timeout=PATIENCE_S)
    time.sleep(1.0)
    times = [t for t, _, _ in gang.steps() if since - 2.0 < t <= first]
    return max(b - a for a, b in zip(times, times[1:]))


def grow(gang: Gang, fragment: int) -> tuple[float, int]:
    gang.start(fragment, "1:3", LONG)
    return time.time(), 2


def notice(gang: Gang, fragment: int) -> tuple[float, int]:
    return gang.notify(fragment), 1


def kill(gang: Gang, fragment: int) -> tuple[float, int]:
    gang.cut_off(fragment, signal.SIGKILL)
    return time.time(), 1


def measure(job_path: Path, script: str, changes: int, extra: dict[str, str]) -> dict[str, float]:
    """Medians by kind of change."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as work:
        gang = Gang(job_path, Path(work))
        gang.script, gang.extra = SCRIPTS / script, extra
        try:
            gang.start(1, "1:3", LONG)
            gang.wait_world(1, timeout=PATIENCE_S)
            for fragment in range(2, 2 + 2 * changes):
                for change in (grow, kill if fragment % 2 else notice):
                    time.sleep(WARM_S)
                    since, world = change(gang, fragment)
                    found.setdefault(change.__name__, []).append(pause(gang, since, world))
        finally:
            gang.stop()
    return {kind: round(statistics.median(values), 2) for kind, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job-path", type=Path)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--changes", type=int, default=3)
    parser.add_argument("scripts", nargs="*", default=["lightning", "trainer"])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        job_path = asked.job_path or write_job_path(Path(place) / "jobpath")
        extra = {"TRAIN_NODES": "GROUP_WORLD_SIZE"} if asked.plain else {}
        found = {
            name: measure(job_path, f"train_{name}.py", asked.changes, extra)
            for name in asked.scripts
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
