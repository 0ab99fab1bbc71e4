"""Prolog and Epilog are killed, slow, or out of disk space, or slurmdbd is absent."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from faults.course import Course, NewCourse
from promises.bench import Bench
from sites.admin import skip_without_database
from slurm_hooks.sandbox import Sandbox

pytestmark = [pytest.mark.slurm, pytest.mark.faults]
NewSandbox = Callable[..., Sandbox]
FAULTY = "n1"
# The action of each on a node. Hooks have no PATH.
DEEDS = {
    "killed": "kill -9 $$",
    "out of disk space": "echo note >/dev/full || exit 1",
}
SLOW = "/bin/sleep 5"
SILENT_S = 15.0


@dataclass(frozen=True)
class Hooks:
    """A sandbox whose Prolog and Epilog can be made to fail. The Epilog ends in the
    project's Epilog.
    """

    bench: Bench
    place: Path

    def set(self, name: str, deed: str, node: str = FAULTY) -> None:
        """Set a hook's first action on a node, or on all nodes if `node` is a star."""
        last = f"exec {self.bench.box.dir}/etc/epilog.sh" if name == "epilog" else "exit 0"
        guard = f'case "$SLURMD_NODENAME" in {node}) {deed};; esac\n' if deed else ""
        draft = self.place / "draft"
        draft.write_text(f"#!/bin/sh\n{guard}{last}\n")
        draft.chmod(0o755)
        draft.rename(self.place / name)


@pytest.fixture(scope="module")
def hooks(new_site: NewSandbox, tmp_path_factory: pytest.TempPathFactory) -> Hooks:
    place = tmp_path_factory.mktemp("hooks")
    conf = f"Prolog={place}/prolog\nEpilog={place}/epilog\n"
    sandbox = Hooks(Bench(new_site(nodes=4, extra_conf=conf)).patient(), place)
    sandbox.set("prolog", "")
    sandbox.set("epilog", "")
    return sandbox


@pytest.fixture
def course(hooks: Hooks, new_course: NewCourse, request: pytest.FixtureRequest) -> Iterator[Course]:
    yield new_course(hooks.bench, request.node.name.removeprefix("test_").replace("_", " "))
    hooks.set("prolog", "")
    hooks.set("epilog", "")
    state = hooks.bench.box.run(["sinfo", "-h", "-n", FAULTY, "-p", "main", "-o", "%T"]).stdout
    if state.startswith(("drain", "down")):
        hooks.bench.box.run(["scontrol", "update", f"nodename={FAULTY}", "state=resume"])
    hooks.bench.cancel_all()


@pytest.mark.parametrize("deed", DEEDS)
def test_prolog(hooks: Hooks, course: Course, deed: str) -> None:
    """Slurm drains the node, requeues the fragment and holds it. It starts on another node."""
    hooks.set("prolog", DEEDS[deed])
    course.start(is_strict=False)
    course.settle(3, {FAULTY: "Prolog error"}, most_ticks=6, limit_s=60)


@pytest.mark.parametrize("deed", DEEDS)
def test_epilog(hooks: Hooks, course: Course, deed: str) -> None:
    """Slurm drains the node of a fragment that has left it."""
    course.start()
    hooks.set("epilog", DEEDS[deed])
    victim = next(e.name for e in course.look().elements if e.nodes == FAULTY)
    course.bench.box.run(["scontrol", "requeue", victim])
    course.settle(3, {FAULTY: "Epilog error"}, most_ticks=6, limit_s=60)


@pytest.mark.parametrize("name", ["prolog", "epilog"])
def test_slow(hooks: Hooks, course: Course, name: str) -> None:
    hooks.set(name, SLOW, "*")
    course.start(is_strict=False)
    course.bench.until(course.job, lambda job: len(job.active) == 3)
    victim = min(e.name for e in course.look().elements if e.state == "RUNNING")
    course.bench.box.run(["scontrol", "requeue", victim])
    course.settle(3, most_ticks=6, limit_s=60)


def accounted(fresh_sandbox: NewSandbox) -> Bench:
    """slurmctld starts only with a database that has answered once."""
    skip_without_database()
    return Bench(fresh_sandbox(nodes=3, is_accounting=True)).patient()


def put_one_back(course: Course) -> None:
    victim = min(e.name for e in course.look().elements if e.state == "RUNNING")
    course.bench.box.run(["scontrol", "requeue", victim])


def test_slurmdbd_absent(fresh_sandbox: NewSandbox, new_course: NewCourse) -> None:
    """slurmctld keeps its messages to slurmdbd."""
    course = new_course(accounted(fresh_sandbox), "slurmdbd dies")
    course.start(2)
    course.signal("slurmdbd", signal.SIGKILL)
    put_one_back(course)
    course.settle(2, most_ticks=6, limit_s=60)


def test_slurmdbd_silent(fresh_sandbox: NewSandbox, new_course: NewCourse) -> None:
    """slurmctld waits for it, and ticks for slurmctld."""
    course = new_course(accounted(fresh_sandbox), f"slurmdbd silent for {SILENT_S:.0f} s")
    course.start(2)
    course.signal("slurmdbd", signal.SIGSTOP)
    awake = threading.Timer(SILENT_S, course.signal, ("slurmdbd", signal.SIGCONT))
    awake.start()
    put_one_back(course)
    course.settle(2, most_ticks=6, limit_s=90)
    awake.join()
