"""Expectations of an active check before it submits: idle nodes, and the users that may be
tried.
"""

from __future__ import annotations

import pytest

from build import make_fragment, make_job, make_node, make_nodes, make_snapshot, reserve
from slurm_hooks.doctor.trial.room import find_room, is_left_out, room_lines
from slurm_hooks.model import FragmentState, NodeState
from slurm_hooks.settings.values import Mode, Settings

CROWDED = (make_node("n1", NodeState.BUSY), *make_nodes(4)[1:])


def said(seen: object, mode: Mode, wanted: int = 2, feature: str = "") -> str:
    room = find_room(seen, Settings(mode=mode), "malleable", feature)  # type: ignore[arg-type]
    return "\n".join(room_lines(room, wanted))


def test_all_idle_nodes_of_the_partition() -> None:
    elsewhere = make_node("x1", partitions=frozenset({"main"}))
    assert said(make_snapshot(nodes=(*CROWDED, elsewhere)), Mode()) == (
        "3 idle nodes of partition malleable can be used (n[2-4])"
    )


def test_a_crowded_canary_is_reported_before_any_job_is_submitted() -> None:
    text = said(make_snapshot(nodes=CROWDED), Mode("canary", nodes=("n1", "n2")))
    assert "1 idle node of partition malleable can be used (n2); 2 not: outside the canary" in text
    assert "the test needs 2 nodes: it waits for idle nodes" in text


def test_nodes_that_others_have_claimed_or_that_lack_a_feature() -> None:
    nodes = (make_node("n1", features=frozenset({"gpu"})), *make_nodes(3)[1:])
    seen = make_snapshot(nodes=nodes, reservations=[reserve({"n1"}, 90)])
    assert "2 idle nodes" in said(seen, Mode())
    assert "1 not: its hole is too short (reservation: maint)" in said(seen, Mode())
    text = said(seen, Mode(), feature="gpu")
    assert text.startswith("0 idle nodes of partition malleable can be used; 1 not: its hole")
    assert "2 not: without the features gpu" in text
    assert "without" not in said(seen, Mode(), feature="gpu*2")  # left to Slurm


def test_the_ceiling_counts_the_nodes_of_malleable_jobs() -> None:
    job = make_job(make_fragment(0, FragmentState.RUNNING, ["n1"]))
    seen = make_snapshot(job, nodes=CROWDED)
    assert "max_share leave 1 node, but the test needs 2" in said(seen, Mode(max_nodes=2))
    assert "max_share" not in said(seen, Mode(max_nodes=3))


@pytest.mark.parametrize(
    ("mode", "account", "is_out"),
    [
        (Mode(), "", False),
        (Mode("canary", nodes=("n1",)), "", False),
        (Mode("canary", users=("bob", "ann")), "", False),
        (Mode("canary", users=("bob",)), "", True),
        (Mode("canary", users=("bob",), accounts=("ml",)), "", False),  # Slurm chooses the account
        (Mode("canary", users=("bob",), accounts=("ml",)), "ML", False),
        (Mode("canary", users=("bob",), accounts=("ml",)), "bio", True),
    ],
)
def test_the_users_that_a_canary_leaves_out(mode: Mode, account: str, is_out: bool) -> None:
    assert is_left_out(mode, "ann", account) is is_out
