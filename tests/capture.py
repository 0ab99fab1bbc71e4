"""Captures the answers of a real Slurm in a life of two malleable jobs, a file for each situation.

    python -m capture DIRECTORY        # as root; `make test-matrix` runs it on other releases

The files name no host, no kernel and no user except root and `nobody`, so they can be kept.
tests/captured/24.11, 25.11 and 26.05 were made this way. (22.05 has an older life.)
`tests/slurm_wire/test_captured_life.py` says how the files must read.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from slurm_hooks.model import FragmentState, NodeState, Snapshot
from slurm_hooks.sandbox import Sandbox, SandboxSpec
from slurm_hooks.slurm.gateway import observe
from slurm_hooks.slurm.live import Asked, Live
from slurm_hooks.slurm.text import Command
from waiting import wait_until

NODES = 8
MARK = "malleable{min=1,max=6,unit=1,engine=torchrun,frags=6,lease=120,hole=60}"
FOREIGN = f"site note; {MARK} | more|text"
CONF = "MinJobAge=3600\n"
# The fields of slurmctld's configuration that the readers use. The rest names hosts and paths.
CONFIG = re.compile(
    r"(Configuration data|(ClusterName|JobRequeue|KillWait|MaxArraySize|MinJobAge|Preempt\w+"
    r"|Priority(Type|Flags)|SchedulerType|OverTimeLimit|SLURM_VERSION) )"
)
SCRIPT = """#!/bin/bash
case $SLURM_ARRAY_TASK_ID in
2) exit 0 ;;
3) exit 3 ;;
esac
trap '' TERM
for i in {1..600}; do sleep 1; done
"""
STATE = FragmentState


@dataclass
class Keeper:
    """A Port that remembers the last answer of each command."""

    live: Live
    answers: dict[str, str] = field(default_factory=dict)

    @property
    def asked(self) -> list[Asked]:
        return self.live.asked

    def ask(self, command: Command) -> str:
        """See Port."""
        answer = self.live.ask(command)
        self.answers[command.argv[0]] = answer
        return answer


def scrub(answer: str) -> str:
    """Remove the kernel, and all of the configuration that is not read."""
    head, config, rest = answer.partition("scontrol: show config\n")
    lines = [line for line in rest.splitlines(keepends=True) if CONFIG.match(line)]
    head = re.sub(r"OS=Linux .*? (?=RealMemory=)", "OS=Linux 6.1.0 #1 SMP ", head)
    return head + config + "".join(lines)


@dataclass
class Life:
    """A machine on which people act, and Slurm's answers about it in `to`."""

    box: Sandbox
    to: Path

    def do(self, *argv: str, user: str = "root") -> str:
        """Type a command. Return its output."""
        as_user = None if user == "root" else user
        return self.box.run(list(argv), user=as_user).stdout

    def control(self, *words: str) -> None:
        """scontrol with these words."""
        self.do("scontrol", *words)

    def look(self) -> tuple[Snapshot, Keeper]:
        """The snapshot of a tick now, and the answers that it used."""
        keeper = Keeper(Live(20.0, environment=dict(self.box.environment)))
        return observe(keeper, ["malleable"]), keeper

    def keep(self, situation: str, holds: Callable[[Snapshot], bool], limit_s: int = 60) -> None:
        """Wait until Slurm shows the condition, and keep its answer."""

        def look() -> dict[str, str]:
            seen, keeper = self.look()
            return keeper.answers if holds(seen) else {}

        answers = wait_until(look, limit_s, lambda: (situation, self.look()[0]))
        (self.to / f"{situation}.squeue.txt").write_text(answers["squeue"])
        (self.to / f"{situation}.scontrol.txt").write_text(scrub(answers["scontrol"]))

    def array(self, user: str) -> int:
        """A held array of six fragments, marked as job_submit would."""
        argv = ["sbatch", "--parsable", "-p", "malleable", "--hold", "--array=0-5", "--time=2"]
        argv += ["--requeue", "-N1", "--output=/dev/null", str(self.box.work / "fragment.sh")]
        job = int(self.do(*argv, user=user))
        self.control("update", f"JobId={job}", f"AdminComment={MARK}")
        return job

    def start(self, element: str, node: str, limit: str = "10") -> None:
        """Start fragments as a tick does."""
        changes = [f"ReqNodeList={node}", f"TimeLimit={limit}", "StartTime=now"]
        self.control("update", f"JobId={element}", *changes)
        self.control("release", element)

    def rigid(self, *options: str) -> str:
        """Submit a job of another user that sleeps. Return its id."""
        argv = ["sbatch", "--parsable", "-p", "main", "--output=/dev/null", *options]
        return self.do(*argv, "--wrap=exec sleep 600").strip()


