"""Verdicts on made-up recordings: kept and broken promises, sizes with causes, the report."""

import json
from dataclasses import replace

import pytest
from made_up import (
    ABOUT,
    BOOKING,
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


def test_a_good_run_breaks_nothing_and_meets_every_check():
    report = verdict.report(good(), ABOUT)
    assert report["violations"] == []
    assert [check for check in report["checks"] if not check["met"]] == []


def test_sizes_carry_their_causes():
    told = [(size.t, size.nodes, size.cause) for size in story.sizes(good())]
    assert told == [
        (0.0, 0, "submitted"),
        (6.0, 3, "hole open"),
        (36.0, 4, "hole open"),
        (52.0, 3, "hole closes"),
        (107.0, 2, "preempted by Slurm"),
        (115.0, 1, "lease ended"),
        (141.0, 2, "hole open"),
        (151.0, 3, "hole open"),
        (BOOKING.starts_s + 20.0, 0, "training finished"),
    ]


def test_preemption_is_seen_before_a_tick_has_told_of_it():
    seen = recording(
        sample(1, fragment(0, "n1", 0, 120)),
        sample(2, replace(fragment(0, "", 0, 120), state="PENDING")),
    )
    assert story.preempted(seen) == [(2.0, "3_0")]


def test_a_leaver_that_ends_slowly_was_not_preempted():
    """Slurm shows a start that moves with the clock while what is requeued still ends."""
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


def test_report_has_the_promised_keys_and_is_json():
    report = json.loads(json.dumps(verdict.report(good(), ABOUT)))
    assert set(report) >= {
        "malleable_jobs",
        "rigid_jobs",
        "reservations",
        "ticks",
        "node_seconds",
        "violations",
        "slurm_version",
        "date",
        "machine",
        "t0_epoch",
        "checks",
    }
    job = report["malleable_jobs"][0]
    assert (job["count"], job["unit"]) == (480, "step")
    assert job["goal"] == {"of": "accuracy", "seen": 0.97}
    assert job["restarts_used"] == 1
    assert report["ticks"]["count"] == 8
    assert report["ticks"]["rpcs_per_tick"] == {"median": 5, "max": 17}
    assert report["ticks"]["seconds_per_tick"] == {"median": 0.1, "max": 0.3}
    assert report["reservations"] == [
        {
            "name": BOOKING.name,
            "nodes": [BOOKING.node],
            "start": float(BOOKING.starts_s),
            "last_node_free_at": 115.0,
            "freed_before_s": BOOKING.starts_s - 115.0,
        }
    ]


def test_delay_is_the_wait_beside_us_less_the_wait_alone():
    rows = {row["name"]: row for row in verdict.rigid_jobs(good())}
    assert rows["urgent"]["delay_s"] == 1.0
    assert rows["planned"]["planned_start"] == 121.0
    assert rows["planned"]["delay_s"] == 0.0
    assert rows["long"]["planned_start"] is None


def test_a_planned_start_finds_room_before_or_as_it_comes():
    planned = {"submit": 45.0, "planned_start": 121.0, "start": 101.0, "urgent": False}
    urgent = {"submit": 106.0, "planned_start": None, "start": 106.0, "urgent": True}
    taken = [(101.4, "3_0"), (107.0, "3_1")]
    rigid = [planned, urgent]
    assert verdict._made_room([], taken, rigid) == "3_0 stayed until 101 s, when it started"
    left = story.Size(52.0, 3, "hole closes")
    assert verdict._made_room([left], [], rigid) == "left at 52 s for 121 s"
    assert verdict._made_room([], taken[1:], rigid) == ""
    assert verdict._taken_for_urgent(taken, rigid) == ["3_1"]


def test_a_job_that_never_started_fails_its_check():
    run = good()
    last = run.with_it[-1]
    rows = tuple(r for r in last.rows if r.job != run.ids["planned"][0])
    waiting = replace(last, rows=(*rows, rigid("planned", 45, None)))
    report = verdict.report(replace(run, with_it=(*run.with_it[:-1], waiting)), ABOUT)
    failed = [check["what"] for check in report["checks"] if not check["met"]]
    assert [what for what in failed if what.startswith("planned")]


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING"])
def test_a_fragment_past_its_lease_is_a_violation(state):
    row = fragment(0, "n1", 0, 60)
    late = replace(row, state=state, end=row.end if state == "RUNNING" else ZERO + 99)
    found = verdict.violations(recording(sample(50, row), sample(63, late)))
    assert len(found) == 1
    assert "3.0 s after its lease had ended at 60 s" in found[0]


def test_one_second_of_sampling_is_tolerated_and_no_more():
    row = fragment(0, "n1", 0, 60)
    assert verdict.violations(recording(sample(61, row))) == []
    assert verdict.violations(recording(sample(61.5, row)))


def test_a_renewed_lease_counts_as_renewed():
    row = fragment(0, "n1", 0, 60)
    renewed = replace(row, end=ZERO + 120)
    assert verdict.violations(recording(sample(30, row), sample(70, renewed))) == []


def test_a_fragment_on_a_reserved_node_is_a_violation():
    row = fragment(0, BOOKING.node, 100, 400)
    found = verdict.violations(recording(sample(BOOKING.starts_s + 2, row)))
    assert len(found) == 1
    assert "until 2.0 s after its start" in found[0]


def test_waiting_past_a_planned_start_on_our_nodes_is_a_violation():
    plan = planned("planned", 45, 121, "n1", "n5")
    ours = fragment(3, "n5", 40, 300)
    before, after = sample(120, plan, ours), sample(125, plan, ours)
    assert verdict.violations(recording(before)) == []
    assert "waited 4.0 s past" in verdict.violations(recording(before, after))[0]


def test_a_plan_that_slips_while_we_are_there_is_a_violation():
    ours = fragment(3, "n5", 40, 300)
    plans = [planned("planned", 45, start, "n1", "n5") for start in (121, 130, 135)]
    times = (120, 122, 124)
    run = recording(*(sample(t, plan, ours) for t, plan in zip(times, plans)))
    assert "waited 3.0 s past" in verdict.violations(run)[0]


def test_waiting_past_a_planned_start_for_others_is_none_of_ours():
    plan = planned("planned", 45, 121, "n1", "n5")
    elsewhere = fragment(3, "n8", 40, 160)
    run = recording(sample(120, plan, elsewhere), sample(125, plan, elsewhere))
    assert verdict.violations(run) == []


def test_an_urgent_job_may_wait_for_kill_wait():
    plan = planned("urgent", 106, 106, "n6")
    ours = fragment(0, "n6", 4, 300)
    assert verdict.violations(recording(sample(107, plan, ours), sample(111, plan, ours))) == []
    assert verdict.violations(recording(sample(107, plan, ours), sample(113, plan, ours)))


def test_node_seconds_add_up_to_all_nodes_over_all_time():
    run = good()
    total = verdict.node_seconds(run.with_it, run)
    assert sum(total.values()) == pytest.approx(8 * (run.with_it[-1].t - run.with_it[0].t))
    assert total["reserved"] == 19.0


def farm(**told: int) -> records.Recording:
    """The good run as a pool's, whose result says this."""
    result = {"tasks": 360, "done": 360, "lost": 0, "repeated": 0, **told}
    return replace(good(), work=work.WORKS["pool"], rounds=(), result=result)


def failed_checks(run: records.Recording) -> list[str]:
    return [check["what"] for check in verdict.report(run, ABOUT)["checks"] if not check["met"]]


def test_a_pool_is_judged_by_its_tasks_and_told_in_them():
    assert failed_checks(farm()) == []
    job = verdict.report(farm(), ABOUT)["malleable_jobs"][0]
    assert (job["count"], job["unit"], job["rounds"]) == (360, "task", 0)
    assert story.sizes(farm())[-1].cause == "task farm finished"


@pytest.mark.parametrize(
    ("told", "what"),
    [
        ({"done": 359}, "every task was done"),
        ({"lost": 1}, "no task was lost"),
        ({"repeated": 1}, "no task was done twice"),
    ],
)
def test_a_pool_that_loses_or_repeats_a_task_fails(told: dict[str, int], what: str):
    assert failed_checks(farm(**told)) == [what]


def test_a_worker_that_fails_is_seen_though_others_finish():
    run = farm()
    first = run.with_it[1]
    broken = replace(first, rows=(*first.rows, fragment(5, "", 4, 125, state="FAILED")))
    seen = replace(run, with_it=(run.with_it[0], broken, *run.with_it[2:]))
    assert failed_checks(seen) == ["no worker failed"]
    training = replace(seen, work=work.WORKS["torchrun"], result=good().result)
    assert "no worker failed" not in failed_checks(training)


def test_nothing_seen_is_reported_not_raised():
    empty = verdict.report(recording(), ABOUT)
    assert not all(check["met"] for check in empty["checks"])
