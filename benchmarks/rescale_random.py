"""Two hundred changes of size in a row: `rescale_random.py [--engine=torchft] [--watch]`.

One training on this host, between 1 and 5 fragments (MIN 2), grows, shrinks with notice, loses
fragments by SIGKILL and SIGTERM, several at once, goes back to MIN, below MIN and back, by a
seeded course that does not always wait until a change has taken effect. Its model counts how
often each sample was learnt, so that at the end every sample lost or learnt twice shows, and its
weight is compared with that of an undisturbed run of as many steps.

The last line is one JSON object; exit code 1 if the job was lost or a sample was.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from elastic.gang import Gang  # noqa: E402  (the tests' way to start agents on one host)
from elastic.groups import Groups  # noqa: E402
from slurm_hooks.elastic import ElasticBatches  # noqa: E402
from slurm_hooks.jobpath import write_job_path  # noqa: E402

SMALLEST, LARGEST = 2, 5
NNODES = f"{SMALLEST}:{LARGEST}"
STALL_S = 90.0
NOTICE_S = 20.0
SAMPLES, BATCH = 997, 24  # as in the script


class LostError(Exception):
    """The training did not go on."""


def as_shipped(env: dict[str, str]) -> dict[str, str]:
    """An agent's environment with the defaults of a site."""
    shortened = ("LAST_CALL_S", "KEEP_ALIVE_S", "BEAT_S", "SETTLE_S")
    return {k: v for k, v in env.items() if k not in {f"MALLEABLE_{name}" for name in shortened}}


class TorchrunGang(Gang):
    """Agents on this host as a job has them."""

    def environment(self, fragment: int, nnodes: str, restarts: int = 0) -> dict[str, str]:
        return as_shipped(super().environment(fragment, nnodes, restarts))

    def outcome(self) -> dict[str, float]:
        """The newest checkpoint, once all have left."""
        saved = torch.load(self.work / "checkpoint.pt", weights_only=True)
        steps, content = int(saved["step"]), saved["content"]
        counts, _ = undisturbed(steps)
        off = [int(a) - b for a, b in zip(content["counts"].tolist(), counts)]
        return {
            "step": steps,
            "lost": sum(max(0, -n) for n in off),
            "twice": sum(max(0, n) for n in off),
            "weight": float(content["weight"]),
        }


class TorchftGang(Groups):
    """Replica groups on this host as a job has them."""

    smallest, largest = SMALLEST, LARGEST

    def environment(self, fragment: int, nnodes: str, restarts: int = 0) -> dict[str, str]:
        return as_shipped(super().environment(fragment, nnodes, restarts))

    def outcome(self) -> dict[str, float]:
        """What the worst of the groups found out about its model at the end."""
        found = [json.loads(path.read_text()) for path in self.work.glob("finished-*")]
        return max(found, key=lambda result: float(result["lost"] + result["twice"]))


