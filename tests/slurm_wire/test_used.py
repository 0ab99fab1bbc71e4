"""The used resources of a node, by its record in detail: at least the real use."""

from __future__ import annotations

from typing import Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_hooks.model import Node, NodeState, Resources
from slurm_hooks.slurm.cluster import parse_cluster

TAIL = "PartitionName=main State=UP\nConfiguration data as of 1800000000\nSLURM_VERSION = 26.05.5"
MIXED = {
    "CPUAlloc": "8",
    "CPUEfctv": "32",
    "CPUTot": "32",
    "Gres": "gpu:8",
    "GresDrain": "N/A",
    "GresUsed": "gpu:2",
    "RealMemory": "256000",
    "AllocMem": "32000",
    "State": "MIXED",
    "CfgTRES": "cpu=32,mem=250G,billing=32",
    "AllocTRES": "cpu=8,mem=32000M",
}
"""What 22.05.8 said of a node with a job of 2 GPUs, abridged."""


def node(**changes: Optional[str]) -> Node:
    """The node above with other words. None leaves a word out."""
    words = {**MIXED, **changes}
    record = " ".join(f"{key}={text}" for key, text in words.items() if text is not None)
    (seen,) = parse_cluster(f"NodeName=n1 {record} Partitions=main\n{TAIL}").nodes
    return seen


def test_the_used_and_free_resources_of_a_partly_used_node() -> None:
    seen = node()
    assert seen.state is NodeState.SHARED
    assert seen.used == Resources(8, 32_000, (("gpu", 2),))
    assert seen.free == Resources(24, 224_000, (("gpu", 6),))


@pytest.mark.parametrize(
    ("gres", "used", "free"),
    [
        ("gpu:8", "gpu:0", {"gpu": 8}),
        ("gpu:8(S:0-1)", "gpu:(null):3(IDX:0,4-5)", {"gpu": 5}),  # 22.05
        ("gpu:8(S:0-1)", "gpu:(null):0(IDX:N/A)", {"gpu": 8}),
        ("gpu:8(S:0-1)", "gpu:3(IDX:0,4-5)", {"gpu": 5}),  # 24.11 and later
        ("gpu:a100:8(S:0-1)", "gpu:a100:3(IDX:0-2)", {"gpu": 5, "gpu:a100": 5}),
        (
            "gpu:a100:4(S:0),gpu:v100:2(S:1)",
            "gpu:a100:3(IDX:0,2-3),gpu:v100:1(IDX:4)",
            {"gpu": 2, "gpu:a100": 1, "gpu:v100": 1},
        ),
        ("gpu:a100:4,gpu:v100:2", "gpu:(null):2", {"gpu": 4, "gpu:a100": 2, "gpu:v100": 0}),
        (
            "gpu:a100:2,gpu:a100_1g.5gb:7",
            "gpu:a100:1(IDX:0),gpu:a100_1g.5gb:3(IDX:2-4)",
            {"gpu": 1, "gpu:a100": 1, "gpu:a100_1g.5gb": 4},
        ),
        ("gpu:a100_1g.5gb:7", "gpu:a100_1g.5gb:3(IDX:0-2)", {"gpu:a100_1g.5gb": 4}),
        ("gpu:4,tmp:100", "gpu:1(IDX:0),tmp:40", {"gpu": 3, "tmp": 60}),
        # A shard or MPS takes its GPU from jobs that want a whole GPU.
        ("gpu:4,shard:16", "gpu:1(IDX:2),shard:3(1/4,0/4,-/4,2/4)", {"gpu": 1, "shard": 13}),
        ("gpu:2,mps:200", "gpu:(null):0(IDX:N/A),mps:(null):50(50/100,0/100)", {"gpu": 1}),
        ("gpu:a:2,shard:a:8", "gpu:a:0(IDX:N/A),shard:a:1(1/4,0/4)", {"gpu": 1, "gpu:a": 1}),
        ("gpu:4,shard:16", "gpu:0,shard:0", {"gpu": 4, "shard": 16}),
        # 22.05, where three jobs have 1, 1 and 4 shards, and another job has a GPU.
        ("gpu:4,shard:16", "gpu:(null):1(IDX:3),shard:(null):3(IDX:0-2),mps:0", {"gpu": 0}),
        ("gpu:4,shard:16", "gpu:(null):0(IDX:N/A),shard:(null):2(IDX:0,2)", {"gpu": 2}),
        ("gpu:4,shard:16", "gpu:(null):0(IDX:N/A),shard:(null):0(IDX:N/A)", {"gpu": 4}),
        ("gpu:4,shard:16", "gpu:0", {"gpu": 0}),
        ("gpu:4,shard:16", "gpu:0,shard:3", {"gpu": 0}),
        ("gpu:4,shard:16", "gpu:0,shard:3(some)", {"gpu": 0}),
    ],
)
def test_free_gpus_by_the_words_of_slurm(gres: str, used: str, free: dict[str, int]) -> None:
    free_gres = dict(node(Gres=gres, GresUsed=used).free.gres)
    assert {name: free_gres[name] for name in free} == free
    assert ("gpu" in free_gres) == ("gpu" in free)


