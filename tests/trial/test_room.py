"""Expectations of an active check before it submits: idle nodes."""

from __future__ import annotations

from build import make_fragment, make_job, make_node, make_nodes, make_snapshot, reserve
from slurm_hooks.doctor.trial.room import find_room, room_lines
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


def test_a_crowded_partition_is_reported_before_any_job_is_submitted() -> None:
    text = said(make_snapshot(nodes=CROWDED[:2]), Mode())
    assert text.startswith("1 idle node of partition malleable can be used (n2)")
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
