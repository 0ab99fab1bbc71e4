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
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from live_slurm import await_, configure, ticks
from rescale_steps import Steps

from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.project import project_spec

NODES = 4
TRAIN = Path(__file__).resolve().parent / "rescale_train.py"
PACES = {"every 30 s": ("30",), "own pace": (), "called": ()}
PARTS = ("released", "running", "formed", "step")
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
        configure(box, lease_s=120, tick=f'wake = "{wake}"\n')
        with ticks(box, *words), told(box):
            holder = hold(box)
            job = submit(box)
            found = []
            for _ in range(runs):
                await_(lambda: Steps(box.work).arrival([0], 1, time.time() - 3), "one that trains")
                time.sleep(chance.uniform(0, 10))  # whatever the ticks' phase
                found.append(reaction(box, job, holder))
                holder = hold(box)
    return found


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
    await_(lambda: "RUNNING" in states(box, job), "the other user's job")
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
    seen: dict[str, Callable[[], bool]] = {
        "released": lambda: sum(s != "held" for s in states(box, job)) > 1,
        "running": lambda: states(box, job).count("RUNNING") == NODES,
        "formed": lambda: rounds(box) > before,
    }
    for part, is_so in seen.items():
        await_(is_so, part, every_s=0.05)
        at[part] = time.time() - began
    stepped = await_(lambda: steps.arrival(range(NODES), NODES, began), "a step of all")
    at["step"] = (stepped or 0.0) - began
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


if __name__ == "__main__":
    sys.exit(main())
