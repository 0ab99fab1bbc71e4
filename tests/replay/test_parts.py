"""Idle GPUs and CPUs in a cluster's accounting: on idle nodes, on partly used nodes, stranded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.logs import write
from slurm_hooks.cli import main
from slurm_hooks.errors import UsageError
from slurm_hooks.model.resources import GPU, Resources
from slurm_hooks.model.unused import CPU
from slurm_hooks.replay.logs.log_lines import BadLine, BadLog, Log
from slurm_hooks.replay.logs.sacct import read_sacct
from slurm_hooks.replay.logs.tres import parse_tres, spread
from slurm_hooks.replay.parts import idle_parts, size_of
from slurm_hooks.replay.record import Record, Use

HEAD = "JobIDRaw|Submit|Start|End|NodeList|AllocTRES\n"
WEEK = HEAD + (
    "1|0|0|7200|n1|billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=100G,node=1\n"
    "2|0|0|3600|n1|cpu=8,gres/gpu=4,mem=100G\n"
    "3|0|3600|5400|n2|cpu=16,gres/gpu=8,mem=200G\n"
    "4|0|9000|10800|n[1-2]|cpu=32,gres/gpu=4,mem=40G\n"
)
"""Two nodes of 8 GPUs and 16 CPUs.

n1 is full for an hour, half used for an hour, idle for half an hour. n2 is idle for an hour, full
for half an hour, idle for an hour. Then one job has all CPUs of both for half an hour, and 2 GPUs
of each.
"""
HOUR = 3600


def gpus(count: int, cpus: int = 1, memory: int = 0) -> Resources:
    return Resources(cpus, memory, ((GPU, count),))


def test_the_three_places_of_idle_gpus_and_cpus(tmp_path):
    record = read_sacct(Log(write(tmp_path / "week", WEEK)))
    idle = idle_parts(record, GPU)
    assert idle.all_s == 2 * 8 * 3 * HOUR
    assert idle.on_idle_s == 8 * HOUR / 2 + 8 * 2 * HOUR
    assert idle.part_s == 4 * HOUR
    assert idle.stranded_s == 2 * 6 * HOUR / 2
    assert idle.long_s == 4 * HOUR, "these four were idle with the node, until the last job came"
    assert idle.beside_s == {2: 4 * HOUR, 4: 4 * HOUR}
    cpus = idle_parts(record, CPU)
    assert (cpus.on_idle_s, cpus.part_s, cpus.stranded_s) == (16 * 2.5 * HOUR, 8 * HOUR, 0)


def test_a_part_of_the_time_has_the_sizes_of_the_whole(tmp_path):
    record = read_sacct(Log(write(tmp_path / "week", WEEK))).between(1.75 * HOUR, 2 * HOUR)
    idle = idle_parts(record, GPU)
    assert (idle.on_idle_s, idle.part_s) == (8 * HOUR / 4, 4 * HOUR / 4)
    assert idle.long_s == 0, "what is cut off does not count for the length of a hole"


def test_a_single_command_prints_words_and_data(tmp_path, capsys):
    command = ["replay", "--sacct", str(write(tmp_path / "week", WEEK)), "--policy", "none"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    page = (Path(__file__).parents[2] / "docs" / "admins" / "replay.md").read_text()
    shown = page.partition("test_parts.py`:\n\n")[2].partition("\n\n")[0]
    assert shown.startswith("    1,680 GPU-hours a week were idle (62 %): 67 % on idle nodes, 13 %")
    assert shown.replace("    ", "") + "\n" in printed
    assert "2,688 CPU-hours a week were idle (50 %)" in printed
    assert "The size of each node is the most that its jobs had at once.\n" in printed
    assert main([*command, "--json"]) == 0
    gpu = json.loads(capsys.readouterr().out)["idle_parts"]["gpu"]
    assert (gpu["idle_s"], gpu["on_partly_used_nodes_s"]) == (30 * HOUR, 4 * HOUR)


def test_without_gpus_in_the_accounting_cpus_alone_are_counted(tmp_path, capsys):
    text = HEAD + "1|0|0|3600|n1|cpu=8,mem=8G\n2|0|3600|7200|n1|cpu=2,mem=1G\n"
    path = write(tmp_path / "week", text)
    assert main(["replay", "--sacct", str(path), "--nodes", "n[1-2]", "--policy", "none"]) == 0
    printed = capsys.readouterr().out
    assert "AllocTRES has no gres/gpu (AccountingStorageTRES): GPUs are not counted." in printed
    assert "504 CPU-hours a week were idle (38 %): 0 % on idle nodes, 100 % on partly" in printed
    assert "1 node had no job and no known size." in printed


NODES = (
    "NodeName=n1 Arch=x86_64 CoresPerSocket=8 CPUAlloc=8 CPUEfctv=16 CPUTot=20 "
    "Gres=gpu:a100:8(S:0-1) RealMemory=205800 MemSpecLimit=1000 State=IDLE\n"
    "NodeName=n2 CPUEfctv=16 CPUTot=16 Gres=gpu:8 RealMemory=204800\n\n"
    "NodeName=n3 CPUTot=8 Gres=(null) RealMemory=204800\n"
)


def test_the_sizes_of_nodes_can_be_given(tmp_path, capsys):
    """Without n1's second job its size would be unknown. n3 has no GPU and no job."""
    nodes = write(tmp_path / "nodes.txt", NODES)
    one = "".join(line + "\n" for line in WEEK.splitlines() if not line.startswith("2|"))
    record = read_sacct(Log(write(tmp_path / "week", one)), str(nodes))
    assert record.sizes == (gpus(8, 16, 204_800), gpus(8, 16, 204_800), Resources(8, 204_800))
    idle = idle_parts(record, GPU)
    assert (idle.part_s, idle.all_s) == (4 * 2 * HOUR, 2 * 8 * 3 * HOUR)
    assert idle_parts(record, CPU).on_idle_s == 16 * 2.5 * HOUR + 8 * 3 * HOUR
    command = ["replay", "--sacct", str(tmp_path / "week"), "--nodes", str(nodes)]
    assert main([*command, "--policy", "none"]) == 0
    assert "The size of each node is" not in capsys.readouterr().out
    assert main([*command, "--policy", "none", "--json"]) == 0
    parts = json.loads(capsys.readouterr().out)["idle_parts"]
    assert (parts["sizes"], parts["nodes"], parts["nodes_without_size"]) == ("told", 3, 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello\n", "no line begins with NodeName="),
        ("NodeName=n1 CPUTot=x RealMemory=1\n", "line 1: CPUEfctv of n1 'x' is not a number"),
        ("NodeName=n1 CPUTot=1 RealMemory=-1\n", "line 1: RealMemory of n1 is negative"),
        ("NodeName=n9 CPUTot=1 RealMemory=1\n", "no job ran on any node of --nodes"),
    ],
)
def test_a_bad_file_of_nodes_is_reported(tmp_path, text, said):
    nodes = write(tmp_path / "nodes.txt", text)
    with pytest.raises((UsageError, BadLog), match=said):
        read_sacct(Log(write(tmp_path / "week", WEEK)), str(nodes))


