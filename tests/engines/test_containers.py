"""torchrun in containers, in a real Slurm.

Two fragments meet, keep the state in the node's memory, and a fragment leaves with notice. At the
end of the training every sample was learnt as often as intended.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from engines.containers import (
    PODMAN_ALONE,
    RUNTIMES,
    Runtime,
    make_image,
    podman_with_our_processes,
    prepare,
    python_of_the_tests,
    slurms_commands,
    usable,
)
from promises.bench import TRAINER, WITH_TORCHRUN, Bench, has, occupied
from slurm_hooks.model import MalleableJob
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.engines, pytest.mark.nightly]
TRAIN = Path(__file__).resolve().parents[1] / "elastic" / "train_usual.py"
LONG = 100_000

# The notice for a container that podman keeps outside of the job's process tree.
PASSED_ON = """
{podman} --replace --name=m$SLURM_JOB_ID {rest} &
trap 'podman kill --signal=URG m$SLURM_JOB_ID' URG
trap 'podman kill --signal=TERM m$SLURM_JOB_ID' TERM
wait $!; code=$?
while [ $code -gt 128 ] && kill -0 $! 2>/dev/null; do wait $!; code=$?; done
exit $code
"""


@pytest.fixture(scope="module")
def image() -> Path:
    return make_image()


@pytest.fixture
def bench(sandbox: Sandbox) -> Iterator[Bench]:
    pytest.importorskip("torch")
    bench = Bench(sandbox, notice_s=10)
    bench.share_at_once()
    shutil.copy(TRAIN, sandbox.work / "train.py")
    yield bench
    bench.cancel_all()


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Training:
    """A training and its notes. Its first step comes so many seconds after its start."""

    def __init__(self, bench: Bench, start_s: int = 0) -> None:
        self.bench, self.start_s = bench, start_s
        self.work = bench.box.work / f"run{time.monotonic_ns()}"
        self.work.mkdir()

    @property
    def begins(self) -> list[dict[str, object]]:
        return lines(self.work / "begins.jsonl")

    @property
    def program(self) -> str:
        return f"train.py {self.work} {LONG} watch"

    def worlds(self) -> list[object]:
        return [line["world"] for line in self.begins if line["rank"] == 0]

    def log(self) -> str:
        paths = sorted(self.bench.box.work.glob(f"slurm-{self.job}_*.out"))
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')}" for path in paths)

    def submit(self, script: str) -> None:
        lines = f"{WITH_TORCHRUN}\nexport USER=root TRAIN_START_S={self.start_s}\n{script}"
        self.job = self.bench.submit(lines, "1-2", TRAINER)
        self.bench.tick()
        self.bench.until(self.job, has(2))

    def wait_for_world(self, size: int, count: int = 1) -> None:
        wait_until(
            lambda: self.worlds().count(size) >= count and (self.work / "reached-0").exists(),
            explain=self.log,
        )

    def lose_a_node(self) -> str:
        """The reconciler asks the second fragment to leave: its node is drained."""
        job = self.bench.job(self.job)
        node = next(n for f in job.fragments if f.id.index == 1 for n in f.nodes)
        words = ["scontrol", "update", f"nodename={node}", "reason=test"]
        self.bench.box.run([*words, "state=drain"])
        try:
            self.bench.tick_until(self.job, lambda j: node not in occupied(j))
        finally:
            self.bench.box.run([*words[:3], "state=resume"])
        return node

    def has_kept_its_state(self) -> bool:
        """Tell whether every start resumed at a step with the same state, to the bit."""
        known: dict[int, set[str]] = {}
        for path in self.work.glob("digests-*"):
            for step, digest in map(str.split, path.read_text().splitlines()):
                known.setdefault(int(step), set()).add(digest)
        later = [line for line in self.begins if line["step"]]
        return bool(later) and all(
            line["digest"] in known[int(str(line["step"]))] for line in later
        )

    def end(self) -> None:
        (self.work / "enough").touch()
        wait_until((self.work / "finished").exists, explain=self.log)


def mounts(bench: Bench, more: Sequence[Path] = ()) -> list[Path]:
    return [*python_of_the_tests(), bench.box.dir.resolve(), *more]


def is_over(job: MalleableJob) -> bool:
    return not occupied(job)


def command(runtime: Runtime, image: Path, mounted: Sequence[Path]) -> str:
    usable(runtime, image)
    prepare(image, mounted)
    return " ".join(runtime.words(image, mounted))


def inside(runtime: Runtime, image: Path, mounted: Sequence[Path], program: str) -> str:
    """The end of a script that runs this in a container."""
    first = command(runtime, image, mounted)
    if runtime.words is not podman_with_our_processes:
        return f"exec {first} {program}"
    start, _, rest = first.partition(" --rm ")
    return PASSED_ON.format(podman=f"{start} --rm", rest=f"{rest} {program}")


@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda runtime: runtime.name)
def test_a_training_grows_leaves_and_finishes(bench: Bench, image: Path, runtime: Runtime) -> None:
    training = Training(bench, start_s=10)
    mounted = mounts(bench, slurms_commands())
    training.submit(inside(runtime, image, mounted, f"torchrun {training.program}"))
    training.wait_for_world(2)
    before = training.worlds().count(1)
    training.lose_a_node()
    training.wait_for_world(1, before + 1)
    assert "leaves as it was asked to" in training.log()
    assert not (training.work / "checkpoint.pt").exists()  # the node's memory had the state
    training.end()
    bench.tick_until(training.job, is_over)
    assert training.has_kept_its_state()
    assert json.loads((training.work / "finished").read_text()) == {"off": 0}
    assert "Traceback" not in training.log(), training.log()


@pytest.mark.parametrize("runtime", RUNTIMES[:1], ids=lambda runtime: runtime.name)
def test_a_training_without_slurm_s_commands_ends_with_its_lease(
    bench: Bench, image: Path, runtime: Runtime
) -> None:
    training = Training(bench)
    training.submit(inside(runtime, image, mounts(bench), f"torchrun {training.program}"))
    training.wait_for_world(2)
    before = training.worlds().count(1)
    training.lose_a_node()
    training.wait_for_world(1, before + 1)
    training.end()
    bench.tick_until(training.job, is_over)
    assert training.has_kept_its_state()
    assert "squeue and scontrol not found in PATH" in training.log()
    assert "keeping this node until it succeeds" in training.log()
    assert (training.work / "finished").exists()


def test_workers_in_separate_containers_have_the_agents_memory(bench: Bench, image: Path) -> None:
    """The agent runs on the node, each of its workers in a container with its own process ids."""
    training = Training(bench)
    first = command(PODMAN_ALONE, image, mounts(bench))
    program = f"torchrun --no-python {first} python {training.program}"
    training.submit(f"exec {program}")
    training.wait_for_world(2)
    assert {line["pid"] for line in training.begins} == {1}
    before = training.worlds().count(1)
    training.lose_a_node()
    training.wait_for_world(1, before + 1)
    assert not (training.work / "checkpoint.pt").exists()
    training.end()
    bench.tick_until(training.job, is_over)
    assert training.has_kept_its_state()


@pytest.fixture
def confined(fresh_sandbox: Callable[..., Sandbox]) -> Iterator[Bench]:
    """Slurm follows each job's processes with a separate cgroup."""
    if not os.access("/sys/fs/cgroup/freezer", os.W_OK):
        pytest.skip("this host has no cgroup freezer (v1) that tests may use")
    box = fresh_sandbox(
        nodes=2,
        extra_conf="ProctrackType=proctrack/cgroup\n",
        extra_files=(("cgroup.conf", "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n"),),
    )
    bench = Bench(box, notice_s=10)
    bench.share_at_once()
    shutil.copy(TRAIN, box.work / "train.py")
    yield bench
    bench.cancel_all()


def test_a_slurm_that_confines_jobs_by_cgroups(confined: Bench) -> None:
    training = Training(confined)
    training.submit(f"grep freezer /proc/self/cgroup\nexec torchrun {training.program}")
    training.wait_for_world(2)
    assert "/slurm_" in training.log()
    before = training.worlds().count(1)
    training.lose_a_node()
    training.wait_for_world(1, before + 1)
    assert "leaves as it was asked to" in training.log()
    training.end()
    confined.tick_until(training.job, is_over)
    assert training.has_kept_its_state()
