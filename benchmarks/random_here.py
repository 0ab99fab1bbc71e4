"""A random course of changes made by hand on this host: agents as processes, and no Slurm.

Fragments grow, shrink with notice, are lost by SIGKILL and SIGTERM, several at once, go back to
MIN, below MIN and back.
"""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch
from random_course import (
    LARGEST,
    MANY_STEPS,
    ROOT,
    SMALLEST,
    STEPS_TO_A_FILE,
    TRAININGS,
    LostError,
    Outcome,
    Step,
    again,
    undisturbed_counts,
    worst_finish,
)

from slurm_hooks.jobpath import write_job_path

sys.path.insert(0, str(ROOT / "tests"))

from elastic.gang import Gang
from elastic.groups import Groups

NNODES = f"{SMALLEST}:{LARGEST}"
NOTICE_S = 20.0


def as_shipped(env: dict[str, str]) -> dict[str, str]:
    """An agent's environment with the defaults of a site."""
    shortened = ("LAST_CALL_S", "KEEP_ALIVE_S", "BEAT_S", "SETTLE_S")
    return {k: v for k, v in env.items() if k not in {f"MALLEABLE_{name}" for name in shortened}}


class TorchrunGang(Gang):
    """Agents on this host as a job has them."""

    def environment(self, fragment: int, nnodes: str, restarts: int = 0) -> dict[str, str]:
        return as_shipped(super().environment(fragment, nnodes, restarts))

    def outcome(self) -> Outcome:
        """The newest checkpoint, once all have left."""
        saved = torch.load(self.work / "checkpoint.pt", weights_only=True)
        step, content = int(saved["step"]), saved["content"]
        off = [int(a) - b for a, b in zip(content["counts"].tolist(), undisturbed_counts(step))]
        lost, twice = sum(max(0, -n) for n in off), sum(max(0, n) for n in off)
        return Outcome(step, lost, twice, float(content["weight"]), int(content["chain"]))


class TorchftGang(Groups):
    """Replica groups on this host as a job has them."""

    smallest, largest = SMALLEST, LARGEST

    def environment(self, fragment: int, nnodes: str, restarts: int = 0) -> dict[str, str]:
        return as_shipped(super().environment(fragment, nnodes, restarts))

    def outcome(self) -> Outcome:
        """What the worst of the groups found out about its model at the end."""
        return worst_finish(self.work)


class HereCourse:
    """See Course: the fragments, and the changes they go through."""

    def __init__(self, gang: TorchrunGang | TorchftGang, seed: int, patience_s: float) -> None:
        self._gang, self._patience_s = gang, patience_s
        self._random = random.Random(seed)
        self._starts: Counter[int] = Counter()
        self._going: set[int] = set()
        self.told: Counter[str] = Counter()

    def begin(self) -> None:
        """See Course."""
        self._add(3)
        self.rest(must_step=True)

    def change(self) -> str:
        """See Course."""
        size = len(self._staying())
        kinds = ["shrink", "kill", "term", "to MIN", "mixed"] if size > SMALLEST else []
        kinds += ["grow"] * 3 + ["several grow"] if size < LARGEST else []
        kinds += ["below MIN and back"] if size == SMALLEST else []
        kind = self._random.choice(kinds)
        self.told[kind] += 1
        self._do(kind, size)
        return kind

    def rest(self, must_step: bool) -> None:
        """See Course."""
        steps = len(self._gang.steps())
        deadline = time.monotonic() + self._patience_s
        time.sleep(self._random.uniform(0.2, 2.0))
        while must_step and len(self._gang.steps()) < steps + 20:
            self._staying()
            if time.monotonic() > deadline:
                raise LostError(f"no step for {self._patience_s:.0f} s")
            time.sleep(0.2)

    def step(self) -> int:
        """See Course."""
        return self._gang.steps()[-1][1]

    def end(self) -> None:
        """Replica groups end by themselves, the others are sent away; whoever was too young to
        hear its notice is ended as by a tick."""
        (self._gang.work / "enough").touch()
        if isinstance(self._gang, TorchrunGang):
            self._send_away(self._staying(), None)
            for fragment in sorted(self._going):
                self._see_off(fragment)
        try:
            self._gang.wait_exit(*self._gang.agents, timeout=60)
        except subprocess.TimeoutExpired as late:
            raise LostError("agents did not end") from late

    def outcome(self) -> Outcome:
        """See Course."""
        return self._gang.outcome()

    def steps_again(self) -> int:
        """See Course."""
        tellers = 1 if isinstance(self._gang, TorchrunGang) else LARGEST
        return again((Step(*row) for row in self._gang.steps()), tellers)

    def evidence(self) -> str:
        """See Course."""
        return self._gang.dump()

    def _staying(self) -> list[int]:
        """Fragments that run and were not sent away."""
        for fragment, agent in self._gang.agents.items():
            if fragment not in self._going and agent.poll() is not None:
                raise LostError(f"fragment {fragment} ended by itself: {agent.returncode}")
        return [f for f in self._gang.agents if f not in self._going]

    def _do(self, kind: str, size: int) -> None:
        if kind in ("grow", "several grow"):
            self._add(1 if kind == "grow" else LARGEST - size)
        elif kind == "shrink":
            self._send_away(self._some(1), None)
        elif kind in ("kill", "term"):
            self._send_away(self._some(1), signal.SIGKILL if kind == "kill" else signal.SIGTERM)
        elif kind == "to MIN":
            self._send_away(self._some(size - SMALLEST), None)
        elif kind == "mixed":
            self._send_away(self._some(1), None)
            self._add(1)
        else:
            self._send_away(self._some(1), self._random.choice([None, signal.SIGKILL]))
            time.sleep(self._random.uniform(0.0, 3.0))
            self._add(2)

    def _some(self, count: int) -> list[int]:
        return self._random.sample(self._staying(), count)

    def _add(self, count: int) -> None:
        """Start so many fragments; one that is still on its way out is waited for."""
        absent = [f for f in range(1, LARGEST + 1) if f not in self._staying()]
        for fragment in absent[:count]:
            if fragment in self._going:
                self._see_off(fragment)
            words = (NNODES, MANY_STEPS, str(STEPS_TO_A_FILE))
            self._gang.start(fragment, *words, restarts=self._starts[fragment])
            self._starts[fragment] += 1

    def _see_off(self, fragment: int) -> None:
        """As a tick does: what is still there a notice later is ended."""
        try:
            self._gang.wait_exit(fragment, timeout=NOTICE_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                self._gang.cut_off(fragment, signal.SIGTERM)
            self._gang.wait_exit(fragment, timeout=self._patience_s)
        self._going.discard(fragment)

    def _send_away(self, fragments: list[int], sig: signal.Signals | None) -> None:
        """By notice (None) or abruptly."""
        self._going.update(fragments)
        for fragment in fragments:
            if sig is None:
                self._gang.notify(fragment)
            else:
                self._gang.cut_off(fragment, sig)


@contextlib.contextmanager
def course_here(
    work: Path, engine: str, is_watched: bool, seed: int, patience_s: float
) -> Iterator[HereCourse]:
    """A course whose agents end with it; `work` is empty."""
    kind = TorchrunGang if engine == "torchrun" else TorchftGang
    gang = kind(write_job_path(work / "jobpath"), work)
    if engine == "torchrun":
        gang.script = TRAININGS / "train_samples.py"
        gang.extra["TRAIN_WATCH"] = "1" if is_watched else ""
    try:
        yield HereCourse(gang, seed, patience_s)
    finally:
        gang.stop()