class Course:
    """The fragments, and the changes they go through."""

    def __init__(self, gang: TorchrunGang | TorchftGang, seed: int) -> None:
        self._gang = gang
        self._random = random.Random(seed)
        self._starts: Counter[int] = Counter()
        self._going: set[int] = set()
        self.told: Counter[str] = Counter()

    def staying(self) -> list[int]:
        """Fragments that run and were not sent away; raises LostError if one ended."""
        for fragment, agent in self._gang.agents.items():
            if fragment not in self._going and agent.poll() is not None:
                raise LostError(f"fragment {fragment} ended by itself: {agent.returncode}")
        return [f for f in self._gang.agents if f not in self._going]

    def change(self) -> str:
        """One change, as the course has it."""
        size = len(self.staying())
        kinds = ["shrink", "kill", "term", "to MIN", "mixed"] if size > SMALLEST else []
        kinds += ["grow"] * 3 + ["several grow"] if size < LARGEST else []
        kinds += ["below MIN and back"] if size == SMALLEST else []
        kind = self._random.choice(kinds)
        self.told[kind] += 1
        self._do(kind, size)
        return kind

    def _do(self, kind: str, size: int) -> None:
        if kind in ("grow", "several grow"):
            self.add(1 if kind == "grow" else LARGEST - size)
        elif kind == "shrink":
            self.send_away(self._some(1), None)
        elif kind in ("kill", "term"):
            self.send_away(self._some(1), signal.SIGKILL if kind == "kill" else signal.SIGTERM)
        elif kind == "to MIN":
            self.send_away(self._some(size - SMALLEST), None)
        elif kind == "mixed":
            self.send_away(self._some(1), None)
            self.add(1)
        else:
            self.send_away(self._some(1), self._random.choice([None, signal.SIGKILL]))
            time.sleep(self._random.uniform(0.0, 3.0))
            self.add(2)

    def _some(self, count: int) -> list[int]:
        return self._random.sample(self.staying(), count)

    def add(self, count: int) -> None:
        """Start so many fragments; one that is still on its way out is waited for."""
        absent = [f for f in range(1, LARGEST + 1) if f not in self.staying()]
        for fragment in absent[:count]:
            if fragment in self._going:
                self._see_off(fragment)
            self._gang.start(fragment, NNODES, 10**9, "50", restarts=self._starts[fragment])
            self._starts[fragment] += 1

    def _see_off(self, fragment: int) -> None:
        """As a tick does: what is still there a notice later is ended."""
        try:
            self._gang.wait_exit(fragment, timeout=NOTICE_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                self._gang.cut_off(fragment, signal.SIGTERM)
            self._gang.wait_exit(fragment, timeout=STALL_S)
        self._going.discard(fragment)

    def end(self) -> None:
        """Everybody goes; whoever was too young to hear its notice is ended as by a tick."""
        self.send_away(self.staying(), None)
        for fragment in sorted(self._going):
            self._see_off(fragment)

    def send_away(self, fragments: list[int], sig: signal.Signals | None) -> None:
        """By notice (None) or abruptly."""
        self._going.update(fragments)
        for fragment in fragments:
            if sig is None:
                self._gang.notify(fragment)
            else:
                self._gang.cut_off(fragment, sig)

    def rest(self, must_step: bool) -> None:
        """Between two changes; `must_step`: until the training goes on."""
        steps = len(self._gang.steps())
        deadline = time.monotonic() + STALL_S
        time.sleep(self._random.uniform(0.2, 2.0))
        while must_step and len(self._gang.steps()) < steps + 20:
            self.staying()
            if time.monotonic() > deadline:
                raise LostError(f"no step for {STALL_S:.0f} s")
            time.sleep(0.2)


def undisturbed(steps: int) -> tuple[list[int], float]:
    """How often each sample is learnt in so many steps, and the weight they end with."""
    counts, weight = [0] * SAMPLES, 0.0
    target = torch.linspace(-1, 1, SAMPLES).tolist()
    whole = ElasticBatches(SAMPLES, BATCH, steps, rank=0, world=1)
    for step in range(steps):
        batch = whole.batch_of(step)
        weight -= 0.05 * sum(weight - target[index] for index in batch) / BATCH
        for index in batch:
            counts[index] += 1
    return counts, weight


def verdict(found: dict[str, float]) -> dict[str, object]:
    """What the training ended with against an undisturbed run of as many steps."""
    _, weight = undisturbed(int(found["step"]))
    return {
        "steps": found["step"],
        "samples_lost": found["lost"],
        "samples_twice": found["twice"],
        "weight": round(found["weight"], 6),
        "weight_off": round(math.fabs(found["weight"] - weight), 6),
    }


def travel(course: Course, gang: TorchrunGang | TorchftGang, changes: int) -> None:
    course.add(3)
    course.rest(must_step=True)
    for number in range(changes):
        kind = course.change()
        course.rest(must_step=number % 3 == 2)
        if number % 10 == 9:
            print(f"{number + 1}: {kind}; step {gang.steps()[-1][1]}", flush=True)
    course.rest(must_step=True)
    (gang.work / "enough").touch()  # replica groups end by themselves, the others are sent away
    if isinstance(gang, TorchrunGang):
        course.end()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--engine", choices=("torchrun", "torchft"), default="torchrun")
    parser.add_argument("--watch", action="store_true", help="nothing is saved in advance")
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rescale-") as place:
        work = Path(place)
        gang = (TorchrunGang if options.engine == "torchrun" else TorchftGang)(
            write_job_path(work / "jobpath"), work
        )
        if options.engine == "torchrun":
            gang.script = ROOT / "tests" / "elastic" / "train_samples.py"
            gang.extra["TRAIN_WATCH"] = "1" if options.watch else ""
        course = Course(gang, options.seed)
        told: dict[str, object] = {
            "engine": options.engine,
            "watch": options.watch,
            "changes": options.changes,
            "seed": options.seed,
        }
        try:
            travel(course, gang, options.changes)
            gang.wait_exit(*gang.agents, timeout=60)
            told["jobs_lost"] = 0
        except (LostError, subprocess.TimeoutExpired) as lost:
            print(gang.dump())
            print(f"lost: {lost}")
            told["jobs_lost"] = 1
        finally:
            gang.stop()
        told.update(verdict(gang.outcome()))
        if options.engine == "torchrun":
            steps = [s for _, s, _ in gang.steps()]
            told["steps_again"] = len(steps) - len(set(steps))
    told.update(kinds=dict(course.told), seconds=round(time.monotonic() - began))
    print(json.dumps(told))
    return int(bool(told["jobs_lost"] or told["samples_lost"] or told["samples_twice"]))


if __name__ == "__main__":
    sys.exit(main())
