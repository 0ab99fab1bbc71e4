"""Slurmctld's reaction to acts of people and ticks on array elements: fake Slurm and real Slurm.

Where these tests pass on both, the model of `tests/model` rests on facts.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from contract.stages import NODES, Fake, Real, Row, Stage, until
from slurm_hooks.sandbox import Sandbox, SandboxSpec
from slurm_hooks.slurm.text import parse_limit

KINDS = ["fake", pytest.param("real", marks=pytest.mark.slurm)]
HIDDEN = "job requeued in held state"


@pytest.fixture(scope="module")
def bare(installation: Any) -> Iterator[Sandbox]:
    with Sandbox.up(SandboxSpec(nodes=NODES, slurm=installation)) as box:
        yield box


@pytest.fixture(params=KINDS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    made: Stage = Fake() if request.param == "fake" else Real(request.getfixturevalue("bare"))
    yield made
    made.tidy()


def state(stage: Stage, job: int, index: int = 0) -> str:
    row = stage.rows(job).get(index)
    return row["State"] if row else "gone"


def row(stage: Stage, job: int, index: int = 0) -> Row:
    return stage.rows(job)[index]


def hold_of(stage: Stage, job: int, index: int = 0) -> tuple[bool, str]:
    """Tell whether it is held, and return Slurm's reason."""
    values = row(stage, job, index)
    return values["PriorityLong"] == "0", values["Reason"]


def running(stage: Stage, count: int = 1, elements: int = 2) -> int:
    job = stage.submit(elements)
    for index in range(count):
        assert stage.does(f"scontrol release {job}_{index}")
    until(stage, lambda: all(state(stage, job, i) == "RUNNING" for i in range(count)))
    return job


def ended(stage: Stage, code: int) -> int:
    job = stage.submit(1, code)
    assert stage.does(f"scontrol release {job}_0")
    until(stage, lambda: state(stage, job) == ("FAILED" if code else "COMPLETED"))
    return job


def test_a_cancelled_element_that_is_put_back_runs_again(stage: Stage) -> None:
    job = running(stage)
    assert stage.does(f"scancel {job}_0", "nobody")
    until(stage, lambda: state(stage, job) == "CANCELLED")
    assert stage.does(f"scontrol requeuehold {job}_0")
    until(stage, lambda: state(stage, job) == "PENDING")
    assert row(stage, job)["restartcnt"] == "1"
    assert hold_of(stage, job) == (True, HIDDEN)


def test_a_cancel_on_the_way_back_is_final(stage: Stage) -> None:
    job = running(stage)
    assert stage.does(f"scontrol requeuehold {job}_0", "nobody")
    stage.does(f"scancel {job}_0", "nobody")
    until(stage, lambda: state(stage, job) == "CANCELLED")


def test_a_cancelled_element_that_never_started_leaves_no_trace(stage: Stage) -> None:
    job = stage.submit(3)
    assert stage.does(f"scancel {job}_1", "nobody")
    assert set(stage.rows(job)) == {0, 2}
    assert not stage.does(f"scontrol requeuehold {job}_1")


def test_a_job_that_waits_is_cancelled_as_a_whole(stage: Stage) -> None:
    job = stage.submit(3)
    assert stage.does(f"scancel {job}", "nobody")
    assert [r["State"] for r in stage.rows(job).values()] == ["CANCELLED"] * 3


def test_a_cancel_does_not_reach_ended_elements(stage: Stage) -> None:
    job = ended(stage, 0)
    stage.does(f"scancel {job}", "nobody")
    assert state(stage, job) == "COMPLETED"
    assert not stage.does(f"scontrol update jobid={job}_0 AdminComment=x")
    assert not stage.does(f"scontrol hold {job}_0")


