"""Answers of scontrol about nodes, partitions, reservations and configuration."""

from __future__ import annotations

from datetime import timedelta

import pytest

from slurm_hooks.errors import UnreadableOutput
from slurm_hooks.model import NodeState
from slurm_hooks.slurm.cluster import node_state, parse_cluster

TAIL = ("Configuration data as of 1800000000", "SLURM_VERSION           = 22.05.8")
NODE = "NodeName={} CPUTot=2 RealMemory=2000 State=IDLE Partitions=main,malleable Reason=State=DOWN"
UP = "PartitionName=malleable PreemptMode=REQUEUE State=UP"


def cluster(*lines: str):  # type: ignore[no-untyped-def]
    return parse_cluster("\n".join((*lines, *TAIL)))


def test_without_clock_or_version_no_answer_is_believed() -> None:
    for text in ("", "\n".join(TAIL[:1]), "\n".join(TAIL[1:])):
        with pytest.raises(UnreadableOutput):
            parse_cluster(text)


def test_text_of_administrators_is_not_read_as_state() -> None:
    (node,) = cluster(NODE.format("n1"), UP).nodes
    assert node.state is NodeState.FREE


def test_a_partition_that_is_down_offers_no_node() -> None:
    (node,) = cluster(NODE.format("n1"), UP.replace("UP", "DOWN")).nodes
    assert "malleable" not in node.partitions


def test_an_unreadable_reservation_blocks_its_nodes() -> None:
    line = "ReservationName=odd StartTime=soon EndTime=1800000900 Nodes=n[1-2]"
    seen = cluster(NODE.format("n1"), NODE.format("n3"), UP, line)
    assert [n.state for n in seen.nodes] == [NodeState.UNKNOWN, NodeState.FREE]
    assert any("reservation odd" in text for text in seen.unknown)


def test_a_reservation_that_ends_before_it_starts_blocks_its_nodes() -> None:
    line = "ReservationName=odd StartTime=1800000900 EndTime=1800000000 Nodes=n1"
    assert cluster(NODE.format("n1"), UP, line).nodes[0].state is NodeState.UNKNOWN


def test_a_reservation_with_an_odd_host_list_is_about_every_node() -> None:
    line = "ReservationName=odd StartTime=1800000300 EndTime=1800000900 Nodes=n[1-"
    seen = cluster(NODE.format("n1"), NODE.format("n2"), UP, line)
    assert seen.reservations[0].nodes == {"n1", "n2"}
    assert any("reservation odd" in text for text in seen.unknown)


@pytest.mark.parametrize(
    ("flags", "ended_s", "next_s"),
    [
        ("DAILY,SPEC_NODES", 5, 86_400 - 605),
        ("HOURLY", 5, 3_600 - 605),
        ("HOURLY", 7_200, 3_000),  # two were missed as well
        ("WEEKLY", 1, 7 * 86_400 - 601),
        ("WEEKDAY", 1, 86_400 - 601),  # or later
        ("HOURLY", 0, 3_000),
        ("SPEC_NODES", 5, -605),
        ("DAILY", -5, -595),  # not over yet
    ],
)
def test_the_next_instance_of_a_repeated_reservation_counts(
    flags: str, ended_s: int, next_s: int
) -> None:
    now, end = 1_800_000_000, 1_800_000_000 - ended_s
    times = f"StartTime={end - 600} EndTime={end} Nodes=n1 Flags={flags}"
    (reservation,) = cluster(NODE.format("n1"), UP, f"ReservationName=r {times}").reservations
    assert reservation.start.timestamp() - now == next_s
    assert reservation.end - reservation.start == timedelta(minutes=10)


@pytest.mark.parametrize("number", ["many", "\u00b2", "1.5", "-2"])
def test_a_node_with_odd_numbers_is_left_alone(number: str) -> None:
    (node,) = cluster(NODE.format("n1").replace("CPUTot=2", f"CPUTot={number}"), UP).nodes
    assert node.state is NodeState.UNKNOWN


