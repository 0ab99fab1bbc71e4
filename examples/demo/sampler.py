"""Sample a sandbox once a second, listen to its ticks, and keep both.

It has threads and processes only. verdict judges the samples.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Optional

from demo.records import QUESTION, Sample, Tick, parse_sample, parse_tick
from slurm_hooks.errors import MalleableError
from slurm_hooks.sandbox import Sandbox

EVERY_S = 1.0
STOP_S = 15.0
ROOT = Path(__file__).resolve().parents[2]
INSTALLED = Path("/usr/share/slurm-malleable")
PROGRAM = (
    ("/usr/bin/malleable",) if ROOT == INSTALLED else (sys.executable, "-m", "slurm_hooks.cli")
)


def look(box: Sandbox) -> Sample:
    """All jobs now. Raises MalleableError if Slurm does not answer, ValueError on odd output."""
    answer = box.run(QUESTION, env={"SLURM_TIME_FORMAT": "%s"}, timeout_s=10)
    return parse_sample(time.time(), answer.stdout)


class Sampler:
    """A context manager that samples a sandbox in the background while it is open."""

    def __init__(self, box: Sandbox) -> None:
        self.samples: list[Sample] = []
        self.missed: list[str] = []
        self._box = box
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"sampler-{box.name}", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._stop.set()
        self._thread.join(STOP_S)

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            try:
                self.samples.append(look(self._box))
            except (MalleableError, ValueError) as error:
                self.missed.append(str(error))
            due = max(due + EVERY_S, time.monotonic())


class Reconciler:
    """A context manager that runs `malleable reconcile --loop` in a separate process and reads its
    ticks."""

    def __init__(self, box: Sandbox, every_s: int, log: Path) -> None:
        self.ticks: list[Tick] = []
        self.complaints: list[str] = []
        self._box = box
        self._argv = ("reconcile", f"--loop={every_s}", "--json")
        self._log = log
        self._process: Optional[subprocess.Popen[str]] = None
        self._readers: list[threading.Thread] = []

    def __enter__(self) -> Reconciler:
        self._process = subprocess.Popen(
            [*PROGRAM, *self._argv],
            cwd=ROOT,
            env=_environment(self._box),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._follow(self._process.stdout, self._heard)
        self._follow(self._process.stderr, lambda line: self.complaints.append(line.strip()))
        return self

    def _follow(self, stream: object, take: Callable[[str], None]) -> None:
        def run() -> None:
            for line in stream:  # type: ignore[attr-defined]
                take(line)

        thread = threading.Thread(target=run, name="reconcile-reader", daemon=True)
        thread.start()
        self._readers.append(thread)

    def _heard(self, line: str) -> None:
        with self._log.open("a") as file:
            file.write(line)
        try:
            self.ticks.append(parse_tick(line))
        except ValueError as error:
            self.complaints.append(str(error))

    @property
    def is_running(self) -> bool:
        """False once the process has ended, which only we may cause."""
        return self._process is not None and self._process.poll() is None

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for reader in self._readers:
            reader.join(STOP_S)


def _environment(box: Sandbox) -> dict[str, str]:
    """The box's own commands and settings, without the variables of an enclosing Slurm job."""
    shown = box.run(["env", "-0"]).stdout
    return dict(pair.split("=", 1) for pair in shown.split("\0") if "=" in pair)
