"""Curves learned on a real Slurm beside curves measured apart: `make bench-learned-curves`.

Four trainings that know nothing of us (tests/frameworks/train_unknowing.py: plain torchrun,
Lightning, transformers' Trainer, accelerate), each on a Slurm of four nodes beside a job that wants
the rest. Ticks at their own pace look at it on one node, then give it its share, two; when the
other job has ended it gets all four. What `malleable profile` says then is set beside the notes of
the same script, started by plain torchrun without Slurm, on so many nodes from the beginning. A
step sleeps for STEP_S, on a host that does more than this, and every doubling of the nodes makes it
longer by NETWORK, so that there is a curve to learn.

Prints a table; the last line is one JSON object. Fails if a speed-up is off by more than OFF. A
training whose library is missing is left out; $HITS_PYTHON names an interpreter that has them.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hits_trainings import FRAMEWORKS, Training, lacks, library_python
from live_slurm import CHEAP, configure, ticks
from rich.console import Console
from rich.table import Table

from slurm_hooks.model import Curve
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.project import project_spec

KINDS = {
    "plain": "torch",
    "lightning": "lightning",
    "trainer": "transformers",
    "accelerate": "accelerate",
}
SIZES = (1, 2, 4)
SCRIPT = "train_unknowing.py"
STEP_S, NETWORK = 0.25, 0.25
OFF = 0.1
PATIENCE_S = 400.0  # for a size to be learned, or a training to begin
WARM_S, MEASURED_S = 5.0, 30.0
SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "PYTHONWARNINGS": "ignore",
    "UNKNOWING_STEP_S": str(STEP_S),
    "UNKNOWING_NETWORK": str(NETWORK),
}
HELD_UP = 5  # times a usual step: an evaluation, a checkpoint
_STOP_S = 30.0
_OURS = ("SLURM_", "PET_", "MALLEABLE_", "TORCHELASTIC_", "PYTHONPATH")


@dataclass(frozen=True)
class Row:
    """One size of one training: samples a second as its job told and as the script by itself
    noted, and how much faster than on one node that is, learned and measured."""

    kind: str
    nodes: int
    told: float
    own: float
    learned: float
    measured: float

    @property
    def off(self) -> float:
        """By how much the speed-up that was learned is wrong, relative."""
        return self.learned / self.measured - 1


def compare(kind: str) -> list[Row]:
    """Learn one training's curve, then measure it."""
    told, learned = learn(kind)
    own = {nodes: measure(kind, nodes) for nodes in SIZES}
    return [Row(kind, n, told[n], own[n], learned(n) / learned(1), own[n] / own[1]) for n in SIZES]


def learn(kind: str) -> tuple[dict[int, float], Curve]:
    """The newest rate of each size that the job has told, and the curve that is made of them."""
    with Sandbox.up(project_spec(nodes=max(SIZES), kill_wait_s=5)) as box, _explained(box):
        configure(box)
        job = submit(box, kind, f"1-{max(SIZES)}", training(box.work, kind))
        rest = submit(box, "rest", f"2-{max(SIZES)}", f"{CHEAP}exec sleep 3600")
        with ticks(box):
            until(lambda: {1, 2} <= seen(profile(box, job)), f"{kind} on one node and on two")
            box.run(["scancel", rest])
            until(lambda: set(SIZES) <= seen(profile(box, job)), f"{kind} on all nodes")
        found = profile(box, job)
    told = {rate["nodes"]: rate["per_s"] for rate in found["counted"]}
    points = ((nodes, value) for nodes, value in found["learned"]["curve"]["points"])
    return told, Curve(tuple(points))


def training(work: Path, kind: str) -> str:
    """The lines of a job that trains."""
    shutil.copy(FRAMEWORKS / SCRIPT, work)
    words = [library_python(), "-m", "torch.distributed.run", str(work / SCRIPT), str(work), kind]
    settings = " ".join(f"{name}={value}" for name, value in SETTINGS.items())
    return f"export {settings}\nexec {shlex.join(words)}"


def submit(box: Sandbox, name: str, request: str, lines: str) -> str:
    """A malleable job; gives its number."""
    script = box.work / f"{name}.sh"
    script.write_text(f"#!/bin/bash\n{lines}\n")
    argv = ["sbatch", "--parsable", f"--malleable={request}", f"--job-name={name}"]
    return box.run([*argv, f"--output={box.work}/{name}-%a.log", str(script)]).stdout.strip()