def test_a_file_of_nodes_that_is_not_there_is_not_taken_for_a_node(tmp_path):
    with pytest.raises(BadLog, match=r"no job ran on any node of --nodes nodes\.txt"):
        read_sacct(Log(write(tmp_path / "week", WEEK)), "nodes.txt")


def test_without_the_column_a_note_asks_for_it(tmp_path, capsys):
    path = write(tmp_path / "week", "JobIDRaw|Submit|Start|End|NodeList\n1|0|0|3600|n1\n")
    assert main(["replay", "--sacct", str(path), "--policy", "none"]) == 0
    printed = capsys.readouterr()
    assert "partly used" not in printed.out
    assert "give sacct AllocTRES in --format too" in " ".join(printed.err.split())


def test_a_job_without_reports_counts_as_a_job_without_use(tmp_path):
    text = HEAD + "1|0|0|100|n1|cpu=4,gres/gpu=2\n2|0|100|200|n1|\n"
    record = read_sacct(Log(write(tmp_path / "week", text)))
    assert "AllocTRES is empty for 1 job" in record.notes[1]
    assert idle_parts(record, GPU).part_s == 200


@pytest.mark.parametrize(
    ("text", "resources"),
    [
        ("cpu=8,gres/gpu=4,mem=62.50G", Resources(8, 64_000, ((GPU, 4),))),
        ("cpu=8,gres/gpu:a100=2,gres/gpu:v100=1", Resources(8, 0, ((GPU, 3),))),
        ("cpu=8,gres/gpu:a100=2,gres/gpu=2,gres/shard=7", Resources(8, 0, ((GPU, 2),))),
        ("billing=5,energy=7,node=1", Resources()),
    ],
)
def test_forms_of_a_job_s_resources(text, resources):
    assert parse_tres(text) == resources