def test_the_holder_of_a_waiting_element(stage: Stage) -> None:
    job = stage.submit(2)
    assert hold_of(stage, job) == (True, "JobHeldUser")
    assert stage.does(f"scontrol hold {job}_0")
    assert hold_of(stage, job) == (True, "JobHeldAdmin")
    assert stage.does(f"scontrol uhold {job}_0", "nobody")
    assert hold_of(stage, job) == (True, "JobHeldAdmin")
    assert not stage.does(f"scontrol release {job}_0", "nobody")
    assert stage.does(f"scontrol uhold {job}_0")
    assert hold_of(stage, job) == (True, "JobHeldUser")


@pytest.mark.parametrize(("verb", "reason"), [("uhold", "JobHeldUser"), ("hold", "JobHeldAdmin")])
def test_an_element_held_while_running_comes_back_held(
    stage: Stage, verb: str, reason: str
) -> None:
    job = running(stage)
    assert stage.does(f"scontrol {verb} {job}_0")
    assert state(stage, job) == "RUNNING"
    assert hold_of(stage, job) == (True, reason)
    stage.preempt()
    until(stage, lambda: state(stage, job) == "PENDING")
    assert hold_of(stage, job) == (True, reason)
    assert row(stage, job)["restartcnt"] == "1"


def test_an_element_without_a_hold_comes_back_to_wait_two_minutes(stage: Stage) -> None:
    job = running(stage)
    stage.preempt()
    until(stage, lambda: state(stage, job) == "PENDING")
    assert hold_of(stage, job) == (False, "BeginTime")
    assert 100 <= int(row(stage, job)["EligibleTime"]) - stage.now() <= 125
    assert stage.does(f"scontrol update jobid={job}_0 StartTime=now")
    until(stage, lambda: state(stage, job) == "RUNNING")


def test_put_back_and_held_a_hold_cannot_be_read(stage: Stage) -> None:
    job = running(stage)
    assert stage.does(f"scontrol requeuehold {job}_0")
    until(stage, lambda: state(stage, job) == "PENDING")
    assert stage.does(f"scontrol hold {job}_0")
    assert hold_of(stage, job) == (True, HIDDEN)
    assert stage.does(f"scontrol release {job}_0")
    assert stage.does(f"scontrol uhold {job}_0")
    assert hold_of(stage, job) == (True, "JobHeldUser")


def test_a_running_element_is_held_and_requeued(stage: Stage) -> None:
    job = running(stage)
    assert stage.does(f"scontrol uhold {job}_0")
    assert stage.does(f"scontrol requeue {job}_0")
    until(stage, lambda: state(stage, job) == "PENDING")
    assert hold_of(stage, job) == (True, "JobHeldUser")


@pytest.mark.parametrize("code", [0, 1])
def test_an_ended_element_is_requeued_and_held(stage: Stage, code: int) -> None:
    job = ended(stage, code)
    assert stage.does(f"scontrol requeue {job}_0")
    assert stage.does(f"scontrol uhold {job}_0")
    assert hold_of(stage, job) == (True, "JobHeldUser")
    assert row(stage, job)["restartcnt"] == "1"
    assert row(stage, job)["exit_code"] in ({0: ("0", "0:0"), 1: ("256", "1:0")}[code])
    assert stage.does(f"scontrol release {job}_0")
    assert row(stage, job)["exit_code"] in ("0", "0:0")


def test_a_waiting_element_is_not_requeued_and_prevents_no_other_requeue(stage: Stage) -> None:
    job = running(stage, 2, 3)
    assert not stage.does(f"scontrol requeuehold {job}_[0-2]")
    until(stage, lambda: state(stage, job) == state(stage, job, 1) == "PENDING")
    assert row(stage, job, 2)["restartcnt"] == "0"


