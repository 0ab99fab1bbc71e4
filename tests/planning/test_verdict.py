"""A single verdict on each node: `explain`, the reasons of idle nodes and the active check
agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Optional

import pytest

from build import (
    after,
    make_fragment,
    make_job,
    make_node,
    make_request,
    make_snapshot,
    no_clock,
    plan_start,
    reserve,
)
from slurm_hooks.doctor.gather.job import lacks
from slurm_hooks.doctor.trial.room import find_room, room_lines
from slurm_hooks.model import (
    AvoidedNode,
    FragmentState,
    MalleableJob,
    Needs,
    Node,
    NodeState,
    Plan,
    Snapshot,
    Verb,
    Verdict,
    Why,
)
from slurm_hooks.planning import gates
from slurm_hooks.planning.plan import make_plan
from slurm_hooks.report.why import reason_text
from slurm_hooks.settings.values import Mode, Settings

SETTINGS = Settings(mode=Mode("on"))
EAGER = replace(SETTINGS, plan=replace(SETTINGS.plan, loss_s=0.0))
"""A hit costs nothing, so a job takes nodes that somebody else is due to start on."""


def plan_of(seen: Snapshot) -> Plan:
    return make_plan(seen, SETTINGS, no_clock)


def explained(seen: Snapshot, job_id: int = 7) -> set[str]:
    (planned,) = (job for job in plan_of(seen).jobs if job.job_id == job_id)
    return {reason_text(each) for each in planned.reasons if each.why is Why.OTHER_NODES}


def idle(seen: Snapshot) -> Mapping[str, int]:
    return {each.reason.value: each.nodes for each in plan_of(seen).idle}


def room(seen: Snapshot, settings: Settings = SETTINGS, feature: str = "") -> str:
    return "\n".join(room_lines(find_room(seen, settings, "malleable", feature), 1))


def waiting(**fields: Any) -> MalleableJob:
    return make_job(held=2, **fields)


def large(name: str) -> Node:
    """A busy node with the memory that some jobs here lack."""
    return make_node(name, NodeState.BUSY, memory_mib=9)


def test_a_node_with_a_suspended_fragment_is_usable_for_no_judge() -> None:
    """Slurm shows IDLE for it (22.05)."""
    still = make_job(make_fragment(0, FragmentState.SUSPENDED, ["n1"], job_id=8), job_id=8)
    seen = make_snapshot(still, waiting(), nodes=(make_node("n1"),))
    assert idle(seen) == {}
    assert explained(seen) == {"1 other node: busy"}
    assert room(seen).startswith("0 idle nodes of partition malleable can be used")


def test_a_node_that_the_job_excludes_is_unfit_however_long_its_hole_is() -> None:
    request = replace(make_request(), excluded=frozenset({"n1"}))
    job = waiting(request=request)
    seen = make_snapshot(job, nodes=(make_node("n1"),), reservations=[reserve({"n1"}, 90)])
    assert explained(seen) == {"1 other node: free, but the job excludes it (--exclude)"}
    assert idle(seen) == {"unfit": 1}


def test_a_suspect_node_that_is_too_small_is_unfit() -> None:
    """No repair of the node would help a job that waits."""
    deaths = (AvoidedNode("n1", after(-9)),)
    accusers = [
        make_job(make_fragment(0, FragmentState.RUNNING, [f"x{i}"], i, deaths=deaths), job_id=i)
        for i in (1, 2)
    ]
    accusers = [replace(job, user=f"user{job.job_id}") for job in accusers]
    nodes = (make_node("n1"), *(large(f"x{i}") for i in (1, 2)))
    seen = make_snapshot(*accusers, waiting(needs=Needs(memory_mib=9)), nodes=nodes)
    assert "1 other node: free, but not enough memory" in explained(seen)
    healthy = make_snapshot(*accusers, waiting(), nodes=nodes)
    died = "free, but fragments of jobs 1, 2 died there"
    assert f"1 other node: {died}" in explained(healthy)
    assert "fragments of jobs 1, 2 died there" in room(healthy)
    small = replace(seen, jobs=(*(without_growth(job) for job in accusers), seen.jobs[-1]))
    assert idle(small) == {"unfit": 1}


def without_growth(job: MalleableJob) -> MalleableJob:
    return replace(job, request=make_request(1, 1))


def test_a_claim_is_named_only_where_it_blocks() -> None:
    seen = make_snapshot(
        waiting(needs=Needs(memory_mib=9)),
        nodes=(make_node("n1"), make_node("n2"), large("n3")),
        reservations=[reserve({"n1"}, 90)],
    )
    assert explained(seen) == {"2 other nodes: free, but not enough memory", "1 other node: busy"}


def gpus(name: str, count: int, state: NodeState = NodeState.FREE) -> Node:
    return make_node(name, state, gres=(("gpu", count),))


@pytest.mark.parametrize(
    ("needs", "has"),
    [
        (Needs(gres=(("gpu", 8),)), "8 GPUs"),
        (Needs(gres=(("gpu:a100", 2),)), "2 a100 GPUs"),
        (Needs(gres=(("gpu", 2),), memory_mib=9_000_000), "9000000 MiB"),
        (Needs(gres=(("gpu", 8),), cpus=900), "8 GPUs and 900 CPUs"),
    ],
)
def test_a_job_is_told_that_no_node_has_what_it_asks_for(needs: Needs, has: str) -> None:
    """Otherwise it would wait for busy nodes that are too small for it."""
    nodes = (gpus("n1", 4), gpus("n2", 4, NodeState.BUSY), gpus("n3", 2, NodeState.DOWN))
    (planned,) = plan_of(make_snapshot(waiting(needs=needs), nodes=nodes)).jobs
    texts = [reason_text(reason) for reason in planned.reasons]
    assert f"no node of partition malleable has {has}" in texts[-1]
    assert not [text for text in texts if "other node" in text]


def test_a_job_is_told_that_its_partition_is_closed_and_not_to_give_up() -> None:
    """While a partition is not UP, no node is in it. That is no lack of CPUs."""
    nodes = [replace(gpus("n1", 4), partitions=frozenset({"main"}))]
    (planned,) = plan_of(make_snapshot(waiting(needs=Needs(cpus=1)), nodes=nodes)).jobs
    texts = [reason_text(reason) for reason in planned.reasons]
    assert texts[-1].startswith("partition malleable is not UP, or has no node; no fragment starts")


def test_a_job_waits_for_the_only_node_that_is_large_enough() -> None:
    nodes = (gpus("n1", 4), gpus("n2", 8, NodeState.BUSY))
    seen = make_snapshot(waiting(needs=Needs(gres=(("gpu", 8),))), nodes=nodes)
    assert explained(seen) == {
        "1 other node: free, but not enough gpu",
        "1 other node: busy",
    }


def test_the_check_has_room_where_a_job_would_start() -> None:
    """A planned start is no wall for a job that loses no work by an interruption."""
    seen = make_snapshot(nodes=(make_node("n1"),), planned=[plan_start({"n1"}, 90)])
    plan = make_plan(replace(seen, jobs=(waiting(),)), EAGER, no_clock)
    assert [a.nodes for a in plan.actions if a.verb is Verb.GROW] == [{"n1"}]
    assert room(seen, EAGER).startswith("1 idle node of partition malleable can be used (n1)")


def test_the_check_reads_several_features_as_the_planner_does() -> None:
    nodes = (make_node("n1", features=frozenset({"gpu"})),)
    job = waiting(needs=Needs(features="gpu&big"))
    assert "without the features gpu&big" in " ".join(explained(make_snapshot(job, nodes=nodes)))
    assert "1 not: without the features gpu&big" in room(
        make_snapshot(nodes=nodes), feature="gpu&big"
    )


@pytest.mark.parametrize(
    ("engine", "is_finished", "said"),
    [
        ("torchrun", False, ["has 1 node and needs 2: 1 other node: down"]),
        ("pool", False, []),  # its minimum holds only for a start from 0 nodes
        ("torchrun", True, []),  # its script still does something after the training
    ],
)
def test_doctor_says_that_a_job_lacks_nodes_if_the_planner_does(
    engine: str, is_finished: bool, said: list[str]
) -> None:
    request = replace(make_request(2, 2), engine=engine)
    runs = make_fragment(0, FragmentState.RUNNING, ["n1"], request=request, is_finished=is_finished)
    job = make_job(runs, held=1, request=request)
    nodes = (make_node("n1", NodeState.BUSY), make_node("n2", NodeState.DOWN))
    plan = plan_of(make_snapshot(job, nodes=nodes))
    assert list(lacks(job, plan, after(0))) == said


def test_no_node_is_usable_while_nodes_register() -> None:
    """A slurmctld that has just begun would start queued fragments there."""
    nodes = (make_node("n1"), make_node("n2"))
    seen = make_snapshot(waiting(), nodes=nodes, registering=frozenset({"n2"}))
    assert idle(seen) == {"registering": 2}
    assert explained(seen) == {"2 other nodes: free"}
    assert room(seen).startswith("0 idle nodes of partition malleable can be used; 2 not: ")


@pytest.mark.parametrize(
    ("engine", "fewest", "free", "said"),
    [
        ("torchrun", 2, 1, ["needs 2 nodes at once, and 1 is usable now"]),
        ("torchrun", 4, 2, ["needs 4 nodes at once, and 2 are usable now"]),
        ("pool", 4, 2, ["needs 4 nodes at once, and 2 are usable now"]),
        ("torchrun", 2, 2, []),
        ("torchrun", 2, 0, []),  # "busy" says enough
    ],
)
def test_a_job_is_told_that_too_few_nodes_are_usable_for_its_start(
    engine: str, fewest: int, free: int, said: list[str]
) -> None:
    request = replace(make_request(fewest, 8), engine=engine)
    states = [NodeState.FREE] * free + [NodeState.BUSY] * (3 - free)
    nodes = [make_node(f"n{i}", state) for i, state in enumerate(states)]
    (planned,) = plan_of(make_snapshot(make_job(held=8, request=request), nodes=nodes)).jobs
    texts = [reason_text(reason) for reason in planned.reasons]
    assert [text for text in texts if "at once" in text] == said
    assert not said or texts[0] == said[0]


def test_a_new_reason_is_a_row_for_starts_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here a site closes nodes with a feature. Only the table knows of it."""

    def closed(entry: gates.Entry) -> Optional[Verdict]:
        is_closed = "closed" in entry.node.features
        return Verdict(Why.FEATURES, "closed") if is_closed else None

    def leaves(at: gates.Presence) -> Optional[Why]:
        is_closed = any("closed" in hole.node.features for hole in at.holes)
        return Why.FEATURES if is_closed else None

    monkeypatch.setattr(gates, "GATES", (*gates.GATES, gates.Gate(closed, leaves)))
    shut = frozenset({"closed"})
    nodes = (make_node("n1", NodeState.BUSY, features=shut), make_node("n2", features=shut))
    here = make_job(make_fragment(0, FragmentState.RUNNING, ["n1"], job_id=8), job_id=8)
    seen = make_snapshot(here, waiting(), nodes=(*nodes, make_node("n3")))
    asked = {i.fragment.job_id: i for i in plan_of(seen).actions}
    assert (asked[8].verb, asked[8].cause) == (Verb.NOTICE, Why.FEATURES)
    assert (asked[7].verb, asked[7].nodes) == (Verb.GROW, {"n3"})
    assert "1 other node: free, but without the features closed" in explained(seen)
    assert idle(seen) == {"starting": 1, "unfit": 1}


def test_a_start_that_slurm_expects_tomorrow_is_no_lease() -> None:
    """Slurm plans it so if another job took the node first. Its wait ends by `start_timeout_s`."""
    late = {"released": after(-10), "start": after(90_000), "end": after(93_600)}
    coming = make_fragment(0, FragmentState.PENDING, ["n1"], **late)
    seen = make_snapshot(make_job(coming), nodes=(make_node("n1", NodeState.BUSY),))
    assert plan_of(seen).actions == ()


def test_a_fragment_on_its_way_to_a_node_that_leaves_service_is_held() -> None:
    nodes = (make_node("n1", NodeState.LEAVING), make_node("n2", NodeState.BUSY))
    coming = make_fragment(0, FragmentState.PENDING, ["n1"], released=after(-2))
    (held,) = plan_of(make_snapshot(make_job(coming), nodes=nodes)).actions
    assert held.is_held
    assert held.cause is Why.NODE_LEAVES
