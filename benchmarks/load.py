"""Compare how long ordinary jobs wait on two Slurms, only the second with malleable jobs.

Both clusters get the same random rigid jobs at the same moments. The malleable jobs only sleep, so
they ignore every notice. Single delays vary in both directions: with fragments on some nodes, jobs
start on other nodes, and a different choice reorders the rest. So the first job in the queue is
watched too: it must not wait while our nodes, with the idle nodes, would suffice. A job counts as
urgent if it starts at once without malleable jobs, else as planned. Its script notes the start.
Exit code 1 if a promise broke.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Optional

from parts.live_slurm import CHEAP, SLEEPER, configure, port, submitted, ticks
from parts.printing import SAY, arguments, show, tell

from slurm_hooks.model import FragmentState, NodeState, Snapshot
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.project import project_spec
from slurm_hooks.slurm.gateway import observe
from slurm_hooks.slurm.live import Live
from slurm_hooks.slurm.text import Command, parse_limit

TICK_S = 5
KILL_WAIT_S = 5
CLOCK_S = 3.0  # two clusters, whole seconds, a scheduler that looks once a second
FIRST = "-OJobArrayID:|,NumNodes:|,TimeLimit:|"
AT_ONCE_S = 2.0  # a job that starts within that time on a Slurm without us found free nodes
AS_EMPTY_S = 0.5


@dataclass(frozen=True)
class Load:
    """The shape of ordinary jobs: seconds between two submissions, limits in minutes.

    It also has the share of its limit for which a job runs.
    """

    every_s: tuple[float, float]
    limits: tuple[int, ...]
    share: tuple[float, float]


LOADS = {
    "long": Load((6, 16), (1, 1, 2, 3), (0.3, 0.95)),
    "short": Load((2, 6), (1, 1, 2), (0.05, 0.2)),
}


@dataclass(frozen=True)
class Asked:
    """An ordinary job on a cluster: its id, and the time of its submission."""

    id: str
    at: float


@dataclass
class Watch:
    """The results of the samples. `broken` maps a promise to its worst case in seconds."""

    broken: dict[str, float] = field(default_factory=dict)
    used_node_s: float = 0.0
    waiting: dict[str, datetime] = field(default_factory=dict)

    def look(self, port: Live, since_s: float) -> None:
        """Take a sample of the cluster with malleable jobs."""
        seen = observe(port, ["malleable"])
        on_nodes = (FragmentState.RUNNING, FragmentState.ENDING)
        fragments = [f for j in seen.jobs for f in j.fragments if f.state in on_nodes]
        self.used_node_s += since_s * sum(len(f.nodes) for f in fragments)
        for fragment in fragments:
            if fragment.end is not None and fragment.state is FragmentState.RUNNING:
                self._note(f"lease of {fragment.id}", (seen.now - fragment.end).total_seconds() - 1)
            for booked in seen.reservations:
                if fragment.nodes & booked.nodes and booked.start <= seen.now < booked.end:
                    late = (seen.now - booked.start).total_seconds()
                    self._note(f"reservation {booked.name}, {fragment.id}", late)

        self._look_at_first(port, seen, {n for f in fragments for n in f.nodes})

    def _look_at_first(self, port: Live, seen: Snapshot, ours: set[str]) -> None:
        """Check that the first job in the queue does not wait for nodes that it could take
        from us.
        """
        argv = ("squeue", "-h", "-p", "main", "--states=PENDING", "--sort=i", FIRST)
        rows = [line.split("|") for line in port.ask(Command(argv)).splitlines()]
        waiting = {}
        for job, nodes, limit, *_ in rows[:1]:
            until = seen.now + (parse_limit(limit.strip()) or timedelta(0))
            booked = {n for r in seen.reservations if r.start < until for n in r.nodes}
            idle = {n.name for n in seen.nodes if n.state is NodeState.FREE}
            if len((idle | ours) - booked) >= int(nodes):
                since = self.waiting.get(job, seen.now)
                waiting[job] = since
                over_s = (seen.now - since).total_seconds() - KILL_WAIT_S - CLOCK_S
                self._note(f"job {job} waited for nodes of ours", over_s)
        self.waiting = waiting

    def _note(self, what: str, over_s: float) -> None:
        if over_s > 0:
            self.broken[what] = max(over_s, self.broken.get(what, 0.0))


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--minutes", type=float, default=5, help="of load")
    parser.add_argument("--seed", type=int, default=1, help="of the load")
    parser.add_argument("--nodes", type=int, default=16, help="of each Slurm")
    parser.add_argument("--jobs", choices=LOADS, default="long", help="ordinary jobs")
    parser.add_argument(
        "--interruptions", choices=("dear", "cheap"), default="dear", help="as agents tell"
    )
    options = parser.parse_args()
    spec = project_spec(nodes=options.nodes, kill_wait_s=KILL_WAIT_S)
    with Sandbox.up(spec) as box, Sandbox.up(spec) as twin:
        configure(box, lease_s=120, notice_s=5, tick=f"every_s = {TICK_S}\n")
        chance = random.Random(options.seed)
        is_cheap, load = options.interruptions == "cheap", LOADS[options.jobs]
        result = play(box, twin, options.minutes * 60, load, is_cheap, chance)
    return tell("load", not result["broken"], **vars(options), **result)


def play(
    box: Sandbox, twin: Sandbox, seconds: float, load: Load, is_cheap: bool, chance: random.Random
) -> dict[str, Any]:
    """Run the load and report."""
    text = SLEEPER.replace("exec", f"{CHEAP}exec") if is_cheap else SLEEPER
    (box.work / "job.sh").write_text(text)
    for request in requests(len(box.nodes)):
        submitted(box, f"--malleable={request}", "--output=/dev/null", "job.sh")
    watch, slurm = Watch(), port(box)
    pairs: list[tuple[Asked, Asked]] = []
    with ticks(box, str(TICK_S)):
        began = last = time.monotonic()
        due = book = 0.0
        while (now := time.monotonic()) - began < seconds:
            if now - began >= due:
                pairs.append(submit(box, twin, load, chance))
                due = now - began + chance.uniform(*load.every_s)
            if now - began >= book and now - began < seconds - 150:
                reserve(box, twin, chance, len(pairs))
                book = now - began + 60
            watch.look(slurm, now - last)
            last = now
            time.sleep(min(1.0, max(0.0, due - (time.monotonic() - began))))
    return report(watch, waits(box, twin, pairs))


def requests(nodes: int) -> tuple[str, str, str]:
    """Three malleable jobs that together could take the machine more than once."""
    return f"1-{nodes // 2}", f"2-{max(2, nodes * 3 // 8)}", f"1-{nodes * 3 // 4}"


def submit(box: Sandbox, twin: Sandbox, load: Load, chance: random.Random) -> tuple[Asked, Asked]:
    """Submit the same rigid job to both clusters. A sixth of the jobs ask for half of the
    machine.
    """
    size = len(box.nodes)
    nodes = max(1, chance.choice((1, 1, size // 8, size // 5, size // 4, size // 2)))
    limit = chance.choice(load.limits)
    runs = round(limit * 60 * chance.uniform(*load.share))
    words = ["sbatch", "--parsable", "-p", "main", f"--nodes={nodes}", "--exclusive"]
    words += [f"--time={limit}", "--output=/dev/null"]
    asked = {}
    for each in chance.sample((box, twin), 2):  # neither is always the first
        argv = [*words, f"--wrap=date +%s.%N >{each.work}/start-$SLURM_JOB_ID; exec sleep {runs}"]
        at = time.time()
        asked[each.name] = Asked(each.run(argv).stdout.strip(), at)
    return asked[box.name], asked[twin.name]


def reserve(box: Sandbox, twin: Sandbox, chance: random.Random, number: int) -> None:
    """Make the same reservation in both, two minutes ahead, over any running jobs.

    If a cluster has another reservation there at that time, make it in neither.
    """
    first = chance.randint(1, len(box.nodes) - 2)
    words = f"scontrol create reservation reservationname=r{number} starttime=now+130 duration=1 "
    words += f"users=root flags=ignore_jobs nodes=n[{first}-{first + 1}]"
    made = [each for each in (box, twin) if not each.run(words.split(), check=False).returncode]
    for each in made if len(made) == 1 else []:
        each.run(["scontrol", "delete", f"reservationname=r{number}"])


def waits(
    box: Sandbox, twin: Sandbox, pairs: list[tuple[Asked, Asked]]
) -> list[tuple[float, float]]:
    """Seconds from submission to start with and without malleable jobs, where both started."""
    seconds = [(_wait(box, a), _wait(twin, b)) for a, b in pairs]
    return [(a, b) for a, b in seconds if a is not None and b is not None]


def _wait(box: Sandbox, job: Asked) -> Optional[float]:
    path = box.work / f"start-{job.id}"
    text = path.read_text().strip() if path.exists() else ""
    return float(text) - job.at if text else None


def report(watch: Watch, pairs: list[tuple[float, float]]) -> dict[str, Any]:
    """Delays over both clusters and broken promises."""
    kinds = {
        "urgent": [(a, b) for a, b in pairs if b < AT_ONCE_S],
        "planned": [(a, b) for a, b in pairs if b >= AT_ONCE_S],
    }
    rows = [{"kind": kind, **distribution(of_kind)} for kind, of_kind in kinds.items() if of_kind]
    broken = {what: round(over, 1) for what, over in watch.broken.items()}
    if rows:
        show("seconds that ordinary jobs wait longer", rows)
    for promise, over_s in broken.items():
        SAY.print(f"broken: {promise}, by {over_s} s")
    return {
        "rigid_jobs": len(pairs),
        "delays": rows,
        "malleable_node_s": round(watch.used_node_s),
        "broken": broken,
    }


def distribution(pairs: list[tuple[float, float]]) -> dict[str, float]:
    """The distribution of delays for a kind of job: seconds, and the share as on an empty
    machine.
    """
    delays = sorted(a - b for a, b in pairs)
    return {
        "jobs": len(delays),
        "median_s": round(statistics.median(delays), 2),
        "p10_s": round(delays[len(delays) // 10], 2),
        "p90_s": round(delays[len(delays) * 9 // 10], 2),
        "max_s": round(delays[-1], 2),
        "min_s": round(delays[0], 2),
        "share_within_half_s": round(sum(d <= AS_EMPTY_S for d in delays) / len(delays), 3),
        "over_kill_wait": sum(d > KILL_WAIT_S + CLOCK_S for d in delays),
        "mean_wait_with_s": round(statistics.mean(a for a, _ in pairs), 2),
        "mean_wait_without_s": round(statistics.mean(b for _, b in pairs), 2),
    }


if __name__ == "__main__":
    sys.exit(main())
