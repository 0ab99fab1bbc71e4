"""The demo's judge on made-up recordings: it meets a good run, and sees each broken promise."""

import json
from dataclasses import replace

import pytest
from made_up import (
    ABOUT,
    WHOLE,
    ZERO,
    act,
    fragment,
    good,
    planned,
    recording,
    records,
    rigid,
    sample,
    story,
    tick,
    verdict,
    work,
)


def failed_checks(run: records.Recording) -> list[str]:
    return [check["what"] for check in verdict.report(run, ABOUT)["checks"] if not check["met"]]


def test_a_good_run_breaks_no_rule_and_meets_every_check():
    report = json.loads(json.dumps(verdict.report(good(), ABOUT)))
    assert report["violations"] == []
    assert failed_checks(good()) == []
    job = report["malleable_jobs"][0]
    assert (job["count"], job["unit"], job["restarts_used"]) == (480, "step", 1)
    assert report["ticks"]["rpcs_per_tick"] == {"median": 5, "max": 17}
    assert report["reservations"][0]["freed_before_s"] == WHOLE.booking.starts_s - 115.0
    delays = {row["name"]: row["delay_s"] for row in report["rigid_jobs"]}
    assert (delays["urgent"], delays["planned"]) == (1.0, 0.0)
    assert sum(report["node_seconds"].values()) == pytest.approx(8 * (WHOLE.booking.starts_s + 18))


def test_sizes_carry_their_causes():
    rows = [(size.t, size.count, size.cause) for size in story.sizes(good())]
    assert rows == [
        (0.0, 0, "submitted"),
        (6.0, 3, "hole open"),
        (36.0, 4, "hole open"),
        (52.0, 3, "hole closes"),
        (107.0, 2, "preempted by Slurm"),
        (115.0, 1, "lease ended"),
        (141.0, 2, "hole open"),
        (151.0, 3, "hole open"),
        (WHOLE.booking.starts_s + 20.0, 0, "training finished"),
    ]


def test_a_leaver_that_ends_slowly_was_not_preempted():
    """Slurm shows a start that moves with the clock while a requeued fragment still ends."""
    ran, ends = fragment(2, "n8", 0, 120), fragment(2, "n8", 0, 120, state="COMPLETING")
    seen = recording(
        sample(1, ran),
        sample(3, replace(ends, start=ZERO + 3)),
        sample(4, replace(ends, start=ZERO + 4)),
        sample(5, replace(ran, state="PENDING", nodes=frozenset())),
        ticks=(tick(act(2, "notice", "hole closes", "3_2")),),
    )
    assert story.preempted(seen) == []
    assert story.sizes(seen)[-1].cause == "hole closes"


LEASED = fragment(0, "n1", 0, 60)
RENEWED = replace(LEASED, end=ZERO + 120)
ENDING = replace(LEASED, state="COMPLETING", end=ZERO + 99)
RESERVED = fragment(0, WHOLE.booking.node, 100, 400)
OURS, ELSEWHERE = fragment(3, "n5", 40, 300), fragment(3, "n8", 40, 160)
SOON = planned("planned", 45, 121, "n1", "n5")
SLIPS = [planned("planned", 45, start, "n1", "n5") for start in (121, 130, 135)]
URGENT, BELOW = planned("urgent", 106, 106, "n6"), fragment(0, "n6", 4, 300)
AFTER = WHOLE.booking.starts_s + 2


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ([sample(61, LEASED)], ""),  # a second between two samples
        ([sample(61.5, LEASED)], "after its lease had ended at 60 s"),
        ([sample(50, LEASED), sample(63, LEASED)], "3.0 s after its lease had ended at 60 s"),
        ([sample(50, LEASED), sample(63, ENDING)], "3.0 s after its lease had ended at 60 s"),
        ([sample(30, LEASED), sample(70, RENEWED)], ""),
        ([sample(AFTER, RESERVED)], "until 2.0 s after its start"),
        ([sample(120, SOON, OURS)], ""),
        ([sample(120, SOON, OURS), sample(125, SOON, OURS)], "waited 4.0 s past"),
        ([sample(120, SOON, ELSEWHERE), sample(125, SOON, ELSEWHERE)], ""),
        ([sample(120 + 2 * i, slip, OURS) for i, slip in enumerate(SLIPS)], "waited 3.0 s past"),
        ([sample(107, URGENT, BELOW), sample(111, URGENT, BELOW)], ""),  # KillWait
        ([sample(107, URGENT, BELOW), sample(113, URGENT, BELOW)], "waited"),
    ],
)
def test_each_violation_is_detected_and_only_it(samples: list[records.Sample], words: str):
    violations = verdict.violations(recording(*samples))
    assert len(violations) == bool(words)
    assert all(words in line for line in violations)


def farm(**counts: int) -> records.Recording:
    """The good run as a pool's, whose result is this."""
    result = {"tasks": 360, "done": 360, "lost": 0, "repeated": 0, **counts}
    return replace(good(), work=work.WORKS["pool"], rounds=(), result=result)


def never_started() -> records.Recording:
    """The good run, of which the planned job still waits."""
    run = good()
    last = run.with_it[-1]
    rows = tuple(r for r in last.rows if r.job != run.ids["planned"][0])
    waiting = replace(last, rows=(*rows, rigid("planned", 45, None)))
    return replace(run, with_it=(*run.with_it[:-1], waiting))


def with_a_failed_worker() -> records.Recording:
    run = farm()
    first = run.with_it[1]
    broken = replace(first, rows=(*first.rows, fragment(5, "", 4, 125, state="FAILED")))
    return replace(run, with_it=(run.with_it[0], broken, *run.with_it[2:]))


@pytest.mark.parametrize(
    ("run", "what"),
    [
        (never_started(), "planned"),
        (farm(done=359), "every task was done"),
        (farm(lost=1), "no task was lost"),
        (farm(repeated=1), "no task was done twice"),
        (with_a_failed_worker(), "no worker failed"),
    ],
)
def test_each_check_can_fail(run: records.Recording, what: str):
    assert [name for name in failed_checks(run) if name.startswith(what)]


def test_an_empty_recording_is_reported_not_raised():
    empty = verdict.report(recording(), ABOUT)
    assert not all(check["met"] for check in empty["checks"])
    assert failed_checks(farm()) == []
