"""A pool on a sandbox: its ticks, and the events in its workers' lives."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from programs import write_program
from promises.bench import TRAINER, Bench, occupied
from waiting import wait_until

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PROGRAMS = Path(sys.executable).parent


def submit(bench: Bench, example: str, request: str, **more: str) -> int:
    """Submit an example's script, with more in its environment. Return the job's id."""
    lines = (EXAMPLES / example).read_text().splitlines()
    options = [line for line in lines if line.startswith("#SBATCH")]
    words = [line for line in lines if not line.startswith("#")]
    first = [f"export PATH={PROGRAMS}:$PATH", *(f"export {n}={v!r}" for n, v in more.items())]
    for file in (EXAMPLES / example).parent.glob("*.py"):
        shutil.copy(file, bench.box.work)
    text = "\n".join([*options, *first, *words])
    where = [f"--chdir={bench.box.work}", "--output=pool.log", "--time=30"]
    return bench.submit(text, request, TRAINER, where)


def command(place: Path) -> Path:
    """Where `malleable` lies on a host that users submit from."""
    place.mkdir()
    write_program(place / "malleable", f'exec {sys.executable} -m slurm_hooks.cli "$@"')
    return place


@contextmanager
def beside(bench: Bench, *words: str, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program of this environment beside the cluster, like a scheduler or head."""
    with (bench.box.work / "beside.log").open("ab") as log:
        program = subprocess.Popen(
            [str(PROGRAMS / words[0]), *words[1:]],
            cwd=bench.box.work,
            env={**os.environ, **more},
            stdout=log,
            stderr=log,
        )
    try:
        yield program
    finally:
        program.terminate()
        try:
            program.wait(15)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()


def tick_until(bench: Bench, is_so: Callable[[], bool]) -> None:
    """Tick about once a second until the condition holds."""
    last = 0.0

    def look() -> bool:
        nonlocal last
        if is_so():
            return True
        if time.monotonic() - last > 1.0:
            bench.tick()
            last = time.monotonic()
        return False

    wait_until(look, explain=lambda: log_of(bench)[-3000:], every_s=0.2)


def log_of(bench: Bench) -> str:
    """The log of the workers."""
    path = bench.box.work / "pool.log"
    return path.read_text(errors="replace") if path.exists() else ""


@contextmanager
def taken(bench: Bench, job: int) -> Iterator[str]:
    """Drain a node of the job: a planned leave. Yield its name."""
    name = min(occupied(bench.job(job)))
    bench.box.run(["scontrol", "update", f"nodename={name}", "state=drain", "reason=test"])
    try:
        tick_until(bench, lambda: name not in occupied(bench.job(job)))
        yield name
    finally:
        bench.box.run(["scontrol", "update", f"nodename={name}", "state=resume"])


def preempt(bench: Bench, nodes: int, seconds: int) -> int:
    """Submit a rigid job that needs so many nodes for so long. Return its id once it runs."""
    words = ["sbatch", "--parsable", "--partition=main", f"--nodes={nodes}", "--exclusive"]
    words += ["--time=2", "--output=/dev/null", f"--wrap=sleep {seconds}"]
    rigid = int(bench.box.run(words).stdout)
    asked = ["squeue", "-h", "-o", "%T", "-j", str(rigid)]
    wait_until(lambda: "RUNNING" in bench.box.run(asked, check=False).stdout, every_s=0.3)
    return rigid


def kill(words: str, environment: Mapping[str, str]) -> int:
    """Send SIGKILL to a process with these words in its command line. Return its number.

    Its environment must have these values.
    """
    for pid in sorted(int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()):
        try:
            line = (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ")
            has = (Path("/proc") / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        wanted = {f"{n}={v}".encode() for n, v in environment.items()}
        if words.encode() in line and wanted <= set(has):
            os.kill(pid, signal.SIGKILL)
            return pid
    raise AssertionError(f"no process of {dict(environment)} runs {words}")