@pytest.mark.parametrize(
    ("config", "version", "wait_s"),
    [
        ("", "22.05.8", 121),
        ("AuthInfo = socket=/run/munge.sock,cred_expire=300", "22.05.8", 301),
        ("SchedulerParameters = bf_continue,requeue_delay=7", "24.11.5", 121),
        ("SchedulerParameters = bf_continue,requeue_delay=7", "25.11.8", 8),
    ],
)
def test_the_time_for_which_slurm_delays_a_requeued_job(
    config: str, version: str, wait_s: int
) -> None:
    text = f"{config}\n{TAIL[0]}\nSLURM_VERSION = {version}"
    assert parse_cluster(text).slurm.requeue_wait.total_seconds() == wait_s


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("IDLE", NodeState.FREE),
        ("IDLE+PLANNED", NodeState.FREE),
        ("IDLE+RESERVED", NodeState.FREE),
        ("IDLE+CLOUD", NodeState.FREE),
        ("IDLE+DYNAMIC_NORM", NodeState.FREE),
        ("ALLOCATED", NodeState.BUSY),
        ("ALLOCATED+RESERVED", NodeState.BUSY),
        ("MIXED", NodeState.SHARED),
        ("MIXED+PLANNED", NodeState.SHARED),
        ("MIXED+COMPLETING", NodeState.BUSY),
        ("IDLE+COMPLETING", NodeState.BUSY),
        ("ALLOCATED+COMPLETING", NodeState.BUSY),
        ("IDLE+DRAIN", NodeState.LEAVING),
        ("ALLOCATED+DRAIN", NodeState.LEAVING),
        ("MIXED+DRAIN+COMPLETING", NodeState.LEAVING),
        ("IDLE+MAINTENANCE+RESERVED+PLANNED", NodeState.LEAVING),
        ("ALLOCATED+REBOOT_REQUESTED", NodeState.LEAVING),
        ("IDLE+REBOOT_ISSUED", NodeState.LEAVING),
        ("ALLOCATED+DRAIN+INVALID_REG", NodeState.LEAVING),
        ("IDLE+INVAL", NodeState.LEAVING),
        ("DOWN+INVALID_REG", NodeState.DOWN),
        ("DOWN", NodeState.DOWN),
        ("DOWN*", NodeState.DOWN),
        ("DOWN+DRAIN", NodeState.DOWN),
        ("DOWN*+DRAIN", NodeState.DOWN),
        ("IDLE*", NodeState.DOWN),
        ("IDLE+NOT_RESPONDING", NodeState.DOWN),
        ("IDLE+FAIL", NodeState.DOWN),
        ("IDLE+CLOUD+POWERED_DOWN", NodeState.DOWN),
        ("IDLE+POWERING_UP", NodeState.DOWN),
        ("FUTURE", NodeState.DOWN),
        ("UNKNOWN", NodeState.DOWN),
        ("UNKNOWN+INVALID_REG", NodeState.DOWN),
        ("IDLE+SOMETHING_NEW", NodeState.UNKNOWN),
        ("SOMETHING_NEW", NodeState.UNKNOWN),
        ("IDLE~", NodeState.UNKNOWN),
        ("PLANNED", NodeState.UNKNOWN),
        ("", NodeState.UNKNOWN),
        ("idle", NodeState.UNKNOWN),
    ],
)
def test_node_states(text: str, state: NodeState) -> None:
    assert node_state(text) is state


def test_nodes_in_service_without_a_start_of_slurmd_have_not_registered() -> None:
    row = "NodeName={} CPUTot=2 RealMemory=2000 State={} Partitions=main SlurmdStartTime={}"
    asked = ("IDLE", "ALLOCATED", "UNKNOWN", "UNKNOWN+PLANNED")
    given_up = ("DOWN*", "UNKNOWN*", "UNKNOWN+NOT_RESPONDING", "UNKNOWN+POWERED_DOWN", "FUTURE")
    leaving = ("IDLE+DRAIN", "UNKNOWN+DRAIN", "UNKNOWN+MAINTENANCE", "nonsense")
    others = (*asked, *given_up, *leaving)
    kinds = [*((state, "None") for state in others), ("IDLE", "1772323200")]
    rows = [row.format(f"n{i}", *kind) for i, kind in enumerate(kinds)]
    assert cluster(*rows).registering == {"n0", "n1", "n2", "n3"}


@pytest.mark.parametrize("total", [1, 3])
def test_nodes_of_a_partition_that_are_not_shown(total: int) -> None:
    """A list that agrees with the shown nodes is not even read, because the count says so."""
    node = "NodeName=n1 CPUTot=2 RealMemory=2000 State=IDLE Partitions=main"
    partition = f"PartitionName=main Nodes=n[1,3],c7 State=UP TotalNodes={total}"
    hidden = cluster(node, partition, "PartitionName=odd Nodes=n[3- State=UP").hidden
    assert hidden == ({"n3", "c7"} if total == 3 else set())