@pytest.mark.parametrize(
    "said", [None, "", "(null)", "N/A", "gpu", "gpu:many", "gpu:-1", "gpu:2.5", "mps:0", "gpu:9"]
)
def test_gpus_that_slurm_does_not_speak_of_are_used(said: Optional[str]) -> None:
    assert node(GresUsed=said).free.gpus == 0


@pytest.mark.parametrize(
    ("changes", "cpus", "memory_mib"),
    [
        ({"CPUAlloc": None}, 0, 224_000),
        ({"CPUAlloc": "-1"}, 0, 224_000),
        ({"CPUAlloc": "40"}, 0, 224_000),
        ({"CPUEfctv": "30"}, 22, 224_000),  # CoreSpecCount
        ({"CPUEfctv": "some"}, 0, 0),
        ({"CPUEfctv": "64"}, 24, 224_000),
        ({"AllocMem": None}, 24, 0),
        ({"AllocMem": "32000M"}, 24, 0),
        ({"AllocMem": "300000"}, 24, 0),
        ({"MemSpecLimit": "4000"}, 24, 220_000),
        ({"MemSpecLimit": "all"}, 0, 0),
    ],
)
def test_cpus_and_memory_that_are_left(
    changes: dict[str, Optional[str]], cpus: int, memory_mib: int
) -> None:
    left = node(**changes).free
    assert (left.cpus, left.memory_mib) == (cpus, memory_mib)


@pytest.mark.parametrize(
    ("configured", "allocated", "said", "free"),
    [
        (",gres/gpu=8", ",gres/gpu=5", "gpu:2", 3),  # the greater number
        (",gres/gpu=8", ",gres/gpu=2", "gpu:5", 3),
        (",gres/gpu=8", ",gres/gpu=5", None, 3),
        (",gres/gpu=8,gres/gpu:a100=8", ",gres/gpu=5,gres/gpu:a100=5", "gpu:2", 3),
        ("", "", "gpu:2", 6),
        (",gres/gpu=4", ",gres/gpu=4", "gpu:2", 6),  # of other GPUs
        (",gres/gpu=8", "", "gpu:2", 6),
    ],
)
def test_the_words_of_the_accounting_about_gpus(
    configured: str, allocated: str, said: Optional[str], free: int
) -> None:
    tres = {"CfgTRES": f"cpu=32{configured}", "AllocTRES": f"cpu=8{allocated}"}
    assert node(GresUsed=said, **tres).free.gpus == free


def test_a_gpu_of_no_known_type_may_be_of_any() -> None:
    tres = {"CfgTRES": "cpu=32,gres/gpu=8", "AllocTRES": "cpu=8,gres/gpu=3"}
    seen = node(Gres="gpu:a:4,gpu:b:4", GresUsed="gpu:a:1,gpu:b:0", **tres)
    assert dict(seen.free.gres) == {"gpu": 5, "gpu:a": 1, "gpu:b": 2}


@pytest.mark.parametrize(("drain", "free"), [("N/A", 6), ("(null)", 6), ("gpu:1", 5), ("odd", 0)])
def test_a_drained_gpu_is_not_free(drain: str, free: int) -> None:
    assert node(GresDrain=drain).free.gpus == free


def test_an_idle_node_is_free_although_slurm_says_no_more() -> None:
    silent = {"CPUAlloc": None, "AllocMem": None, "GresUsed": None}
    assert node(State="IDLE+PLANNED", **silent).free == Resources(32, 256_000, (("gpu", 8),))


def test_a_completing_node_has_no_free_resources_although_slurm_says_so() -> None:
    empty = {"CPUAlloc": "0", "AllocMem": "0", "GresUsed": "gpu:0"}
    seen = node(State="IDLE+COMPLETING", **empty)
    assert (seen.free, seen.used) == (Resources(), seen.total)


@given(
    st.dictionaries(st.sampled_from(sorted(MIXED)), st.text("gpu:(null)0123,/-.IDX", max_size=16))
)
def test_no_text_makes_more_used_than_there_is(changes: dict[str, str]) -> None:
    changes.pop("State", None)
    seen = node(**changes)
    assert seen.used.cpus <= seen.cpus
    assert seen.used.memory_mib <= seen.memory_mib
    assert all(0 <= n <= seen.total.count(name) for name, n in seen.used.gres)