def states(seen: Snapshot, job: int) -> list[FragmentState]:
    """The states of the `job`-th job's fragments."""
    return [f.state for f in seen.jobs[job].fragments] if len(seen.jobs) > job else []


def node(seen: Snapshot, name: str) -> NodeState:
    """The state of a node."""
    return next(n.state for n in seen.nodes if n.name == name)


def is_closed(seen: Snapshot) -> bool:
    """No node takes malleable jobs."""
    return all("malleable" not in n.partitions for n in seen.nodes)


def live(life: Life) -> None:
    """The whole life, in the order of its situations."""
    first = life.array("nobody")
    life.keep("held", lambda seen: states(seen, 0) == [STATE.HELD] * 6)
    blocker = life.rigid("-N1", "-w", "n5", "--time=20")
    waiting = [life.rigid(f"-N{NODES}", "--time=5") for _ in range(2)]
    life.keep("planned", lambda seen: [len(p.nodes) for p in seen.planned] == [NODES] * 2)
    life.do("scancel", *waiting)

    second = life.array("root")
    for index, (limit, where) in enumerate([("1", "n1"), ("10", "n2"), ("5", "n3"), ("5", "n4")]):
        life.start(f"{first}_{index}", where, limit)
    life.start(f"{first}_4", "n5")
    ended = [STATE.RUNNING, STATE.RUNNING, STATE.DONE, STATE.FAILED, STATE.PENDING, STATE.HELD]
    life.keep("running", lambda seen: states(seen, 0) == ended)

    for index, where in enumerate(["n6", "n7"]):
        life.start(f"{second}_{index}", where)
    wait_until(lambda: states(life.look()[0], 1)[:2] == [STATE.RUNNING] * 2)
    for where in ("n2", "n3"):
        life.control("update", f"NodeName={where}", "State=DRAIN", "Reason=test")
    mend = ["StartTime=now", "Duration=60", "Nodes=n8", "Users=root", "Flags=MAINT"]
    life.control("create", "reservation", "ReservationName=mend", *mend)
    wait_until(lambda: node(life.look()[0], "n8") is NodeState.LEAVING)
    life.control("requeuehold", f"{second}_[0-1]")
    life.keep("leaving", lambda seen: states(seen, 1)[:2] == [STATE.ENDING] * 2)
    life.control("delete", "ReservationName=mend")
    for where in ("n2", "n3"):
        life.control("update", f"NodeName={where}", "State=RESUME")

    life.start(f"{second}_4", "n8")
    wait_until(lambda: states(life.look()[0], 1)[4] == STATE.RUNNING)
    life.control("requeue", f"{second}_4")
    life.keep("requeued", lambda seen: states(seen, 1)[4] == STATE.PENDING)
    life.control("hold", f"{second}_4")

    life.control("update", "NodeName=n6", "State=DOWN", "Reason=test")
    later = ["StartTime=now+2hours", "Duration=60", "Nodes=n4", "Users=root"]
    life.control("create", "reservation", "ReservationName=later", *later)
    small = life.rigid("-N1", "-w", "n5", "--time=5")
    life.keep("trouble", lambda seen: len(seen.planned) == 1)
    life.do("scancel", small)
    life.control("update", "NodeName=n6", "State=RESUME")

    life.keep("timed_out", lambda seen: states(seen, 0)[0] == STATE.TIMED_OUT, limit_s=150)
    for index in (0, 1, 3):
        life.control("requeuehold", f"{first}_{index}")
    back = [STATE.HELD, STATE.HELD, STATE.DONE, STATE.HELD]
    life.keep("back", lambda seen: states(seen, 0)[:4] == back)

    life.start(f"{second}_5", "n1")
    wait_until(lambda: states(life.look()[0], 1)[5] == STATE.RUNNING)
    life.control("update", f"JobId={second}_0", f"AdminComment={FOREIGN}")
    urgent = life.rigid("-N1", "-w", "n1", "--time=5")
    life.keep("preempted", lambda seen: states(seen, 1)[5] == STATE.PENDING)

    life.control("update", "PartitionName=malleable", "State=DOWN")
    life.keep(
        "partition_down", lambda seen: not any("malleable" in n.partitions for n in seen.nodes)
    )
    life.control("update", "PartitionName=malleable", "State=UP")
    life.do("scancel", str(first), urgent, blocker)
    over = {STATE.CANCELLED, STATE.DONE}
    life.keep("cancelled", lambda seen: set(states(seen, 0)) <= over)


def main(to: Path) -> None:
    """Capture into `to`, which is made."""
    to.mkdir(parents=True, exist_ok=True)
    with Sandbox.up(SandboxSpec(nodes=NODES, extra_conf=CONF)) as box:
        script = box.work / "fragment.sh"
        script.write_text(SCRIPT)
        script.chmod(0o755)
        live(Life(box, to))
    print(f"captured {len(list(to.glob('*.squeue.txt')))} situations in {to}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
