"""What `make soak` plays, and what it makes of what it saw."""

from __future__ import annotations

import pytest
from soak_day import Ordinary, Seen, growth, holes, leaks, ordinary_jobs, used_node_s

from slurm_hooks.replay.logs.swf import RigidJob, Workload

HOUR = 3600.0


def played(*jobs: RigidJob) -> list[Ordinary]:
    """Of a log of four hours the second, sixty times as fast."""
    return ordinary_jobs(Workload(jobs, 8, 4 * HOUR), HOUR, 1, 60)


def rigid(start_s: float, run_s: float, submit_s: float = 0.0, request_s: float = HOUR) -> RigidJob:
    return RigidJob(1, submit_s, start_s, run_s, request_s, 2)


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (rigid(HOUR + 600, 1200, submit_s=HOUR + 300), [Ordinary(5, 2, 20, 1)]),
        (rigid(HOUR + 600, 1200, request_s=2 * HOUR), [Ordinary(0, 2, 20, 2)]),
        (rigid(0, HOUR + 1800), [Ordinary(0, 2, 30, 1)]),  # half an hour is left of it
        (rigid(HOUR + 600, HOUR, request_s=HOUR), [Ordinary(0, 2, 60, 2)]),  # ran past its limit
        (rigid(0, HOUR), []),
        (rigid(2 * HOUR, HOUR), []),
    ],
)
def test_an_hour_of_a_log(job: RigidJob, expected: list[Ordinary]) -> None:
    assert played(job) == expected


def test_jobs_come_as_they_were_submitted() -> None:
    jobs = [rigid(HOUR + 900, 60, submit_s=HOUR + s) for s in (600, 0, 300)]
    assert [job.at_s for job in played(*jobs)] == [0, 5, 10]


LOOKS = [
    Seen(0, frozenset({"a"}), frozenset({"b"})),
    Seen(10, frozenset(), frozenset({"a", "b"})),
    Seen(30, frozenset({"b"}), frozenset({"a"})),
    Seen(40, frozenset({"a", "b"}), frozenset()),
]


def test_holes_are_what_others_leave() -> None:
    record = holes(LOOKS, ["a", "b"])
    assert {(i.node, i.start_s, i.end_s) for i in record.intervals} == {(0, 10, 40), (1, 0, 30)}
    assert record.idle_node_s == 60
    assert used_node_s(LOOKS) == 10 + 2 * 20 + 10


def test_a_hole_may_be_open_at_the_end() -> None:
    assert holes(LOOKS[:3], ["a", "b"]).idle_node_s == 20 + 30


def test_what_grows_without_end_is_a_leak() -> None:
    samples = [(60.0 * i, {"steady": 7.0, "leaky": 2.0 * i}) for i in range(61)]
    found = {name: growth(samples, name) for name in ("steady", "leaky")}
    assert found["steady"].per_hour == 0
    assert found["leaky"].per_hour == pytest.approx(120, rel=0.05)
    (told,) = leaks(found, {"steady": 0, "leaky": 50})
    assert told.startswith("leaky grew from")
    assert leaks(found, {"leaky": 200}) == []
