"""The checker of churn sees each fault, and only faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from faults.checker import NodeSeen
from promises.churn_checker import (
    Job,
    Known,
    Look,
    Reserved,
    Rule,
    faults_in,
    gone,
    lasting,
    moved_nodes,
    node_lists,
    not_back,
    not_started,
    over_ceiling,
    parse_look,
    past_planned_starts,
    past_reservations,
    revived,
    roaming,
    shared_nodes,
    started_on_drained,
    starving,
    waits_for_us,
)

NODES = ("n1", "n2", "n3")
N1 = frozenset({"n1"})
RUNS = Job("7_0", "RUNNING", start=1000, end=1120, nodes=N1)
WAITS = Job("9", "PENDING", "main", priority=0.5, reason="Resources", wanted=2)
SOON = Reserved("r1", 1100, 1160, N1)


def look(*jobs: Job, state: str = "idle", known: Known | None = None, **more: object) -> Look:
    nodes = tuple(NodeSeen(name, state, "none") for name in NODES)
    reading = Look(1050, jobs, nodes, (), known or Known({}))
    return replace(reading, **more)


def test_answers_are_read() -> None:
    jobs = (
        "7_0|malleable|RUNNING|1000|1120|0.0|None|n1|(null)||1|(null)\n"
        "7_1|malleable|PENDING|N/A|N/A|0.0|JobHeldUser|||n[2-3]|1|(null)\n"
        "9|main|PENDING|1200|1260|0.5|Resources||(null)||2|n[1-2]\n"
    )
    reserved = "ReservationName=r1 StartTime=1100 EndTime=1160 Duration=00:01:00 Nodes=n1 NodeCnt=1"
    nodes = "n1|drained*|churn\n"
    reading = parse_look(5, jobs, nodes, f"{reserved}\n", Known({}))
    held = Job("7_1", "PENDING", reason="JobHeldUser", excluded=frozenset({"n2", "n3"}))
    waits = replace(WAITS, start=1200, end=1260, planned=frozenset({"n1", "n2"}))
    assert reading.jobs == (replace(RUNS, reason="None"), held, waits)
    assert reading.reservations == (SOON,)
    assert reading.nodes == (NodeSeen("n1", "drained*", "churn"),)
    assert not parse_look(5, "", "", "No reservations in the system\n", Known({})).reservations


OTHER = replace(RUNS, name="8_0")
THEIRS = replace(RUNS, name="9", partition="main")
RELEASED = Job("7_0", "PENDING", priority=0.1)
CANCELLED = Known({}, cancelled={"7_0": 990})
DRAINED = (NodeSeen("n1", "draining", "churn"),)
PLANNED = replace(WAITS, start=1100, planned=N1)


def minded_by_7(seen: Look) -> list[str]:
    return past_planned_starts(seen, frozenset({7}))


def starving_of_2(seen: Look) -> list[str]:
    return starving(seen, {7: 2})


def gone_of_2(seen: Look) -> list[str]:
    return gone(seen, {7: 2})


@pytest.mark.parametrize(
    ("judge", "bad", "good"),
    [
        (shared_nodes, look(RUNS, OTHER), look(RUNS, replace(OTHER, nodes=frozenset({"n2"})))),
        (shared_nodes, look(RUNS, THEIRS), look(RUNS, replace(THEIRS, state="COMPLETING"))),
        (shared_nodes, look(RUNS, THEIRS), look(THEIRS, replace(THEIRS, name="10"))),
        (moved_nodes, look(nodes=DRAINED), look(nodes=DRAINED, known=Known({"n1": 5}))),
        (moved_nodes, look(known=Known({"n1": 5})), look()),
        (
            started_on_drained,
            look(RUNS, known=Known({"n1": 990})),
            look(RUNS, known=Known({"n1": 999})),
        ),
        (revived, look(RUNS, known=CANCELLED), look(RUNS, known=Known({}, cancelled={"7": 999}))),
        (revived, look(RUNS, known=Known({}, cancelled={"7": 990})), look(OTHER, known=CANCELLED)),
        (node_lists, look(replace(RUNS, asked=N1)), look(replace(THEIRS, asked=N1))),
        (over_ceiling, look(RUNS, known=Known({}, 0)), look(RUNS, known=Known({}, 1))),
        (over_ceiling, look(RUNS, OTHER, known=Known({}, 1)), look(RUNS, OTHER, THEIRS)),
        (
            past_reservations,
            look(RUNS, reservations=(SOON,)),
            look(replace(RUNS, end=1100), reservations=(SOON,)),
        ),
        (past_reservations, look(RUNS, reservations=(replace(SOON, start=900),)), look(RUNS)),
        (
            past_reservations,
            look(RUNS, reservations=(SOON,)),
            look(replace(RUNS, state="SUSPENDED"), reservations=(SOON,)),
        ),
        (not_back, look(replace(RUNS, state="LOST")), look(replace(RUNS, state="SUSPENDED"))),
        (roaming, look(RELEASED), look(replace(RELEASED, excluded=N1))),
        (roaming, look(RELEASED), look(replace(RELEASED, priority=0))),
        (not_started, look(replace(RELEASED, excluded=N1)), look(RUNS, WAITS)),
        (not_back, look(replace(RUNS, state="TIMEOUT")), look(replace(RUNS, state="COMPLETING"))),
        (
            not_back,
            look(replace(RUNS, state="FAILED")),
            look(replace(RUNS, state="CANCELLED"), known=CANCELLED),
        ),
        (
            not_back,
            look(Job("8", "CANCELLED"), known=CANCELLED),
            look(Job("7", "CANCELLED"), known=CANCELLED),
        ),
        (
            not_back,
            look(Job("7", "FAILED"), known=CANCELLED),
            look(Job("7", "CANCELLED"), known=CANCELLED),
        ),
        (
            revived,
            look(replace(RUNS, state="SUSPENDED"), known=CANCELLED),
            look(replace(RUNS, state="PENDING"), known=CANCELLED),
        ),
        (waits_for_us, look(RUNS, WAITS), look(RUNS, replace(WAITS, wanted=4))),
        (waits_for_us, look(RUNS, WAITS), look(THEIRS, replace(WAITS, wanted=3))),
        (
            waits_for_us,
            look(RUNS, replace(WAITS, wanted=3)),
            look(RUNS, replace(WAITS, wanted=3), reservations=(SOON,)),
        ),
        (waits_for_us, look(RUNS, WAITS), look(RUNS, WAITS, state="drained")),
        (waits_for_us, look(RUNS, WAITS), look(RUNS, replace(WAITS, reason="BeginTime"))),
        (minded_by_7, look(RUNS, PLANNED), look(RUNS, replace(PLANNED, start=1120))),
        (minded_by_7, look(RUNS, PLANNED), look(RUNS, replace(PLANNED, start=1040))),
        (minded_by_7, look(RUNS, PLANNED), look(replace(RUNS, name="8_0"), PLANNED)),
        (starving_of_2, look(RUNS), look(RUNS, state="allocated")),
        (starving_of_2, look(RUNS), look(RUNS, replace(RUNS, name="7_1"))),
        (gone_of_2, look(RUNS), look(RUNS, known=Known({}, cancelled={"7_1": 1}))),
    ],
)
def test_each_rule_is_broken_by_the_condition_that_it_names(
    judge: Callable[[Look], list[str]], bad: Look, good: Look
) -> None:
    assert judge(bad)
    assert not judge(good)


@pytest.mark.parametrize(
    ("seen", "grace_s", "ticks", "is_fault"),
    [
        ([(0, ["a"])], 0, 0, True),
        ([(0, ["a"]), (5, ["a"])], 5, 1, True),
        ([(0, ["a"]), (4, ["a"])], 5, 1, False),
        ([(0, ["a"]), (9, ["a"])], 5, 2, False),
        ([(0, ["a"]), (3, []), (6, ["a"])], 5, 1, False),
        ([(0, ["a"]), (3, ["b"]), (6, ["b"])], 5, 1, False),
    ],
)
def test_a_condition_that_lasts_is_a_fault(
    seen: list[tuple[float, list[str]]], grace_s: float, ticks: int, is_fault: bool
) -> None:
    assert bool(lasting(seen, grace_s, ticks)) is is_fault


def test_faults_of_all_rules_are_listed() -> None:
    looks = [look(RUNS, OTHER, known=Known({}, 1)), look(RUNS, OTHER, known=Known({}, 1), at=1070)]
    rules = (Rule(shared_nodes), Rule(over_ceiling, 20, 1), Rule(roaming))
    assert len(faults_in(looks, rules)) == 2
    assert len(faults_in(looks, (Rule(over_ceiling, 21, 1),))) == 0
