"""The same Optuna search in the holes that others leave, and on a fixed allocation as large.

Run: python benchmarks/optuna_search.py [--runs N] [--trials N]. On a Slurm of six nodes jobs of
others leave 0 to 4 nodes free, two on average, and take them back when they like; a pool of workers
lives in what is free. Then two nodes are allocated for as long as the search takes. The search of
examples/optuna is the same; no trial is pruned, so that all searches are as long, and epochs wait a
quarter of a second, so that two cores are enough.
Shown are the makespan from sbatch to the last result, the node-seconds that were offered and used
in it, and how many trials were begun again. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path

from live_slurm import configure, ticks

from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.project import project_spec

NODES, FIXED = 6, 2
FREE = (2, 4, 1, 3, 0, 2)  # nodes, one after the other; their mean is FIXED
STRETCH_S = 12.0
LOOK_S = 0.5
LIMIT_S = 300.0
SEARCH = "python3 search.py --trials={} --pace=0.25 --silence=10 --no-pruning"
RECIPE = Path(__file__).resolve().parents[1] / "examples" / "optuna"


@dataclass(frozen=True)
class Course:
    """One search: seconds from sbatch to its last result, node-seconds in these, trials."""

    makespan_s: float
    offered_node_s: float
    used_node_s: float
    again: int


@dataclass
class Others:
    """Jobs of one node each, as many as leave so many free as the time says."""

    box: Sandbox
    jobs: list[str]
    began: float
    offered_node_s: float = 0.0

    def free_now(self) -> int:
        return FREE[int((time.monotonic() - self.began) / STRETCH_S) % len(FREE)]

    def adapt(self) -> None:
        wanted = NODES - self.free_now()
        for _ in range(wanted - len(self.jobs)):
            argv = ["sbatch", "--parsable", "-pmain", "-N1", "--exclusive", "--time=30"]
            said = self.box.run([*argv, "--output=/dev/null", "--wrap", "sleep 1800"])
            self.jobs.append(said.stdout.strip())
        for job in self.jobs[wanted:]:
            self.box.run(["scancel", job])
        del self.jobs[wanted:]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--trials", type=int, default=30)
    options = parser.parse_args()
    found: dict[str, list[Course]] = {"malleable": [], "fixed": []}
    for _, (kind, search) in zip(range(2 * options.runs), cycle(KINDS.items())):
        with Sandbox.up(project_spec(nodes=NODES)) as box:
            found[kind].append(search(box, options.trials))
        print(f"{kind:10}{_line(found[kind][-1])}", flush=True)
    for kind, courses in found.items():
        middle = statistics.median(course.makespan_s for course in courses)
        print(f"{kind}: makespan {middle:.0f} s, median of {len(courses)}")
    rows = {kind: [asdict(course) for course in courses] for kind, courses in found.items()}
    print(json.dumps({"benchmark": "optuna_search", "trials": options.trials, **rows}))
    return 0


def _line(course: Course) -> str:
    return "  ".join(f"{name} {value:.0f}" for name, value in asdict(course).items())


def malleable(box: Sandbox, trials: int) -> Course:
    configure(box, notice_s=6)
    place = _copied(box)
    request = ["--malleable=0-6,engine=pool"]
    script = _script(box, f"malleable run -- {SEARCH.format(trials)}")
    with ticks(box), others(box) as held:
        began = time.time()
        box.run(["sbatch", *request, f"--output={box.work}/%a.log", str(script)])
        used = watch(box, place, trials, held.adapt)
        return course(place, began, used, held.began)


def fixed(box: Sandbox, trials: int) -> Course:
    place = _copied(box)
    script = _script(box, f"srun -n{FIXED} {SEARCH.format(trials)}")
    argv = ["sbatch", "-pmain", f"-N{FIXED}", f"-n{FIXED}", "--time=30"]
    began = time.time()
    box.run([*argv, f"--output={box.work}/fixed.log", str(script)])
    watch(box, place, trials, lambda: None)
    found = course(place, began, 0.0, None)
    node_s = FIXED * found.makespan_s
    return Course(found.makespan_s, node_s, node_s, found.again)


KINDS: dict[str, Callable[[Sandbox, int], Course]] = {"malleable": malleable, "fixed": fixed}


@contextmanager
def others(box: Sandbox) -> Iterator[Others]:
    """They are there first."""
    held = Others(box, [], time.monotonic())
    held.adapt()
    time.sleep(2)
    held.began = time.monotonic()
    yield held


def watch(box: Sandbox, place: Path, trials: int, meanwhile: Callable[[], None]) -> float:
    """Until every trial has a result; the node-seconds of malleable jobs until then."""
    used, before, deadline = 0.0, time.monotonic(), time.monotonic() + LIMIT_S
    while _settled(place) < trials:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{_settled(place)} of {trials} trials after {LIMIT_S:.0f} s")
        meanwhile()
        time.sleep(LOOK_S)
        now = time.monotonic()
        rows = box.run(["squeue", "-h", "--array", "-pmalleable", "-tRUNNING", "-o%i"]).stdout
        used += len(rows.split()) * (now - before)
        before = now
    return used


def course(place: Path, began: float, used: float, others_began: float | None) -> Course:
    trials = _trials(place)
    ends = [t.datetime_complete.timestamp() for t in trials if t.datetime_complete]
    makespan = max(ends) - began
    offered = _offered(makespan) if others_began is not None else 0.0
    states = [trial.state.name for trial in trials]
    return Course(makespan, offered, used, states.count("FAIL"))


def _offered(seconds: float) -> float:
    """Node-seconds that the others leave free in the first so many seconds."""
    whole, rest = divmod(seconds, STRETCH_S)
    stretches = [FREE[n % len(FREE)] for n in range(int(whole) + 1)]
    return sum(stretches[:-1]) * STRETCH_S + stretches[-1] * rest


def _settled(place: Path) -> int:
    return sum(trial.state.name in ("COMPLETE", "PRUNED") for trial in _trials(place))


def _trials(place: Path) -> list:
    import optuna  # noqa: PLC0415  (only `make test-engines` has it)
    from optuna.storages.journal import JournalFileBackend  # noqa: PLC0415

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    journal = place / "study" / "journal.log"
    if not journal.exists():
        return []
    try:
        storage = optuna.storages.JournalStorage(JournalFileBackend(str(journal)))
        return optuna.load_study(study_name="digits", storage=storage).trials
    except KeyError:  # no study in it yet
        return []


def _copied(box: Sandbox) -> Path:
    return Path(shutil.copytree(RECIPE, box.work / "optuna"))


def _script(box: Sandbox, command: str) -> Path:
    path = box.work / "search.sh"
    here = f"export PATH={Path(sys.executable).parent}:$PATH OMP_NUM_THREADS=1"
    path.write_text(f"#!/bin/bash\n{here}\ncd {box.work}/optuna\nexec {command}\n")
    return path


if __name__ == "__main__":
    sys.exit(main())
