"""A Slurm that behaves: holds jobs and nodes, obeys commands, lets time pass.

It speaks the same text as the real one (22.05), so everything from parsing to planning to writing
runs against it. It must not know what the planner wants; it only knows what slurmctld does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Callable, Optional

from fake_answers import cluster_lines, queue_lines
from fake_parts import (
    FINISHED,
    LIMIT_CHECK_S,
    ON_NODES,
    REQUEUE_WAIT_S,
    START,
    Booking,
    Element,
    Rigid,
)
from slurm_hooks.errors import CommandRefused
from slurm_hooks.slurm.live import Asked
from slurm_hooks.slurm.text import Command, expand


@dataclass
class FakeSlurm:
    """A Port. `outcome` says how an element's script ends by itself, if it does."""

    nodes: dict[str, str] = field(default_factory=dict)  # name: flags such as "+DRAIN", or "DOWN"
    elements: dict[str, Element] = field(default_factory=dict)
    rigid: list[Rigid] = field(default_factory=list)
    bookings: list[Booking] = field(default_factory=list)
    now: int = START
    kill_wait_s: int = 30
    leave_s: int = 5
    term_s: int = 2
    agent_notice_s: int = 20
    outcome: Callable[[Element, int], Optional[int]] = lambda element, ran_s: None
    asked: list[Asked] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)

    def submit(self, job: int, count: int, mark: str, limit_min: int = 10) -> None:
        """A held array of `count` elements."""
        for index in range(count):
            element = Element(job, index, mark, limit_min=limit_min)
            self.elements[element.name] = element

    # -- commands

    def ask(self, command: Command) -> str:
        """Answer or obey; see Port."""
        self.asked.append(Asked(command.argv, command.rpcs, 0.0))
        self.commands.append(command)
        program, *words = command.argv
        if program == "squeue":
            return "".join(f"{line}\n" for line in queue_lines(self))
        if program == "scancel":
            return self._cancel(words)
        if command.stdin.startswith("show "):
            return "".join(f"{line}\n" for line in cluster_lines(self))
        lines = [line.split(" ") for line in command.stdin.splitlines()] or [words]
        faults = [fault for line in lines for fault in self._line(line)]
        if faults:
            raise CommandRefused(f"scontrol: {'; '.join(faults)}")
        return ""

    def _line(self, words: list[str]) -> list[str]:
        verb, *rest = words
        obey = {
            "update": self._update,
            "release": self._release,
            "hold": self._hold,
            "requeuehold": self._requeuehold,
        }[verb]
        target = rest[0].replace("jobid=", "")
        return [f"{e.name}: {fault}" for e in self._named(target) if (fault := obey(e, rest[1:]))]

    def _named(self, word: str) -> list[Element]:
        job, _, index = word.partition("_")
        indexes: Iterable[int]
        if index.startswith("["):
            indexes = [
                i
                for part in index.strip("[]").split(",")
                for i in range(int(part.split("-")[0]), int(part.split("-")[-1]) + 1)
            ]
        else:
            indexes = [int(index)]
        return [self.elements[f"{job}_{i}"] for i in indexes]

    def _update(self, element: Element, words: list[str]) -> str:
        if element.state in FINISHED:
            return "Job has already finished"
        for word in words:
            key, _, value = word.partition("=")
            if key == "AdminComment":
                element.comment = value
            elif key == "TimeLimit":
                element.limit_min = int(value)
                if element.start is not None and element.state == "RUNNING":
                    element.end = element.start + 60 * element.limit_min
            elif key == "ReqNodeList":
                assert value, "an empty node list would let Slurm choose"
                element.asked = expand(value)
            elif key == "StartTime":
                element.eligible = self.now
            else:
                assert key == "NumNodes", f"the fake does not know {word}"
        return ""

    def _release(self, element: Element, _words: list[str]) -> str:
        if element.state != "PENDING":
            return "Job is no longer pending execution"
        element.is_held = False
        return ""

    def _hold(self, element: Element, _words: list[str]) -> str:
        if element.state in FINISHED:
            return "Job has already finished"
        element.is_held = True  # 22.05 accepts this on a running job too: priority 0, runs on
        return ""

    def _requeuehold(self, element: Element, _words: list[str]) -> str:
        if element.state == "RUNNING":
            self._end(element, "REQUEUE_HOLD")
        elif element.state in FINISHED - {"CANCELLED"}:
            self._requeue(element, is_held=True)
        elif element.state == "PENDING":
            element.is_held = True
        else:
            return "Requested operation is presently disabled"
        return ""

    def _cancel(self, words: list[str]) -> str:
        signal = [w for w in words if w.startswith("--signal=")]
        for word in words:
            if word.startswith("--"):
                continue
            for element in self._named(word):
                if signal:
                    self._signal(element)
                elif element.state == "RUNNING":
                    self._end(element, "CANCELLED")
                elif element.state == "PENDING":
                    element.state, element.end = "CANCELLED", self.now
        return ""

    def _signal(self, element: Element) -> None:
        if element.state == "RUNNING" and element.signalled is None:
            element.signalled = self.now

    # -- time

    def advance(self, seconds: int) -> None:
        """Let time pass, a second at a time."""
        for _ in range(seconds):
            self.now += 1
            self._fragments()
            self._rigid()
            self._reservations()
            self._starts()

    def _fragments(self) -> None:
        for element in self.elements.values():
            if element.state == "COMPLETING" and element.gone_at is not None:
                if self.now >= element.gone_at:
                    self._settle(element)
            elif element.state == "RUNNING":
                self._run(element)

    def _run(self, element: Element) -> None:
        assert element.start is not None
        assert element.end is not None
        code = self.outcome(element, self.now - element.start)
        is_told = element.signalled is not None and self.now >= element.signalled + self.leave_s
        is_late = self.now >= element.end - self.agent_notice_s
        if code is not None:
            self._exit(element, code)
        elif is_told or is_late:
            self._exit(element, 0)
        elif self.now >= element.end and self.now % LIMIT_CHECK_S == 0:
            self._end(element, "TIMEOUT")

    def _exit(self, element: Element, code: int) -> None:
        element.state = "FAILED" if code else "COMPLETED"
        element.exit_code, element.end = code << 8, self.now
        self.history.append(f"{self.now} {element.name} {element.state}")

    def _end(self, element: Element, then: str) -> None:
        element.state, element.then = "COMPLETING", then
        element.gone_at = self.now + min(self.term_s, self.kill_wait_s)

    def _settle(self, element: Element) -> None:
        element.gone_at, element.end = None, self.now
        if element.then in ("REQUEUE_HOLD", "PREEMPTED"):
            self._requeue(element, is_held=element.then == "REQUEUE_HOLD")
        else:
            element.state = element.then
        self.history.append(f"{self.now} {element.name} {element.then}")

    def _requeue(self, element: Element, is_held: bool) -> None:
        element.state, element.is_held = "PENDING", is_held
        element.restarts += 1
        element.eligible = self.now + REQUEUE_WAIT_S
        element.nodes, element.signalled, element.start, element.end = frozenset(), None, None, None

    def _starts(self) -> None:
        for element in self.elements.values():
            is_ready = element.state == "PENDING" and not element.is_held
            if not is_ready or (element.eligible or 0) > self.now or not element.asked:
                continue
            end = self.now + 60 * element.limit_min
            if all(self.is_free(n) and not self._is_booked(n, end) for n in element.asked):
                element.state, element.nodes = "RUNNING", element.asked
                element.start, element.end, element.signalled = self.now, end, None
                self.history.append(f"{self.now} {element.name} RUNNING")

    def is_free(self, name: str) -> bool:
        """True if a job could start on the node now."""
        return self.nodes[name] == "" and self.user_of(name) is None

    def user_of(self, name: str) -> Optional[str]:
        for element in self.elements.values():
            if element.state in ON_NODES and name in element.nodes:
                return element.name
        for job in self.rigid:
            if job.state == "RUNNING" and name in job.nodes:
                return str(job.job)
        return None

    def _is_booked(self, name: str, until: int) -> bool:
        return any(
            name in b.nodes and b.seen <= self.now and b.start < until and self.now < b.end
            for b in self.bookings
        )

    def ours_on(self, nodes: frozenset[str]) -> list[Element]:
        return [e for e in self.elements.values() if e.state in ON_NODES and e.nodes & nodes]

    def _rigid(self) -> None:
        for job in self.rigid:
            if job.state == "RUNNING" and self.now >= job.start + job.seconds:
                job.state = "COMPLETED"
            if job.state != "PENDING" or self.now < job.start:
                continue
            for element in self.ours_on(job.nodes):
                self.violations.append(f"{element.name} at the planned start of {job.job}")
                if element.state == "RUNNING":
                    self._end(element, "PREEMPTED")
            if all(self.is_free(name) for name in job.nodes):
                job.state, job.start = "RUNNING", self.now

    def _reservations(self) -> None:
        for booking in self.bookings:
            if self.now == booking.start:
                for element in self.ours_on(booking.nodes):
                    self.violations.append(f"{element.name} at the start of {booking.name}")
        for element in self.elements.values():
            over = element.end is not None and self.now > element.end + LIMIT_CHECK_S
            if element.state == "RUNNING" and over:
                self.violations.append(f"{element.name} past its lease")

    def preempt(self, name: str) -> None:
        """Slurm takes an element's nodes for a higher tier."""
        self._end(self.elements[name], "PREEMPTED")
