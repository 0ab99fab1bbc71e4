"""Grace and exempt time as Slurm prints them, in every form and place, and the place that
counts.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Optional

import pytest

from slurm_hooks.errors import RetryLater
from slurm_hooks.model import Terms
from slurm_hooks.slurm.cluster import parse_cluster
from slurm_hooks.slurm.part_nodes import LaneNames
from slurm_hooks.slurm.terms import LONGEST, decide, terms_command
from slurm_hooks.slurm.text import Command
from slurm_hooks.tick import observe

TAIL = "Configuration data as of 1800000000\nSLURM_VERSION           = 22.05.8"
DATABASE = "AccountingStorageType   = accounting_storage/slurmdbd"
BY_QOS = "PreemptType             = preempt/qos"
EXEMPT = "PreemptExemptTime       = 00:10:00"
LANE = "PartitionName=lane QoS={qos} GraceTime={grace} PreemptMode=REQUEUE State=UP"
ROWS = "normal|00:00:00|\nshort|00:00:45|00:02:00\nlong|00:00:00|02:00:00\nnone|00:00:00|00:00:00\n"


def seconds(count: int) -> timedelta:
    return timedelta(seconds=count)


def terms(*lines: str, qos: str = "", own: str = "N/A", grace: str = "20", rows: str = ROWS):  # type: ignore[no-untyped-def]
    text = "\n".join((LANE.format(qos=own, grace=grace), *lines, TAIL))
    cluster = parse_cluster(text, LaneNames(("lane",), qos=qos))
    (of_lane,), odd = decide(cluster.lanes, lambda: rows)
    return of_lane, (*cluster.unknown, *odd)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("00:00:00", 0),
        ("00:01:00", 60),
        ("02:00:00", 7_200),
        ("1-00:00:00", 86_400),
        ("45", 45),
        ("NONE", 0),
        ("INFINITE", 0),  # slurmctld reads -1, INFINITE and UNLIMITED as no limit, and prints NONE
        ("-1", 0),
    ],
)
def test_every_form_of_an_exempt_time_is_read(text: str, wanted: int) -> None:
    of_lane, odd = terms(f"PreemptExemptTime       = {text}")
    assert (of_lane.exempt, odd) == (seconds(wanted), ())


@pytest.mark.parametrize("text", ["soon", "00:00:-1", "Partition_Limit"])
def test_nonsense_counts_as_a_year_and_is_reported(text: str) -> None:
    of_lane, (odd,) = terms(f"PreemptExemptTime       = {text}")
    assert of_lane.exempt == LONGEST
    assert f"PreemptExemptTime={text}" in odd
    of_lane, (odd,) = terms(grace=text)
    assert of_lane.grace == LONGEST
    assert "partition lane: GraceTime" in odd


@pytest.mark.parametrize(
    ("lines", "qos", "own", "grace_s", "exempt_s"),
    [
        ((EXEMPT,), "long", "short", 20, 600),  # without a database there are no QOS
        ((EXEMPT, DATABASE), "", "N/A", 20, 600),
        ((EXEMPT, DATABASE), "normal", "N/A", 20, 600),  # sets no limit: slurm.conf counts
        ((EXEMPT, DATABASE), "none", "N/A", 20, 0),
        ((EXEMPT, DATABASE), "short", "N/A", 20, 120),
        ((EXEMPT, DATABASE), "short", "long", 20, 7_200),
        ((EXEMPT, DATABASE), "normal", "short", 20, 120),
        ((EXEMPT, DATABASE), "normal", "Short", 20, 120),  # as slurm.conf has it
        ((EXEMPT, DATABASE, BY_QOS), "short", "N/A", 45, 120),
        ((EXEMPT, DATABASE, BY_QOS), "normal", "short", 0, 120),  # the job's own QOS alone decides
        ((EXEMPT, DATABASE, BY_QOS), "gone", "N/A", 0, 600),
    ],
)
def test_qos_count_before_the_cluster(
    lines: tuple[str, ...], qos: str, own: str, grace_s: int, exempt_s: int
) -> None:
    of_lane, odd = terms(*lines, qos=qos, own=own)
    assert (of_lane, odd) == (Terms("lane", seconds(grace_s), seconds(exempt_s)), ())


@pytest.mark.parametrize(
    ("limit", "most"), [("UNLIMITED", None), ("2-00:00:00", timedelta(days=2))]
)
def test_the_limit_of_a_partition_belongs_to_its_terms(
    limit: str, most: Optional[timedelta]
) -> None:
    text = LANE.format(qos="N/A", grace=0).replace("State=UP", f"MaxTime={limit} State=UP")
    lanes = parse_cluster(
        "\n".join((text, DATABASE, TAIL)), LaneNames(("lane",), qos="short")
    ).lanes
    for rows in ("", ROWS):
        (of_lane,), _ = decide(lanes, partial(str, rows))
        assert of_lane.most == most


def test_limits_are_those_of_the_partition_s_qos_then_of_the_job_s() -> None:
    """Nodes and GPUs count here. Slurm itself keeps the limits on the rest."""
    rows = (
        "own|00:00:00||cpu=64,gres/gpu=8||node=9|\njob|00:00:00||node=2,gres/gpu=4|gres/gpu:a=1||\n"
    )
    of_lane, odd = terms(DATABASE, qos="job", own="own", rows=rows)
    assert odd == ()
    assert {f"{each.name}={each.tres}={each.most} of {each.qos}" for each in of_lane.limits} == {
        "MaxTRESPU=gres/gpu=8 of own",
        "MaxTRESPU=node=2 of job",
        "GrpTRES=node=9 of own",
    }


def test_without_an_answer_of_sacctmgr_no_node_is_reclaimable() -> None:
    def busy() -> str:
        raise RetryLater("slurmdbd is away")

    text = "\n".join((LANE.format(qos="N/A", grace=0), DATABASE, TAIL))
    lanes = parse_cluster(text, LaneNames(("lane",), qos="short")).lanes
    for read, reason in ((busy, "slurmdbd is away"), (lambda: "", "listed no QOS")):
        (of_lane,), (odd,) = decide(lanes, read)
        assert (of_lane.grace, of_lane.exempt) == (LONGEST, LONGEST)
        assert reason in odd


class Database:
    """Answers until it is away."""

    def __init__(self) -> None:
        self.asked: list = []  # type: ignore[type-arg]
        self.rows = ROWS

    def ask(self, command: Command) -> str:
        self.asked.append(command.argv)
        if not self.rows:
            raise RetryLater("slurmdbd is away")
        return self.rows


def test_slurmdbd_is_asked_once_an_hour_and_may_be_away(tmp_path: Path) -> None:
    state = tmp_path / "state"
    database = Database()
    command = terms_command()
    assert observe.Hourly(database, str(state), True).ask(command) == ROWS
    assert not state.exists()  # a program that only reads keeps no record
    read = partial(observe.Hourly(database, str(state), False).ask, command)
    assert [read(), read(), read()] == [ROWS] * 3
    assert len(database.asked) == 2
    old = time.time() - observe.KEPT_S - 1
    os.utime(observe.kept_in(str(state), command), (old, old))
    database.rows = ""
    assert read() == ROWS
    database.rows = "normal|00:00:00|\n"
    assert read() == database.rows


def test_a_kept_answer_that_is_no_text_is_asked_for_again(tmp_path: Path) -> None:
    command = terms_command()
    observe.kept_in(str(tmp_path), command).write_bytes(b"normal|\xff")
    database = Database()
    read = partial(observe.Hourly(database, str(tmp_path), False).ask, command)
    assert [read(), read()] == [ROWS] * 2
    assert len(database.asked) == 1
