"""Fragments at rest are passed over, without any change of the plan."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from clusters import clusters
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from build import (
    after,
    make_fragment,
    make_job,
    make_mark,
    make_nodes,
    make_request,
    make_snapshot,
    no_clock,
)
from fake_slurm import FakeSlurm
from slurm_hooks.model import (
    AvoidedNode,
    Fragment,
    FragmentState,
    MalleableJob,
    Mark,
    Plan,
    Said,
    Snapshot,
)
from slurm_hooks.planning.plan import make_plan
from slurm_hooks.settings.values import Mode, Settings
from slurm_hooks.slurm.gateway import observe

HELD, RUNNING = FragmentState.HELD, FragmentState.RUNNING
SAME_AT_REST = {
    "request",
    "released",
    "run",
    "noticed",
    "gone",
    "obstacle",
    "slots",
    "qos",
    "is_spent",
}
NOTES: dict[str, Any] = {
    "failures": 2,
    "deaths": (AvoidedNode("n1", after(-60)),),
    "unfit": (AvoidedNode("n1", after(-60)),),
    "vain": 3,
    "priority": 70,
    "gave_way_to": "88",
    "is_apart": True,
    "is_on_hold": True,
    "is_finished": True,
    "idle": after(-60),
    "depended": after(-60),
    "stopped": "failed-3-times",
}
WORDS: list[dict[str, Any]] = [
    {"reason": "JobHeldAdmin"},
    {"reason": "BadConstraints", "nodes": ["n2"]},
    {"reason": "job_requeued_in_held_state"},
    {"depends": True},
    {"said": Said.FINISHED},
    {"said": Said.APART},
    {"released": after(-90), "restarts": 1, "exit_code": "1:0"},
    {"released": after(-5), "vain": 3},
]


def held(index: int = 1, **values: Any) -> Fragment:
    noted = {name: values.pop(name) for name in values.keys() & NOTES.keys()}
    mark = make_mark(values.pop("request", None), **noted)
    values = {"reason": "JobHeldUser", "mark": mark, **values}
    return make_fragment(index, HELD, values.pop("nodes", ()), **values)


def test_every_note_of_a_mark_is_known_here() -> None:
    assert NOTES.keys() | SAME_AT_REST == {field.name for field in fields(Mark)}


def test_a_fragment_that_left_as_asked_is_at_rest() -> None:
    left = held(released=after(-90), restarts=1, noticed=after(-60), gone=1, said=Said.TRAINED)
    assert left.is_at_rest
    assert held().is_at_rest
    assert not replace(held(), priority=70).is_at_rest  # not held by now


@pytest.mark.parametrize("values", [*({name: value} for name, value in NOTES.items()), *WORDS])
def test_a_fragment_with_a_note_or_a_word_is_not_at_rest(values: dict[str, Any]) -> None:
    assert not held(**values).is_at_rest


def both_plans(seen: Snapshot) -> tuple[Plan, Plan]:
    """Make the plan, and the plan in which no fragment is passed over."""
    plan = make_plan(seen, Settings(mode=Mode("on")), no_clock)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MalleableJob, "stirring", property(lambda job: job.fragments))
        return plan, make_plan(seen, Settings(mode=Mode("on")), no_clock)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clusters())
def test_passing_over_fragments_at_rest_changes_no_plan(slurm: FakeSlurm) -> None:
    passed_over, asked = both_plans(observe(slurm, ["malleable"]))
    assert passed_over == asked


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([{}, {}, *({n: v} for n, v in NOTES.items()), *WORDS]), max_size=5),
    st.sampled_from(["torchrun", "pool"]),
    st.booleans(),
)
def test_passing_over_fragments_with_notes_changes_no_plan(
    notes: list[dict[str, Any]], engine: str, has_agent: bool
) -> None:
    request = replace(make_request(), engine=engine)
    of_all: dict[str, Any] = {"request": request, "has_agent": has_agent}
    rest = [held(n, **of_all, **values) for n, values in enumerate(notes, 1)]
    trains = make_fragment(0, RUNNING, ["n1"], said=Said.TRAINED, **of_all)
    for first in (trains, held(0, **of_all)):
        job = make_job(first, *rest, request=request)
        passed_over, asked = both_plans(make_snapshot(job, nodes=make_nodes(6)))
        assert passed_over == asked
