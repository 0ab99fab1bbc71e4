"""The conditions that must hold after any fault, judged from squeue, sinfo and the ticks' output.

The checker is pure and does not use the product's own readers, because a fault there must not hide
itself here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

ELEMENTS = ("squeue", "-h", "-r", "-t", "all", "-p", "malleable", "-o", "%i|%T|%S|%e|%p|%r|%N")
NODES = ("sinfo", "-h", "-N", "-p", "main", "-o", "%N|%T|%E")
HEALTHY = frozenset({"idle", "mixed", "allocated", "completing", "reserved", "planned"})
WAITING = frozenset({"PENDING", "SPECIAL_EXIT"})
ALIVE = WAITING | {"RUNNING", "COMPLETING"}


@dataclass(frozen=True)
class Element:
    """An array element. Times are seconds since the epoch, or 0 if squeue does not know the
    element.

    `end` of a running element is the end of its lease. `end` of an ended element is its last
    moment.
    """

    name: str
    state: str
    start: float
    end: float
    is_held: bool
    reason: str = ""
    nodes: str = ""


@dataclass(frozen=True)
class NodeSeen:
    """A node: its state in sinfo's words, a star for no answer, and the reason noted on it."""

    name: str
    state: str
    reason: str


@dataclass(frozen=True)
class Look:
    """Slurm's state at a moment."""

    at: float
    elements: tuple[Element, ...]
    nodes: tuple[NodeSeen, ...]


@dataclass(frozen=True)
class Bounds:
    """The latest end of a lease, and its greatest length, in seconds."""

    grace_s: float
    longest_s: float


def parse_elements(text: str) -> tuple[Element, ...]:
    """The answer to ELEMENTS, asked with SLURM_TIME_FORMAT=%s."""
    elements = []
    for line in text.splitlines():
        name, state, start, end, priority, reason, nodes = line.split("|")
        is_held = state in WAITING and float(priority) == 0
        elements.append(Element(name, state, _epoch(start), _epoch(end), is_held, reason, nodes))
    return tuple(sorted(elements, key=lambda element: element.name))


def parse_nodes(text: str) -> tuple[NodeSeen, ...]:
    """The answer to NODES."""
    rows = (line.split("|", 2) for line in text.splitlines())
    return tuple(NodeSeen(name, state.rstrip("+-"), reason) for name, state, reason in rows)


def _epoch(text: str) -> float:
    return float(text) if text.isdecimal() else 0.0


def late_leases(looks: Sequence[Look], bounds: Bounds) -> list[str]:
    """Runs that were longer on their nodes than their lease, and leases longer than allowed."""
    ends: dict[tuple[str, float], float] = {}
    faults = []
    for look in looks:
        for element in look.elements:
            run = (element.name, element.start)
            if element.state == "RUNNING":
                ends[run] = element.end
                if element.end + bounds.grace_s < look.at:
                    over_s = look.at - element.end
                    faults.append(f"{element.name} ran {over_s:.0f} s past its lease")
                if element.end - look.at > bounds.longest_s:
                    left_s = element.end - look.at
                    faults.append(f"{element.name} has a lease of {left_s:.0f} s")
            elif run in ends and element.end - ends[run] > bounds.grace_s:
                faults.append(f"{element.name} ended {element.end - ends[run]:.0f} s late")
    return list(dict.fromkeys(faults))


def changed_nodes(look: Look, expected: Mapping[str, str]) -> list[str]:
    """Nodes that differ from the state that the fault itself made.

    `expected` gives words of a node's state and reason. All other nodes are healthy, even if a node
    does not answer at the moment.
    """
    faults = []
    for node in look.nodes:
        text = f"{node.state} {node.reason}"
        if node.name in expected:
            is_wrong = expected[node.name] not in text
        else:
            is_wrong = node.state.rstrip("*") not in HEALTHY or node.reason not in ("", "none")
        if is_wrong:
            faults.append(f"{node.name} is {text}")
    return faults


def writes_on_nodes(lines: Iterable[str]) -> list[str]:
    """Lines given to Slurm that would change a node, a partition or a reservation."""
    touched = ("nodename=", "partitionname=", "reservationname=", "reconfig", "shutdown", "reboot")
    return [line for line in lines if any(word in line.lower() for word in touched)]


def lost_elements(look: Look, job: int, count: int, is_over: bool = False) -> list[str]:
    """Elements of a job with `count` elements that do not exist any more, or cannot be started
    again.

    A job that `is_over` may have ended its elements.
    """
    elements = {element.name: element for element in look.elements}
    faults = []
    for index in range(count):
        name = f"{job}_{index}"
        element = elements.get(name)
        if element is None:
            faults += [] if is_over else [f"{name} is gone"]
        elif element.state not in ALIVE and not is_over:
            faults.append(f"{name} stays {element.state}")
        elif element.reason in ("BadConstraints", "DependencyNeverSatisfied"):
            faults.append(f"{name} waits for ever: {element.reason}")
    return faults


def doubled_nodes(look: Look) -> list[str]:
    """Nodes that two running elements hold."""
    running = [e.nodes for e in look.elements if e.state == "RUNNING"]
    return sorted({f"{node} holds two" for node in running if running.count(node) > 1})