def test_the_end_of_a_lease_is_set_to_the_second(stage: Stage) -> None:
    job = running(stage)
    end = stage.now() + 200
    assert stage.does(f"scontrol update jobid={job}_0 EndTime=uts{end}")
    assert abs(int(row(stage, job)["EndTime"]) - end) <= 2
    assert not stage.does(f"scontrol update jobid={job}_0 EndTime=uts{stage.now() - 5}")
    assert not stage.does(f"scontrol update jobid={job}_1 EndTime=uts{end}")
    assert not stage.does(f"scontrol update jobid={job}_[0-1] EndTime=uts{end + 30}")
    assert abs(int(row(stage, job)["EndTime"]) - end - 30) <= 2


def test_limit_and_comments_outlive_a_requeue(stage: Stage) -> None:
    job = running(stage)
    assert stage.does(f"scontrol update jobid={job}_0 AdminComment=site TimeLimit=7")
    assert stage.does(f"scontrol update jobid={job}_0 Comment=joined{{0}};mine", "nobody")
    assert not stage.does(f"scontrol update jobid={job}_0 AdminComment=x", "nobody")
    assert stage.does(f"scontrol requeuehold {job}_0")
    until(stage, lambda: state(stage, job) == "PENDING")
    values = row(stage, job)
    assert (values["admin_comment"], values["comment"]) == ("site", "joined{0};mine")
    assert values["TimeLimit"].endswith("7:00")


def test_a_suspended_element_is_still_on_a_node_that_reads_idle(stage: Stage) -> None:
    job = running(stage)
    # On 26.05 its user may do so. Before, only an operator may.
    assert stage.does(f"scontrol suspend {job}_0", "nobody") or stage.does(
        f"scontrol suspend {job}_0"
    )
    assert state(stage, job) == "SUSPENDED"
    assert row(stage, job)["PriorityLong"] == "0"
    assert row(stage, job)["NodeList"]
    until(stage, lambda: stage.idle() == NODES)
    assert not stage.does(f"scontrol update jobid={job}_0 EndTime=uts{stage.now() + 90}")
    assert stage.does(f"scontrol resume {job}_0")
    assert state(stage, job) == "RUNNING"


def test_a_throttle_is_the_printed_reason(stage: Stage) -> None:
    job = stage.submit(2)
    assert stage.does(f"scontrol update jobid={job} ArrayTaskThrottle=1", "nobody")
    assert stage.does(f"scontrol release {job}_[0-1]")
    until(stage, lambda: "JobArrayTaskLimit" in {r["Reason"] for r in stage.rows(job).values()})


@pytest.mark.slurm
def test_an_ended_element_is_forgotten(bare_sandbox: Any) -> None:
    """The fake does the same, by arithmetic."""
    real = Real(bare_sandbox(nodes=NODES, extra_conf="MinJobAge=5"))
    job = real.submit(2, 0)
    assert real.does(f"scontrol release {job}_0")
    until(real, lambda: state(real, job) == "COMPLETED")
    until(real, lambda: state(real, job) == "gone")
    assert state(real, job, 1) == "PENDING"


def test_held_elements_are_moved_while_another_waits_as_an_ordinary_job(stage: Stage) -> None:
    lent = running(stage, NODES, NODES)
    job = stage.submit(4, partition="main")
    assert stage.does(f"scontrol update jobid={job}_[1-3] Partition=malleable TimeLimit=5")
    assert set(stage.rows(job, "main")) == {0}
    assert set(stage.rows(job, "malleable")) == {1, 2, 3}
    assert {hold_of(stage, job, i) for i in range(4)} == {(True, "JobHeldUser")}
    limits = [parse_limit(row(stage, job, i)["TimeLimit"]) for i in (0, 1)]
    assert limits == [timedelta(minutes=10), timedelta(minutes=5)]
    assert stage.does(f"scontrol release {job}_0")
    until(stage, lambda: state(stage, job) == "RUNNING")
    assert sorted(state(stage, lent, i) for i in range(NODES))[1:] == ["RUNNING", "RUNNING"]
    assert not stage.does(f"scontrol update jobid={job}_0 Partition=malleable")
