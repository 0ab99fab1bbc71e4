"""The checker of faults sees each fault."""

from __future__ import annotations

import pytest

from faults.checker import (
    Bounds,
    Element,
    Look,
    NodeSeen,
    changed_nodes,
    doubled_nodes,
    late_leases,
    lost_elements,
    parse_elements,
    parse_nodes,
    writes_on_nodes,
)
from faults.course import Row

BOUNDS = Bounds(grace_s=10, longest_s=180)


def element(state: str = "RUNNING", end: float = 1100, name: str = "7_0", **more: str) -> Element:
    return Element(name, state, 1000, end, state == "PENDING", **more)


def look(at: float, *elements: Element, nodes: tuple[NodeSeen, ...] = ()) -> Look:
    return Look(at, elements, nodes)


def test_answers_are_read() -> None:
    held, runs = parse_elements(
        "7_1|RUNNING|1000|1120|0.0|None|n1\n7_0|PENDING|N/A|N/A|0.0|JobHeldUser|\n"
    )
    assert (held.name, held.is_held, held.end) == ("7_0", True, 0)
    assert (runs.end, runs.is_held, runs.nodes) == (1120, False, "n1")
    (node,) = parse_nodes("n1|drained*|Prolog error|again\n")
    assert node == NodeSeen("n1", "drained*", "Prolog error|again")


@pytest.mark.parametrize(
    ("looks", "is_late"),
    [
        ([look(1109, element())], False),
        ([look(1111, element())], True),
        ([look(1090, element()), look(1200, element("TIMEOUT", 1110))], False),
        ([look(1090, element()), look(1200, element("TIMEOUT", 1111))], True),
        ([look(1000, element(end=1180))], False),
        ([look(1000, element(end=1181))], True),
        ([look(1090, element()), look(1100, element(end=1200)), look(1205, element())], True),
    ],
)
def test_a_lease_that_ends_late_is_seen(looks: list[Look], is_late: bool) -> None:
    assert bool(late_leases(looks, BOUNDS)) is is_late


MADE = look(0, nodes=(NodeSeen("n1", "drained", "Prolog error"), NodeSeen("n2", "idle", "none")))
ONE, TWO = element(nodes="n1"), element(nodes="n1", name="7_1")
STUCK = element("PENDING", reason="BadConstraints")
NODE_WRITE = "update NodeName=n1 State=RESUME"
FINE = ["update jobid=7_0 ReqNodeList=n1 TimeLimit=2", "release 7_[0-3]"]


@pytest.mark.parametrize(
    ("seen", "faults"),
    [
        (changed_nodes(MADE, {"n1": "Prolog error"}), []),
        (changed_nodes(MADE, {}), ["n1 is drained Prolog error"]),
        (changed_nodes(MADE, {"n1": "Prolog error", "n2": "drain"}), ["n2 is idle none"]),
        (changed_nodes(look(0, nodes=(NodeSeen("n1", "idle*", "none"),)), {}), []),
        (
            changed_nodes(look(0, nodes=(NodeSeen("n1", "down*", "none"),)), {}),
            ["n1 is down* none"],
        ),
        (writes_on_nodes(FINE), []),
        (writes_on_nodes([*FINE, NODE_WRITE]), [NODE_WRITE]),
        (lost_elements(look(0, ONE, TWO), 7, 2), []),
        (lost_elements(look(0, ONE, TWO), 7, 3), ["7_2 is gone"]),
        (lost_elements(look(0, element("TIMEOUT")), 7, 1), ["7_0 stays TIMEOUT"]),
        (lost_elements(look(0, element("COMPLETED")), 7, 2, is_over=True), []),
        (lost_elements(look(0, STUCK), 7, 1), ["7_0 waits for ever: BadConstraints"]),
        (doubled_nodes(look(0, ONE, TWO)), ["n1 holds two"]),
        (doubled_nodes(look(0, ONE, element("TIMEOUT", nodes="n1"))), []),
    ],
)
def test_each_fault_is_reported_and_only_it(seen: list[str], faults: list[str]) -> None:
    assert seen == faults


@pytest.mark.parametrize(("ticks", "is_good"), [(3, True), (4, False), (None, False)])
def test_ticks_that_never_rest_are_a_fault(ticks: int | None, is_good: bool) -> None:
    assert Row("x", 1.0, (), (), (), ticks, 3).is_good is is_good