@pytest.mark.parametrize("text", ["cpu=x", "cpu", "gres/gpu=-1", "mem=lots", "cpu=" + "9" * 5000])
def test_bad_counts_are_bad_lines(tmp_path, text):
    with pytest.raises(BadLine, match="AllocTRES"):
        parse_tres(text)
    log = write(tmp_path / "week", WEEK + f"5|0|0|7200|n1|{text}\n")
    with pytest.raises(BadLog, match=r"line 6: AllocTRES"):
        read_sacct(Log(log))
    assert read_sacct(Log(log, skip_bad=True)).skipped == 1


def test_without_a_cpu_a_gpu_is_stranded_and_without_memory_both_are():
    record = Record((), 1, 0, 40, uses=(
        Use(0, 0, 10, Resources(8, 80, ((GPU, 8),))),
        Use(0, 10, 20, Resources(6, 10, ((GPU, 1),))),
        Use(0, 20, 30, Resources(1, 80, ((GPU, 1),))),
    ))  # fmt: skip
    idle, cpus = idle_parts(record, GPU), idle_parts(record, CPU)
    assert (idle.part_s, idle.stranded_s) == (2 * 10, 5 * 10 + 7 * 10)
    assert (cpus.part_s, cpus.stranded_s) == (2 * 10, 7 * 10)


uses = st.lists(
    st.builds(
        lambda node, start, length, cpus, memory, count: Use(
            node, start, start + length, gpus(count, cpus, memory)
        ),
        *(st.integers(0, 2), st.integers(-20, 60), st.integers(1, 50)),
        *(st.integers(0, 6), st.integers(0, 6), st.integers(0, 4)),
    ),
    min_size=1,
    max_size=8,
)


@settings(deadline=None)
@given(uses, st.none() | st.integers(0, 9))
def test_the_three_add_up_to_all_that_is_idle(all_uses, count):
    """The sum holds for each second and GPU. Jobs may have more than the given sizes."""
    sizes = () if count is None else (gpus(count, count, count),) * 3
    record = Record((), 3, 0.0, 50.0, uses=tuple(all_uses), sizes=sizes)
    idle, cpus = idle_parts(record, GPU), idle_parts(record, CPU)
    free_s = free_cores_s = idle_s = 0
    for node in range(3) if sizes else {use.node for use in all_uses}:
        mine = [use for use in all_uses if use.node == node]
        size = sizes[node] if sizes else size_of(mine)
        for at in range(50):
            there = [use.taken for use in mine if use.start_s <= at < use.end_s]
            free_s += max(0, size.gpus - sum(t.gpus for t in there))
            free_cores_s += max(0, size.cpus - sum(t.cpus for t in there))
            idle_s += 0 if there else size.gpus
    assert (idle.idle_s, idle.on_idle_s) == (free_s, idle_s)
    assert cpus.idle_s == free_cores_s
    assert 0 <= idle.long_s <= idle.part_s
    assert 0 <= idle.beside_s[4] <= idle.beside_s[2] <= idle.part_s


@given(st.integers(0, 999), st.integers(0, 10**6), st.integers(0, 64), st.integers(1, 40))
def test_a_job_s_resources_are_spread_evenly(cpus, memory, count, nodes):
    parts = spread(gpus(count, cpus, memory), nodes)
    whole = Resources()
    for part in parts:
        whole = whole + part
    assert (whole.cpus, whole.memory_mib, whole.gpus) == (cpus, memory, count)
    assert all(
        0 <= a.cpus - b.cpus <= 1 and 0 <= a.gpus - b.gpus <= 1 for a, b in zip(parts, parts[1:])
    )
