"""A fragment that runs and is in no round is named, with its node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from build import NOW, after, make_fragment, make_job, make_request, make_snapshot, no_clock
from slurm_hooks.model import FragmentState, MalleableJob, Reason, Said, Why
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.plan import make_plan
from slurm_hooks.planning.trouble import idle_fragments
from slurm_hooks.report.why import reason_text
from slurm_hooks.settings.values import Mode, Settings

TRAINS = make_fragment(0, FragmentState.RUNNING, ["n1"], said=Said.TRAINED)
NOT_STARTED = "its script has not started its training, or lacks Slurm's commands"
WAITS = "it waits for other fragments and has joined no round: see its log"
NOT_JOINED = "its training has started but joined no round: see its log"


def reasons_of(job: MalleableJob) -> tuple[Reason, ...]:
    return idle_fragments(Ground(make_snapshot(job), Settings(mode=Mode("on"))), job)


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"said": Said.NOTHING}, NOT_STARTED),
        ({"said": Said.STARTED}, NOT_JOINED),
        ({"said": Said.WAITING}, WAITS),
        ({"said": Said.STARTED, "start": after(-60)}, NOT_JOINED),
        ({"said": Said.STARTED, "start": after(-59)}, ""),
        ({"said": Said.JOINED}, ""),
        ({"said": Said.TRAINED}, ""),
        ({"said": Said.LEAVING}, ""),
        ({"said": Said.STARTED, "noticed": after(-9)}, ""),  # it was asked to leave
    ],
)
def test_a_fragment_that_does_not_train_for_a_minute(fields: dict[str, Any], cause: str) -> None:
    idle = make_fragment(1, FragmentState.RUNNING, ["n3", "n2"], **fields)
    reasons = reasons_of(make_job(TRAINS, idle))
    ran_s = (NOW - (idle.start or NOW)).total_seconds()
    text = f"fragment 7_1 has run on n2, n3 for {ran_s:.0f} s without training; {cause}"
    assert list(map(reason_text, reasons)) == ([text] if cause else [])


@pytest.mark.parametrize("state", [s for s in FragmentState if s is not FragmentState.RUNNING])
def test_a_fragment_that_does_not_run_is_not_named(state: FragmentState) -> None:
    waits = make_fragment(1, state, ["n2"], said=Said.STARTED, start=after(-200))
    assert not reasons_of(make_job(TRAINS, waits))


def test_workers_of_a_pool_never_meet() -> None:
    request = replace(make_request(), engine="pool")
    worker = make_fragment(0, FragmentState.RUNNING, ["n1"], said=Said.NOTHING, request=request)
    assert not reasons_of(make_job(worker))


def test_an_idle_fragment_is_a_reason_in_the_plan() -> None:
    idle = make_fragment(1, FragmentState.RUNNING, ["n2"], said=Said.STARTED)
    (planned,) = make_plan(
        make_snapshot(make_job(TRAINS, idle)), Settings(mode=Mode("on")), no_clock
    ).jobs
    (reason,) = (r for r in planned.reasons if r.why is Why.NOT_TRAINING)
    text = "fragment 7_1 has run on n2 for 200 s without training; "
    assert reason_text(reason).startswith(text)
    kept_to_one = make_fragment(
        0, FragmentState.RUNNING, ["n1"], said=Said.NOTHING, has_agent=False
    )
    (planned,) = make_plan(
        make_snapshot(make_job(kept_to_one)), Settings(mode=Mode("on")), no_clock
    ).jobs
    whys = [reason.why for reason in planned.reasons]
    assert Why.APART in whys
    assert Why.NOT_TRAINING not in whys, "it trains, by itself"
