"""Play a day of a real machine in minutes, with malleable trainings of every engine in its holes.

Ordinary jobs of ThetaGPU's log (24 nodes) are submitted as its users did, 60 times as fast, to a
real Slurm of as many nodes. Slurm starts them, backfill and all. Ten malleable jobs of real engines
train on the rest, with slow steps, since the host plays all nodes. Ticks run every 5 s.

Every two seconds a reading checks the promises. No job waits for our nodes, no lease is overrun, no
node is drained or given twice, and no element is lost. It also measures our processes and files. At
the end of the day the trainings end by themselves, and all jobs must be gone. The replay gets the
observed holes, and its used share is shown beside the measured share. Exit code 1 if a promise
broke or memory or files grew. Without the log it says so and succeeds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from live_replay import predicted
from load import Watch
from parts.live_slurm import configure, controller, port, submitted, ticks
from parts.printing import SAY, arguments, show, tell
from parts.replay_runs import data
from parts.rescale_engines import ENGINES, Engine, lacking, script
from parts.soak_day import Ordinary, Seen, growth, holes, leaks, ordinary_jobs, used_node_s

from faults.checker import (
    ELEMENTS,
    NODES,
    Look,
    changed_nodes,
    doubled_nodes,
    lost_elements,
    parse_elements,
    parse_nodes,
)
from slurm_hooks.model import Curve
from slurm_hooks.replay.logs.log_lines import Log
from slurm_hooks.replay.logs.swf import Workload, read_swf
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.project import project_spec
from slurm_hooks.settings.file import load
from slurm_hooks.slurm.text import expand

LOG = "thetagpu_2020"
KILL_WAIT_S = 5
LEASE_S = 300
LOOK_S = 2.0
STEP_S = 1.0
BACK_S = 45.0  # until an element that ended is put back
GONE_S = 240.0  # after the end of the day: the last lease, and two ticks
# Name in ENGINES, MAX, how many jobs. Ten in all, should every engine be here.
JOBS = (
    ("malleable", 4, 2),
    ("torchft", 3, 1),
    ("command", 8, 2),
    ("mpi", 4, 1),
    ("tensorflow", 2, 1),
    ("pool", 24, 3),
)
# Growth between early and late. Python's allocator keeps the memory of a busy tick; a fragment more
# at work is a socket or two.
ALLOWED = {"tick loop MiB": 40.0, "tick loop descriptors": 8.0, "files of the tick": 10.0}


@dataclass
class Course:
    """The readings so far. `jobs` are the elements of each malleable job."""

    box: Sandbox
    watch: Watch = field(default_factory=Watch)
    seen: list[Seen] = field(default_factory=list)
    samples: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    jobs: dict[int, int] = field(default_factory=dict)
    broken: dict[str, float] = field(default_factory=dict)
    since: dict[str, float] = field(default_factory=dict)

    def look(self, at_s: float, since_s: float, pids: Mapping[str, int]) -> None:
        """Read Slurm and our processes, `since_s` after the last reading."""
        self.watch.look(port(self.box), since_s)
        look = self._slurm()
        for fault in (*changed_nodes(look, {}), *doubled_nodes(look)):
            self.broken.setdefault(fault, at_s)
        self._judge_elements(look, at_s)
        ours = frozenset(e.nodes for e in look.elements if e.state in ("RUNNING", "COMPLETING"))
        words = ["squeue", "-h", "-p", "main", "-t", "R,CG", "-o", "%N"]
        others = [expand(line) for line in self.box.run(words).stdout.splitlines()]
        self.seen.append(Seen(at_s, frozenset().union(*others), ours - {""}))
        self.samples.append((at_s, self._sizes(pids)))

    def _slurm(self) -> Look:
        environment = {**os.environ, **self.box.environment, "SLURM_TIME_FORMAT": "%s"}
        texts = [
            subprocess.run(
                words, env=environment, check=True, text=True, capture_output=True, timeout=60
            ).stdout
            for words in (ELEMENTS, NODES)
        ]
        return Look(time.time(), parse_elements(texts[0]), parse_nodes(texts[1]))

    def _judge_elements(self, look: Look, at_s: float) -> None:
        """Ended elements wait for the next tick. An element that waits for longer is lost."""
        lost = [f for job, n in self.jobs.items() for f in lost_elements(look, job, n)]
        self.since = {fault: self.since.get(fault, at_s) for fault in lost}
        for fault, since in self.since.items():
            if at_s - since > BACK_S:
                self.broken.setdefault(fault, since)

    def _sizes(self, pids: Mapping[str, int]) -> dict[str, float]:
        sizes = {}
        for name, pid in pids.items():
            sizes[f"{name} MiB"] = _resident_mib(pid)
            sizes[f"{name} descriptors"] = float(len(os.listdir(f"/proc/{pid}/fd")))
        state = load(self.box.settings).tick.state_dir
        files = [path for path in Path(state).rglob("*") if path.is_file()]
        sizes["files of the tick"] = float(len(files))
        sizes["files of jobs"] = float(_count_files(Path(self.box.work)))
        sizes["ledger MiB"] = sum(p.stat().st_size for p in files if "ledger" in p.name) / 2**20
        return sizes


def _count_files(work: Path) -> int:
    """Count without the files by which a pool's worker claims a task, which grow with the tasks."""
    return sum(len(names) for top, _, names in os.walk(work) if Path(top).name != "claims")


