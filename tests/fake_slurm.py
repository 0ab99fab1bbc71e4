"""A Slurm that behaves: it holds jobs and nodes, obeys commands, and lets time pass.

It prints the same text as a real Slurm (22.05), so parsing, planning and writing all run against
it. It must not know the planner's wishes. It only knows the actions of slurmctld.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Callable, Optional

import fake_commands
import fake_life
from fake_answers import cluster_lines, queue_lines
from fake_parts import (
    LIVE_STATES,
    MAIN,
    START,
    Booking,
    Element,
    Job,
    Part,
    Rigid,
    Script,
    Violation,
    resources,
)
from slurm_hooks.errors import CommandRefused, RetryLater
from slurm_hooks.model import Resources
from slurm_hooks.slurm.live import Asked
from slurm_hooks.slurm.text import Command

SMALL = resources(2, 2000)


@dataclass
class FakeSlurm:
    """A Port. `outcome` says how an element's script ends by itself, if it does.

    `fates` belong to the next changing commands: empty (done), refused, dropped (silently not
    done), unanswered (done, but the answer is lost), cut (the first half is done, then silence),
    silent. `before` is called with each command first, `watch` with each change of an element:
    verb, element, and the user.
    """

    nodes: dict[str, str] = field(default_factory=dict)  # name: flags such as "+DRAIN", or "DOWN"
    hidden: set[str] = field(default_factory=set)  # of these nodes: not shown, as in a cloud
    misfits: set[int] = field(default_factory=set)  # jobs that ask for more than any node has
    silent: set[str] = field(default_factory=set)  # of these: not registered since slurmctld began
    features: dict[str, frozenset[str]] = field(default_factory=dict)
    sizes: dict[str, Resources] = field(default_factory=dict)  # of nodes that are not SMALL
    lanes: tuple[str, ...] = ("malleable",)  # partitions that can be preempted, the last first
    elements: dict[str, Element] = field(default_factory=dict)
    jobs: dict[int, Job] = field(default_factory=dict)
    rigid: list[Rigid] = field(default_factory=list)
    bookings: list[Booking] = field(default_factory=list)
    now: int = START
    stepped: int = 0  # by how much its clock was set forward in between
    kill_wait_s: int = 30
    min_job_age_s: int = 3600
    leave_s: int = 5
    term_s: int = 2
    agent_notice_s: int = 20
    outcome: Callable[[Element, int], Optional[int]] = lambda element, ran_s: None
    fates: list[str] = field(default_factory=list)
    before: Callable[[Command], None] = lambda command: None
    watch: Callable[[str, Element, str], None] = lambda verb, element, user: None
    started: Callable[[Element], None] = lambda element: None
    asked: list[Asked] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    dropped: list[Command] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    history: list[str] = field(default_factory=list)

    @property
    def steady(self) -> int:
        """A clock that is never set."""
        return self.now - self.stepped

    def submit(
        self,
        job: int,
        count: int,
        mark: str,
        limit_min: int = 10,
        script: Optional[Script] = None,
        part: Optional[Part] = None,
        partition: str = "",
    ) -> None:
        """Submit a held array of `count` elements.

        Without a partition, elements on a part of a node are in the last lane, and others in the
        first.
        """
        self.jobs[job] = Job(script=script or Script())
        lane = partition or self.lanes[-1 if part else 0]
        for index in range(count):
            own = replace(part) if part else None
            element = Element(job, index, mark, limit_min=limit_min, partition=lane, part=own)
            self.elements[element.name] = element

    def job(self, element: Element) -> Job:
        return self.jobs.setdefault(element.job, Job())

    def of(self, job: int) -> list[Element]:
        return [e for e in self.elements.values() if e.job == job]

    # -- commands

    def ask(self, command: Command) -> str:
        """Answer or obey the tick (see Port)."""
        self.asked.append(Asked(command.argv, command.rpcs, 0.0))
        self.commands.append(command)
        self.before(command)
        if command.argv[0] == "squeue":
            return "".join(f"{line}\n" for line in queue_lines(self, command))
        lines = [line.split(" ") for line in command.stdin.splitlines()]
        if lines and lines[0][0] == "show":
            return "".join(f"{line}\n" for line in cluster_lines(self))
        return self._write(command, lines or [list(command.argv[1:])])

    def _write(self, command: Command, lines: list[list[str]]) -> str:
        fate = self.fates.pop(0) if self.fates else ""
        if command.patience_s:  # its answer is not read
            fate = "dropped" if fate in ("refused", "silent") else ""
        if fate == "refused":
            raise CommandRefused(f"{command.argv[0]}: not now")
        if fate == "dropped":
            self.dropped.append(command)
            return ""
        done = {"cut": lines[: len(lines) // 2], "silent": []}.get(fate, lines)
        faults = [f for line in done for f in self.run(command.argv[0], line)]
        if fate:
            raise RetryLater("no answer")
        if faults and not command.patience_s:
            raise CommandRefused(f"{command.argv[0]}: {'; '.join(faults)}", "\n".join(faults))
        return ""

    def run(self, program: str, words: list[str], user: str = "root") -> list[str]:
        """Run a person's line for scontrol or scancel. Return the refusals."""
        if program == "scancel":
            return fake_commands.cancel(self, words, user)
        return fake_commands.obey(self, words, user)

    def does(self, line: str, user: str = "root") -> list[str]:
        """Type a person's command. Return the refusals."""
        program, *words = line.split(" ")
        return self.run(program, words, user)

    # -- events

    def advance(self, seconds: int) -> None:
        """Let time pass, a second at a time."""
        for _ in range(seconds):
            self.now += 1
            fake_life.second(self)

    def step_clock(self, seconds: int) -> None:
        """Set slurmctld's clock. No time passes."""
        self.now += seconds
        self.stepped += seconds

    def preempt(self, name: str) -> None:
        """Preempt an element for a higher tier."""
        fake_life.end(self, self.elements[name], "PREEMPTED")

    def fail_node(self, name: str) -> None:
        """A node is lost, with its running elements."""
        self.nodes[name] = "DOWN"
        for element in self.ours_on(frozenset({name})):
            fake_life.lose(self, element)

    # -- places

    @property
    def partitions(self) -> tuple[str, ...]:
        """All partitions, the highest first."""
        return (MAIN, *self.lanes)

    def is_free(self, name: str) -> bool:
        """True if a job could start on the node now."""
        return self.nodes[name] in ("", "+PLANNED") and self.user_of(name) is None

    def user_of(self, name: str) -> Optional[str]:
        for element in self.elements.values():
            if element.state in LIVE_STATES and name in element.nodes:
                return element.name
        for job in self.rigid:
            if job.state == "RUNNING" and name in job.nodes:
                return str(job.job)
        return None

    def size_of(self, name: str) -> Resources:
        return self.sizes.get(name, SMALL)

    def used(self, name: str) -> Resources:
        """The resources of running elements there. An ending element has no resources any more."""
        size, in_use = self.size_of(name), resources(0, 0)
        for element in self.elements.values():
            if element.state == "RUNNING" and name in element.nodes:
                in_use += element.part.asks if element.part else size
        for job in self.rigid:
            if job.state == "RUNNING" and name in job.nodes:
                in_use += job.part or size
        return in_use

    def is_completing(self, name: str) -> bool:
        return any(e.state == "COMPLETING" for e in self.ours_on(frozenset({name})))

    def room(self, name: str) -> Resources:
        """The resources that a job could get on the node now."""
        if self.nodes[name] not in ("", "+PLANNED") or self.is_completing(name):
            return resources(0, 0)
        return self.size_of(name) - self.used(name)

    def lent_on(self, nodes: frozenset[str]) -> list[Element]:
        """The preemptible elements there."""
        return [e for e in self.ours_on(nodes) if e.partition in self.lanes]

    def ours_on(self, nodes: frozenset[str]) -> list[Element]:
        return [e for e in self.elements.values() if e.state in LIVE_STATES and e.nodes & nodes]
