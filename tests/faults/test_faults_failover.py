"""A backup slurmctld takes over, and the first slurmctld comes back.

Each has its own host name, by a name space: slurmctld uses the name to know which of the two it is.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator

import pytest

from faults.course import SLEEP, Course, NewCourse
from promises.bench import Bench
from slurm_hooks.errors import MalleableError, RetryLater
from slurm_hooks.sandbox import Sandbox, daemons
from slurm_hooks.sandbox.daemons import CONTROLLER
from slurm_hooks.sandbox.processes import Process, stop
from waiting import wait_until

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.faults,
    pytest.mark.skipif(os.geteuid() != 0, reason="gives a process a host name"),
]
SAVED_S = 7.0  # slurmctld writes its state a few seconds late (22.05)
# Both listen at every address, so a stand-back message would reach its sender, who obeys (24.11).
OWN_ADDRESS = "CommunicationParameters=NoCtldInAddrAny"
HOSTS = {"first": "127.0.0.1", "second": "127.0.0.2"}
# A host name, and a hosts file with it, for a single process.
ON_HOST = "mount --bind {hosts} /etc/hosts && hostname {name} && exec {slurmctld} -D -f {conf}"


@pytest.fixture
def second(fresh_sandbox: Callable[..., Sandbox]) -> Iterator[tuple[Sandbox, Process]]:
    """A sandbox with two slurmctld. Yield the backup.

    The backup is ended here, because the sandbox searches no other name space for processes.
    """
    box = fresh_sandbox(nodes=4, extra_conf="SlurmctldTimeout=10")
    give_two_controllers(box)
    box._remember({CONTROLLER: start_on(box, "first")})
    first = box.record.layout.logs / "first.out"
    wait_until(lambda: "first is UP" in pinged(box), 30, lambda: pinged(box) + first.read_text())
    backup = start_on(box, "second")
    try:
        box.wait_ready()
        yield box, backup
    finally:
        stop([backup], grace_s=0)


def fail_over(course: Course, backup: Process) -> None:
    """The first slurmctld dies, and ticks are tried until the backup answers."""
    box = course.bench.box
    course.began = time.monotonic()
    box.kill_controller()
    box._remember({CONTROLLER: backup})
    wait_until(lambda: answers(course), 60, every_s=1)


def test_failover_to_a_backup(second: tuple[Sandbox, Process], new_course: NewCourse) -> None:
    box, backup = second
    course = new_course(Bench(box).patient(), "slurmctld fails over to a backup")
    course.start()
    time.sleep(SAVED_S)
    fail_over(course, backup)
    course.settle(3)
    course.fault, course.began = "the first slurmctld comes back", time.monotonic()
    box._remember({CONTROLLER: start_on(box, "first")})
    wait_until(lambda: "first is UP" in pinged(box))
    wait_until(lambda: answers(course), 60, every_s=1)
    box.wait_ready()
    course.settle(3)


def test_failover_with_writes_lost(second: tuple[Sandbox, Process], new_course: NewCourse) -> None:
    """The backup believes that running fragments wait.

    Until the nodes have reported, no fragment may start, or Slurm would drain them ("Duplicate
    jobid").
    """
    box, backup = second
    course = new_course(Bench(box).patient(), "slurmctld fails over, its last writes lost")
    state, old = box.record.layout.state, box.dir / "old-state"
    course.job, course.count = course.bench.submit(SLEEP, "1-3"), 3
    time.sleep(SAVED_S)
    shutil.copytree(state, old)
    course.tick()
    course.bench.tick_until(course.job, lambda job: len(job.active) == 3)
    box.kill_controller()
    shutil.rmtree(state)
    old.rename(state)
    fail_over(course, backup)
    course.settle(3, most_ticks=6)


def give_two_controllers(box: Sandbox) -> None:
    """Stop the present slurmctld. Nodes read the configuration again."""
    box._stop(CONTROLLER, grace_s=30)
    conf = box.record.layout.conf
    hosts = "\n".join(f"SlurmctldHost={name}({address})" for name, address in HOSTS.items())
    text = conf.read_text().replace("SlurmctldHost=localhost(127.0.0.1)", hosts)
    conf.write_text(f"{text}{OWN_ADDRESS}\n")
    known = "".join(f"{address} {name}\n" for name, address in HOSTS.items())
    (conf.parent / "hosts").write_text(f"127.0.0.1 localhost\n{known}")
    for node in box.nodes:
        box.stop_node(node)
        started = daemons.start_node(box.record.slurm, box.record.layout, node)
        box._remember({node: started})


def start_on(box: Sandbox, name: str) -> Process:
    slurm, layout = box.record.slurm, box.record.layout
    (layout.run / "slurmctld.pid").unlink(missing_ok=True)  # it would end its writer
    text = ON_HOST.format(
        hosts=layout.etc / "hosts",
        name=name,
        slurmctld=slurm.daemon(CONTROLLER),
        conf=layout.conf,
    )
    argv = ["unshare", "--mount", "--uts", "sh", "-c", text]
    return daemons.spawn(argv, slurm, layout, layout.logs / f"{name}.out")


def pinged(box: Sandbox) -> str:
    return box.run(["scontrol", "ping"], check=False).stdout


def answers(course: Course) -> bool:
    """Tell whether a tick gets its answers. Until then it must be asked to retry later."""
    try:
        course.tick(timeout_s=5.0)
    except MalleableError as error:
        assert error.exit_code == RetryLater.exit_code, error  # noqa: PT017
        return False
    return True
