"""The partitions in which no malleable job can run, and Slurm's line that shows the reason."""

from __future__ import annotations

import pytest

from slurm_hooks.slurm.lanes import Unfit, find_unfit
from slurm_hooks.slurm.qos import parse_qos
from slurm_hooks.slurm.scontrol import read_config, read_records

LANE = "PartitionName=lane Nodes=n[1-4] PreemptMode=REQUEUE PriorityTier=30 State=UP"
MAIN = "PartitionName=main Nodes=n[1-4] PreemptMode=OFF PriorityTier=100 State=UP"
BY_TIER = "PreemptMode = REQUEUE\nPreemptType = preempt/partition_prio"
BY_QOS = BY_TIER.replace("partition_prio", "qos")
QOS = "normal|scavenge|cluster||||\nscavenge||cluster||||\n"


def unfit_lanes(
    *partitions: str, config: str = BY_TIER, qos: str = "", known: str = QOS, ours: str = "lane"
) -> dict[str, Unfit]:
    records = read_records("\n".join(partitions), "PartitionName")
    return find_unfit(ours.split(), records, read_config(config), qos, parse_qos(known))


def test_a_lane_below_a_neighbour_is_fit() -> None:
    alike = MAIN.replace("main", "debug").replace("=100", "=30")
    assert unfit_lanes(LANE, MAIN) == {}
    assert unfit_lanes(LANE, MAIN, alike) == {}


def test_a_lane_that_shares_no_node_keeps_no_job_waiting() -> None:
    assert unfit_lanes(LANE.replace("=30", "=100"), MAIN.replace("[1-4]", "[5-8]")) == {}


@pytest.mark.parametrize(
    ("partitions", "config", "key", "shown"),
    [
        ([MAIN], BY_TIER, "PartitionName", "PartitionName=lane"),
        ([LANE, MAIN], "PreemptMode = OFF", "PreemptType", "PreemptType=preempt/none"),
        (
            [LANE, MAIN],
            BY_TIER.replace("partition_prio", "none"),
            "PreemptType",
            "PreemptType=preempt/none",
        ),
        (
            [LANE.replace("REQUEUE", "CANCEL"), MAIN],
            BY_TIER,
            "PreemptMode",
            "PartitionName=lane PreemptMode=CANCEL",
        ),
        (
            [LANE.replace("PreemptMode=REQUEUE ", ""), MAIN],
            BY_TIER.replace("REQUEUE", "SUSPEND,GANG"),
            "PreemptMode",
            "PartitionName=lane PreemptMode=SUSPEND,GANG",
        ),
        (
            [LANE.replace("REQUEUE", "OFF"), MAIN],
            BY_TIER,
            "PreemptMode",
            "PartitionName=lane PreemptMode=OFF",
        ),
        (
            [LANE.replace("=30", "=1"), MAIN.replace("=100", "=1")],
            BY_TIER,
            "PriorityTier",
            "PartitionName=lane PriorityTier=1",
        ),
        ([LANE, MAIN], BY_QOS, "QOS", "PreemptType=preempt/qos"),
    ],
)
def test_a_lane_that_cannot_work_names_the_line(
    partitions: list[str], config: str, key: str, shown: str
) -> None:
    unfit = unfit_lanes(*partitions, config=config)["lane"]
    assert (unfit.key, unfit.shown) == (key, shown)
    assert str(unfit).startswith(f"{shown}: ")


def test_equal_tiers_name_the_partitions_that_are_not_above() -> None:
    alike = [MAIN.replace("main", f"p{n}").replace("=100", "=30") for n in range(5)]
    why = str(unfit_lanes(LANE, *alike)["lane"])
    assert "p0 (30), p1 (30), p2 (30) and 2 more" in why


def test_another_lane_of_malleable_jobs_is_no_neighbour_that_waits() -> None:
    parts = LANE.replace("lane", "parts").replace("=30", "=1")
    low = MAIN.replace("=100", "=1")
    assert set(unfit_lanes(parts, LANE, low, ours="parts lane")) == {"parts", "lane"}


@pytest.mark.parametrize(
    ("qos", "known", "mode", "shown", "why"),
    [
        ("scavenge", QOS, "REQUEUE", "", ""),
        ("scavenge", QOS, "GANG,REQUEUE", "", ""),
        ("scavenge", QOS.replace("||cluster", "||requeue"), "CANCEL", "", ""),
        ("", QOS, "REQUEUE", "PreemptType=preempt/qos", "site.qos is empty"),
        ("idle", QOS, "REQUEUE", "QOS idle", "there is no such QOS"),
        ("normal", QOS, "REQUEUE", "QOS normal", "no other QOS"),
        ("scavenge", "scavenge|scavenge|cluster||||\n", "REQUEUE", "QOS scavenge", "no other QOS"),
        ("scavenge", QOS, "CANCEL", "QOS scavenge PreemptMode=CANCEL", "would be lost"),
        (
            "scavenge",
            QOS.replace("||cluster", "||cancel"),
            "REQUEUE",
            "QOS scavenge PreemptMode=cancel",
            "would be lost",
        ),
    ],
)
def test_where_qos_decide_no_partition_counts(
    qos: str, known: str, mode: str, shown: str, why: str
) -> None:
    low, lane = MAIN.replace("=100", "=1"), LANE.replace("REQUEUE", "OFF")
    config = BY_QOS.replace("REQUEUE", mode)
    unfit = unfit_lanes(lane, low, config=config, qos=qos, known=known)
    assert bool(unfit) == bool(shown)
    if unfit:
        assert unfit["lane"].shown == shown
        assert why in unfit["lane"].why