def _resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--hours", type=float, default=24, help="of the log")
    parser.add_argument("--compress", type=float, default=60, help="times as fast as the log")
    parser.add_argument("--from-hour", type=float, default=48, help="where in the log to begin")
    options = parser.parse_args()
    workload = read_swf(Log(data() / "traces" / f"{LOG}.swf.gz"))
    jobs = ordinary_jobs(workload, options.from_hour * 3600, options.hours, options.compress)
    seconds = options.hours * 3600 / options.compress
    with Sandbox.up(project_spec(nodes=workload.nodes, kill_wait_s=KILL_WAIT_S)) as box:
        configure(box, lease_s=LEASE_S, tick="every_s = 5\n")
        course, left_out = Course(box), [name for name, *_ in JOBS if lacking(ENGINES[name])]
        stays = play(course, jobs, seconds)
        judgement = judged(course, workload, stays)
    figures = {**vars(options), "ordinary_jobs": len(jobs), "left_out": left_out, **judgement}
    rows = [{"of": name, **each} for name, each in judgement["growth"].items()]
    show(f"growth in {options.hours:g} h of {LOG}", rows)
    run, replay = judgement["used_share_run"], judgement["used_share_replay"]
    SAY.print(f"used of the holes: {run:.3f}, by the replay {replay:.3f}")
    for line in (*judgement["broken"], *judgement["leaks"]):
        SAY.print(f"broken: {line}")
    return tell("soak", not (judgement["broken"] or judgement["leaks"]), **figures)


def play(course: Course, jobs: list[Ordinary], seconds: float) -> list[str]:
    """Play the day, and the end of all jobs after it. Return the jobs that have not ended
    in time.
    """
    box, until = course.box, time.time() + seconds
    course.jobs = start(box, until)
    with ticks(box) as loop:
        began = last = time.monotonic()
        pids = {"tick loop": loop.pid, "slurmctld": controller(box)}
        coming = list(jobs)
        while (now := time.monotonic()) - began < seconds:
            while coming and coming[0].at_s <= now - began:
                submit(box, coming.pop(0))
            course.look(now - began, now - last, pids)
            last = now
            time.sleep(max(0.0, now + LOOK_S - time.monotonic()))
        box.run(["scancel", "--partition=main"])
        return ends(course)


def start(box: Sandbox, until: float) -> dict[int, int]:
    """The malleable jobs, which train until then: their elements, by id."""
    elements = {}
    for name, most, count in JOBS:
        if lacking(ENGINES[name]):
            continue
        for number in range(count):
            elements[int(train(box, ENGINES[name], f"{name}{number}", most, until))] = most
    return elements


def train(box: Sandbox, engine: Engine, name: str, most: int, until: float) -> str:
    """Submit a training in a separate directory. Return its id."""
    work = box.work / name
    work.mkdir()
    added = {"TRAIN_UNTIL": f"{until:.0f}", "TRAIN_STEP_S": f"{STEP_S:g}"}
    path = work / "job.sh"
    path.write_text(script(engine, work, added))
    request = replace(engine, request=engine.request or "1-8").request
    size, _, rest = request.partition(",")
    request = ",".join([f"{size.partition('-')[0]}-{most}", *filter(None, [rest])])
    words = (f"--malleable={request}", f"--chdir={work}", "--output=job.log", str(path))
    return submitted(box, *words)


def submit(box: Sandbox, job: Ordinary) -> None:
    """Submit an ordinary job as its user did."""
    words = [f"--nodes={job.nodes}", "--exclusive", f"--time={job.limit_min}"]
    submitted(box, "-pmain", *words, "--output=/dev/null", f"--wrap=exec sleep {job.run_s:.2f}")


def ends(course: Course) -> list[str]:
    """Wait until no malleable job is left. Return the rest after `GONE_S`."""
    deadline = time.monotonic() + GONE_S
    words = ["squeue", "-h", "-p", "malleable", "-o", "%F %j %T %r"]
    while time.monotonic() < deadline:
        left = sorted(set(course.box.run(words).stdout.splitlines()))
        if not left:
            return []
        time.sleep(LOOK_S)
    return left


def judged(course: Course, workload: Workload, stays: list[str]) -> dict[str, Any]:
    """The verdict on the day."""
    record = holes(course.seen, course.box.nodes)
    settings = load(course.box.settings)
    linear = Curve(((0, 0.0), (1, 1.0), (workload.nodes, float(workload.nodes))))
    said = predicted(record, len(course.jobs), settings, linear)
    grown = {name: growth(course.samples, name) for name in course.samples[0][1]}
    broken = {**course.broken, **course.watch.broken}
    broken |= {f"not ended: {line}": 0.0 for line in stays}
    return {
        "malleable_jobs": len(course.jobs),
        "looks": len(course.seen),
        "idle_nodes": record.equivalent_nodes,
        "used_share_run": used_node_s(course.seen) / record.idle_node_s,
        "used_share_replay": said["used_share"],
        "broken": broken,
        "growth": {name: asdict(each) for name, each in grown.items()},
        "leaks": leaks(grown, ALLOWED),
        "load": os.getloadavg()[1],
    }


if __name__ == "__main__":
    sys.exit(main())
