"""slurmd dead, rebooted, drained, taken out of the configuration, back with a fragment running."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from faults.course import SLEEP, Course, NewCourse
from promises.bench import TRAINER, Bench, has, usual_training
from slurm_hooks.model import Fragment, FragmentState, MalleableJob
from slurm_hooks.sandbox import Sandbox, daemons
from slurm_hooks.sandbox.processes import Process, find_processes, is_alive, stop
from waiting import wait_until

pytestmark = pytest.mark.slurm
long = pytest.mark.faults
NewSandbox = Callable[..., Sandbox]
REMINDED = 9  # ticks: each repeats a notice, once a second here, as long as it lasts
TIMEOUT_S = 10
SHORT = f"SlurmdTimeout={TIMEOUT_S}"  # a dead node is given up after so long


def one_node(course: Course) -> str:
    """A node on which a fragment of the job runs."""
    return min(course.bench.job(course.job).nodes)


def on_node(course: Course, node: str) -> list[Process]:
    """The processes of jobs on a node."""
    layout = course.bench.box.record.layout
    return [p for p in find_processes(layout.dir, layout.conf) if _is_on(p, node)]


def _is_on(process: Process, node: str) -> bool:
    try:
        environment = Path(f"/proc/{process.pid}/environ").read_bytes()
    except OSError:
        return False
    return f"SLURMD_NODENAME={node}".encode() in environment.split(b"\0")


def kill_slurmd(course: Course, node: str) -> None:
    course.signal(node, signal.SIGKILL)
    wait_until(lambda: node not in course.bench.box.running())


def is_down(course: Course, node: str) -> bool:
    return any(n.name == node and n.state.startswith("down") for n in course.look().nodes)


def test_slurmd_killed_and_started_again(course: Course) -> None:
    """Its fragment still runs, because it never stopped."""
    course.start()
    node = one_node(course)
    before = on_node(course, node)
    kill_slurmd(course, node)
    course.tick()
    course.bench.box.start_node(node)
    course.settle(3)
    assert before
    assert all(map(is_alive, before))


@pytest.fixture
def short_bench(fresh_sandbox: NewSandbox) -> Bench:
    """A separate bench where silent nodes are down after seconds."""
    return Bench(fresh_sandbox(nodes=4, extra_conf=SHORT)).patient()


@long
def test_a_dead_node_comes_back_with_its_fragment(
    short_bench: Bench, new_course: NewCourse
) -> None:
    """Only slurmd dies: Slurm gives the node up and requeues, while the processes go on."""
    course = new_course(short_bench, "slurmd dies")
    course.start()
    node = one_node(course)
    kill_slurmd(course, node)
    left = on_node(course, node)
    wait_until(lambda: is_down(course, node), 60, every_s=1)
    course.settle(3, {node: "Not responding"}, most_ticks=4, limit_s=90)
    assert left
    course.fault = "slurmd comes back with a fragment running"
    course.began = time.monotonic()
    short_bench.box.start_node(node)
    wait_until(lambda: not any(map(is_alive, left)))
    course.settle(3)


@long
def test_a_node_reboots(course: Course) -> None:
    course.start()
    node, box = one_node(course), course.bench.box
    kill_slurmd(course, node)
    stop(on_node(course, node), grace_s=0)
    layout, slurm = box.record.layout, box.record.slurm
    argv = [slurm.daemon("slurmd"), "-b", "-D", "-f", str(layout.conf), "-N", node]
    booted = daemons.spawn(argv, slurm, layout, layout.logs / f"{node}.out")
    try:
        course.settle(3, most_ticks=4, limit_s=90)
    finally:
        stop([booted], grace_s=5)
        box.start_node(node)


@long
def test_a_node_drained_in_mid_lease(course: Course) -> None:
    """Under a training, which repeats and loses no sample."""
    pytest.importorskip("torch")
    box = course.bench.box
    work = box.work / "usual"
    course.start(script=usual_training(work, 100_000, "watch"), user=TRAINER)
    wait_until((work / "steps.log").exists)
    course.began = time.monotonic()
    node = one_node(course)
    box.run(["scontrol", "update", f"nodename={node}", "state=drain", "reason=operator"])
    try:
        course.settle(3, {node: "drained operator"}, most_ticks=REMINDED)
        (work / "enough").touch()
        wait_until((work / "finished").exists)
    finally:
        box.run(["scontrol", "update", f"nodename={node}", "state=resume"])
    assert json.loads((work / "finished").read_text())["off"] == 0
    logs = [path.read_text() for path in box.work.glob(f"slurm-{course.job}_*.out")]
    assert not [log for log in logs if "DataLoader worker" in log], logs


@long
def test_a_node_removed_from_the_configuration(
    fresh_sandbox: NewSandbox, new_course: NewCourse
) -> None:
    """The node is drained and empty, as sites do it. Its fragment waits, and others run."""
    box = fresh_sandbox(nodes=4)
    course = new_course(Bench(box).patient(), "node removed from the configuration")
    course.start(wanted=4)
    run = box.run
    run(["scontrol", "update", "nodename=n4", "state=drain", "reason=removed"])
    course.bench.tick_until(course.job, lambda job: len(job.active) == 3 and not leaving(job))
    course.began = time.monotonic()
    remove_last(box)
    course.settle(3)


@long
def test_a_node_removed_under_its_fragment(
    fresh_sandbox: NewSandbox, new_course: NewCourse
) -> None:
    box = fresh_sandbox(nodes=4)
    course = new_course(Bench(box).patient(), "node removed under its fragment")
    course.start(wanted=4)
    left = on_node(course, "n4")
    remove_last(box)
    try:
        course.settle(3)
    finally:
        stop(left, grace_s=0)


@long
def test_a_node_removed_that_a_waiting_pair_once_ran_on(
    fresh_sandbox: NewSandbox, new_course: NewCourse
) -> None:
    """slurmctld (22.05) ends each job for good whose ReqNodeList names a removed node."""
    box = fresh_sandbox(nodes=4)
    course = new_course(Bench(box).patient(), "node removed, fragments of two nodes")
    course.job = course.bench.submit(SLEEP, "2-4,unit=2")
    course.count = 2
    course.tick()
    course.bench.until(course.job, has(2))
    box.run(["scontrol", "update", "nodename=n4", "state=drain", "reason=removed"])
    course.bench.tick_until(course.job, lambda j: has(1)(j) and has(1, FragmentState.HELD)(j))
    course.began = time.monotonic()
    remove_last(box)
    course.settle(1, limit_s=15)


def leaving(job: MalleableJob) -> bool:
    return any(
        f.state in (FragmentState.RUNNING, FragmentState.ENDING) and f.is_leaving
        for f in job.fragments
    )


def remove_last(box: Sandbox) -> None:
    """Remove n4 from slurm.conf. Restart slurmctld and the other slurmd, as the manual asks."""
    box.stop_node("n4")
    conf, port = box.record.layout.conf, box.record.layout.node_port
    text = conf.read_text().replace("n[1-4]", "n[1-3]")
    conf.write_text(text.replace(f"{port}-{port + 3}", f"{port}-{port + 2}"))
    box.restart_controller()
    for name in ("n1", "n2", "n3"):
        box.stop_node(name)
        box._remember({name: daemons.start_node(box.record.slurm, box.record.layout, name)})
    box.wait_ready(["n1", "n2", "n3"])


@long
def test_a_black_hole(course: Course) -> None:
    """Every fragment that starts on n3 fails at once."""
    script = "[ $SLURMD_NODENAME = n3 ] && exit 1; exec sleep 600"
    course.start(script=script, is_strict=False)
    course.settle(3, most_ticks=6, limit_s=60)
    assert "n3" not in {e.nodes for e in course.looks[-1].elements if e.state == "RUNNING"}


@pytest.fixture
def broken(course: Course) -> Iterator[str]:
    """A node whose slurmd answers and cannot start anything, as after half an upgrade."""
    box, node = course.bench.box, "n3"
    slurm, layout = box.record.slurm, box.record.layout
    if os.geteuid() or slurm.prefix:
        pytest.skip("needs root, and a Slurm of this host")
    slurmd = slurm.daemon("slurmd")
    hidden = f"mount --bind /bin/false {Path(slurmd).with_name('slurmstepd')}"
    started = f"{hidden} && exec {slurmd} -D -f {layout.conf} -N {node}"
    box.stop_node(node)
    argv = ["unshare", "--mount", "sh", "-c", started]
    slurmd_there = daemons.spawn(argv, slurm, layout, layout.logs / f"{node}.out")
    box.wait_ready([node])
    yield node
    stop([slurmd_there], grace_s=10)
    box.start_node(node)


@long
def test_a_node_where_nothing_can_be_started(course: Course, broken: str) -> None:
    course.start(wanted=4, is_strict=False)

    def fragments() -> Sequence[Fragment]:
        return course.bench.job(course.job).fragments

    def has_failed_twice() -> bool:
        course.tick()
        return any(f.mark.vain == 2 for f in fragments())

    wait_until(has_failed_twice, every_s=1)
    course.settle(3, most_ticks=6, limit_s=60)
    assert {a.node for f in fragments() for a in f.mark.unfit} == {broken}
    assert sum(f.restarts for f in fragments()) == 2
    assert "LaunchFailed" in course.bench.malleable("explain", str(course.job)).stdout
