"""The contract of any Port: recorded, fake and live."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from captured_slurm import VERSIONS, recorded
from fake_slurm import FakeSlurm
from slurm_hooks.errors import CommandRefused
from slurm_hooks.slurm.cluster import cluster_command
from slurm_hooks.slurm.gateway import observe, read_again, read_cluster
from slurm_hooks.slurm.lanes import find_unfit
from slurm_hooks.slurm.live import Live, Port, WithLibrary
from slurm_hooks.slurm.part_nodes import NO_LANE_NAMES
from slurm_hooks.slurm.scontrol import read_config, read_records
from slurm_hooks.slurm.text import Command

KINDS = [
    *VERSIONS,
    "fake",
    pytest.param("live", marks=pytest.mark.slurm),
    pytest.param("pyslurm", marks=[pytest.mark.slurm, pytest.mark.pyslurm]),
]


@pytest.fixture(params=KINDS)
def port(request: pytest.FixtureRequest) -> Iterator[Port]:
    if request.param in VERSIONS:
        yield recorded("running", request.param)
    elif request.param == "fake":
        yield FakeSlurm({"n1": "", "n2": "+DRAIN"})
    else:
        if request.param == "pyslurm":
            request.getfixturevalue("pyslurm_of_this_slurm")
        box: Any = request.getfixturevalue("sandbox")
        live = Live(10.0, environment=dict(box.environment))
        yield live if request.param == "live" else WithLibrary(live)


def test_a_snapshot_in_two_commands(port: Port) -> None:
    seen = observe(port, ["malleable"])
    assert len(port.asked) == 2
    assert seen.now.tzinfo is not None
    assert seen.nodes
    assert all(node.partitions for node in seen.nodes)
    assert len(seen.slurm.version) == 3


def test_a_second_reading_takes_a_single_command(port: Port) -> None:
    seen = observe(port, ["malleable"])
    fresh = read_again(port, seen, NO_LANE_NAMES)
    assert len(port.asked) == 3
    assert fresh.now >= seen.now
    assert fresh.jobs == seen.jobs


def test_the_malleable_partition_can_be_preempted(port: Port) -> None:
    answer = port.ask(cluster_command())
    partitions, config = read_records(answer, "PartitionName"), read_config(answer)
    assert find_unfit(["malleable"], partitions, config) == {}
    assert find_unfit(["main"], partitions, config)["main"].key in ("PreemptMode", "PartitionName")


def test_questions_are_remembered(port: Port) -> None:
    read_cluster(port)
    (asked,) = port.asked
    assert asked.argv[0] == "scontrol"
    assert asked.rpcs == 4
    assert asked.seconds >= 0


@pytest.mark.slurm
def test_a_refusal_is_returned(sandbox: Any) -> None:
    live = Live(10.0, environment=dict(sandbox.environment))
    with pytest.raises(CommandRefused, match="99999"):
        live.ask(Command(("scontrol",), "hold 99999_0\n"))
