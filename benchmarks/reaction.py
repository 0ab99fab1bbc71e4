"""From a node that becomes free to the first training step on it, each part measured.

Run: python benchmarks/reaction.py [--runs N]. On a Slurm of four nodes a job trains on one, and
another user's job holds three, until it is cancelled: a hole opens. Ticks come at three paces, each
on a Slurm of its own: every 30 s, at the loop's own pace, and at that with an EpilogSlurmctld that
calls for a tick. Parts in seconds since the cancel: a fragment is released, Slurm runs all of
them, the round of the larger world is formed, its first step is done. Median and worst; the last
line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rescale_steps import Steps

from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.project import project_spec

NODES = 4
TRAIN = Path(__file__).resolve().parent / "rescale_train.py"
PACES = {"every 30 s": ("30",), "own pace": (), "called": ()}
PARTS = ("released", "running", "formed", "step")
LONGEST_S = 120.0
SETTINGS = """
[lease]
length_s = 120
shortest_hole_s = 60
margin_s = 35
notice_s = 3

[plan]
snooze_s = 0
"""
EPILOG = """#!/bin/sh
[ "$SLURM_JOB_PARTITION" = malleable ] || echo 1 >{wake}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    found = {}
    for pace, words in PACES.items():
        with tempfile.TemporaryDirectory() as scratch:
            found[pace] = measure(Path(scratch), words, options.runs, pace == "called")
        for part in PARTS:
            seconds = [reaction[part] for reaction in found[pace]]
            print(
                f"{pace}: {part} {statistics.median(seconds):.1f} ({max(seconds):.1f})", flush=True
            )
    print(json.dumps({"benchmark": "reaction", "runs": options.runs, "paces": found}))
    return 0


def measure(
    scratch: Path, words: Sequence[str], runs: int, is_called: bool
) -> list[dict[str, float]]:
    """Each reaction by part."""
    wake = scratch / "wake"
    epilog = scratch / "epilog.sh"
    wake.touch()
    epilog.write_text(EPILOG.format(wake=wake))
    epilog.chmod(0o755)
    scratch.chmod(0o755)
    conf = f"EpilogSlurmctld={epilog}\n" if is_called else ""
    chance = random.Random(1)
    with Sandbox.up(project_spec(nodes=NODES, kill_wait_s=5, extra_conf=conf)) as box:
        text = box.settings.read_text()
        box.settings.write_text(text.replace("[tick]\n", f'[tick]\nwake = "{wake}"\n') + SETTINGS)
        with ticks(box, words), told(box):
            holder = hold(box)
            job = submit(box)
            found = []
            for _ in range(runs):
                await_(lambda: Steps(box.work).arrival([0], 1, time.time() - 3) is not None)
                time.sleep(chance.uniform(0, 10))  # whatever the ticks' phase
                found.append(reaction(box, job, holder))
                holder = hold(box)
    return found


@contextmanager
def ticks(box: Sandbox, words: Sequence[str]) -> Iterator[None]:
    """A loop of ticks."""
    argv = [sys.executable, "-m", "slurm_hooks.cli", "reconcile", "--loop", *words]
    with (box.work / "ticks.log").open("w") as log:
        process = subprocess.Popen(argv, env=box.environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def told(box: Sandbox) -> Iterator[None]:
    """Whoever waits in vain sees what ticks and job said last."""
    try:
        yield
    except TimeoutError:
        for name in ("ticks.log", "out.log"):
            lines = (box.work / name).read_text().splitlines()[-30:]
            print("\n".join((f"-- {name}", *lines)), file=sys.stderr)
        raise


def hold(box: Sandbox) -> str:
    """Another user's job on all nodes but the one that trains on."""
    argv = ["sbatch", "--parsable", "-p", "main", f"--nodes={NODES - 1}", "--exclusive"]
    argv += ["--exclude=n1", "--output=/dev/null", "--wrap=exec sleep 3600"]
    job = box.run(argv).stdout.strip()
    await_(lambda: "RUNNING" in states(box, job))
    return job


def submit(box: Sandbox) -> str:
    """The malleable job."""
    script = box.work / "train.sh"
    launch = f"{sys.executable} -m torch.distributed.run"
    script.write_text(f"#!/bin/bash\nexec {launch} {TRAIN} {box.work}\n")
    argv = ["sbatch", "--parsable", f"--malleable=1-{NODES}", f"--output={box.work}/out.log"]
    return box.run([*argv, str(script)]).stdout.strip()


def reaction(box: Sandbox, job: str, holder: str) -> dict[str, float]:
    """Open a hole and watch."""
    began = time.time()
    steps = Steps(box.work)
    at = {}
    before = rounds(box)
    box.run(["scancel", holder])
    at["released"] = await_(lambda: sum(s != "held" for s in states(box, job)) > 1) - began
    at["running"] = await_(lambda: states(box, job).count("RUNNING") == NODES) - began
    at["formed"] = await_(lambda: rounds(box) > before) - began
    await_(lambda: steps.arrival(range(NODES), NODES, began) is not None)
    at["step"] = (steps.arrival(range(NODES), NODES, began) or 0.0) - began
    return at


def states(box: Sandbox, job: str) -> list[str]:
    """The states of its elements, `held` for those that wait for us."""
    argv = ["squeue", "-h", "--array", f"--jobs={job}", "-OState:|,PriorityLong:|"]
    rows = (line.split("|") for line in box.run(argv).stdout.splitlines())
    found = ((state.strip(), priority.strip()) for state, priority, *_ in rows)
    return ["held" if each == ("PENDING", "0") else each[0] for each in found]


def rounds(box: Sandbox) -> int:
    """How many rounds of all nodes the log tells of."""
    log = box.work / "out.log"
    return log.read_text().count(f"formed: {NODES} fragments") if log.exists() else 0


def await_(is_so: Callable[[], bool]) -> float:
    """When it was so. Raises TimeoutError."""
    deadline = time.monotonic() + LONGEST_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so within {LONGEST_S:.0f} s")
        time.sleep(0.05)
    return time.time()


if __name__ == "__main__":
    sys.exit(main())