def profile(box: Sandbox, job: str) -> dict[str, Any]:
    """What is known of a job; nothing as long as no tick has seen it."""
    done = subprocess.run(
        [sys.executable, "-m", "slurm_hooks.cli", "profile", job, "--json"],
        env={**os.environ, **box.environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return dict(json.loads(done.stdout)) if done.returncode == 0 else {}


def seen(known: dict[str, Any]) -> set[int]:
    """The sizes that were learned."""
    return set(known["learned"]["sizes_seen"]) if known else set()


@contextmanager
def _explained(box: Sandbox) -> Iterator[None]:
    """Whoever waits in vain sees what ticks and jobs said last."""
    try:
        yield
    except TimeoutError:
        for path in sorted(box.work.glob("*.log")):
            lines = path.read_text(errors="replace").splitlines()[-20:]
            print("\n".join((f"-- {path.name}", *lines)), file=sys.stderr)
        raise


def until(is_so: Callable[[], bool], what: str, every_s: float = 2.0) -> None:
    """Wait. Raises TimeoutError."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PATIENCE_S:.0f} s for {what}")
        time.sleep(every_s)


def measure(kind: str, nodes: int) -> float:
    """Samples a second by the notes of the script, on so many nodes of plain torchrun."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        work = Path(place)
        port = free_port()
        for node in range(nodes):
            stack.enter_context(agent(kind, work, node, nodes, port))
        notes = work / "own"
        until(lambda: span(notes) > WARM_S + MEASURED_S, f"{kind} by itself", 1.0)
        return rate(steps(notes), MEASURED_S)


@contextmanager
def agent(kind: str, work: Path, node: int, nodes: int, port: int) -> Iterator[None]:
    """torchrun on one node, without anything of ours."""
    words = [library_python(), "-m", "torch.distributed.run", f"--nnodes={nodes}"]
    words += ["--nproc-per-node=1", f"--node-rank={node}", "--master-addr=127.0.0.1"]
    words += [f"--master-port={port}", str(FRAMEWORKS / SCRIPT), str(work), kind]
    env = {k: v for k, v in os.environ.items() if not k.startswith(_OURS)}
    with (work / f"agent-{node}.log").open("w") as log:
        process = subprocess.Popen(words, env={**env, **SETTINGS}, cwd=work, stdout=log, stderr=log)
    try:
        yield
    finally:
        end(process)


def end(agent: subprocess.Popen[bytes]) -> None:
    """The agent and its workers, which would wait for each other."""
    children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children")
    with suppress(FileNotFoundError):  # it has ended by itself
        for pid in children.read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    agent.kill()
    agent.wait(_STOP_S)


def free_port() -> int:
    """Of this host."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def steps(notes: Path) -> list[tuple[float, int]]:
    """When each step was done, and on how many samples; the last line may be half written."""
    lines = notes.read_text().splitlines()[:-1] if notes.exists() else []
    return [(float(at), int(samples)) for at, samples in map(str.split, lines)]


def span(notes: Path) -> float:
    """Seconds from the first step to the last."""
    found = steps(notes)
    return found[-1][0] - found[0][0] if found else 0.0


def rate(found: list[tuple[float, int]], seconds: float) -> float:
    """Samples a second in the last so many seconds, of steps that nothing held up."""
    last = [step for step in found if step[0] >= found[-1][0] - seconds]
    taken = [(after[0] - before[0], after[1]) for before, after in zip(last, last[1:])]
    usual = sorted(each for each, _ in taken)[len(taken) // 2]
    clean = [(each, samples) for each, samples in taken if each < HELD_UP * usual]
    return sum(samples for _, samples in clean) / sum(each for each, _ in clean)


def show(rows: list[Row], say: Console) -> None:
    """The table."""
    head = ("training", "nodes", "told/s", "own/s", "learned", "measured", "off")
    table = Table(*head, title="Speed-ups over one node, learned and measured")
    for row in rows:
        rates = (f"{row.told:.0f}", f"{row.own:.0f}")
        speedups = (f"{row.learned:.2f}", f"{row.measured:.2f}", f"{100 * row.off:+.1f} %")
        table.add_row(row.kind, str(row.nodes), *rates, *speedups)
    say.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    say = Console(soft_wrap=True, highlight=False, width=None if sys.stdout.isatty() else 160)
    rows, failed = [], []
    for kind in parser.parse_args().kinds:
        if lacks(Training(kind, SCRIPT, FRAMEWORKS, needs=KINDS[kind])):
            say.print(f"{kind}: left out, for want of {KINDS[kind]}")
            continue
        try:
            rows += compare(kind)
            show(rows[-len(SIZES) :], say)
        except TimeoutError as error:
            failed.append(kind)
            say.print(f"{kind}: given up: {error}", markup=False)
    if rows:
        show(rows, say)
    found = [{**asdict(row), "off": row.off} for row in rows]
    print(json.dumps({"benchmark": "learned_curves", "failed": failed, "rows": found}))
    return 1 if failed or any(abs(row.off) > OFF for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
