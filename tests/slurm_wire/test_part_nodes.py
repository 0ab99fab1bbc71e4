"""The settings of Slurm that are missing before a part of a node can be used."""

from __future__ import annotations

import re

import pytest

from slurm_hooks.slurm.cluster import parse_cluster
from slurm_hooks.slurm.part_nodes import LaneNames

LANES = LaneNames(("malleable", "parts"), "parts")
BY_QOS = LaneNames(("main",), "parts", "scavenge")
TWO = LaneNames(("main", "malleable"), "low", "scavenge")
NODE = "NodeName=n{} State=IDLE Partitions={}"
MAIN = "PartitionName=main Nodes=n[1-2] PriorityTier=10 OverSubscribe=NO PreemptMode=OFF State=UP"
WHOLE = (
    "PartitionName=malleable Nodes=n[1-2] PriorityTier=2 OverSubscribe=NO PreemptMode=REQUEUE "
    "State=UP"
)
PARTS = (
    "PartitionName=parts Nodes=n[1-2] PriorityTier=1 OverSubscribe=NO PreemptMode=REQUEUE State=UP"
)
CONFIG = {
    "SLURM_VERSION": "24.11.5",
    "GresTypes": "gpu",
    "PreemptMode": "REQUEUE",
    "PreemptParameters": "(null)",
    "PreemptType": "preempt/partition_prio",
    "SchedulerParameters": "bf_continue,bf_interval=30",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_CORE_MEMORY",
    "TaskPlugin": "task/cgroup,task/affinity",
    "CgroupPlugin": "autodetect",
    "ConstrainDevices": "yes",
    "ConstrainRAMSpace": "yes",
}


def lines(  # type: ignore[no-untyped-def]
    main=MAIN, whole=WHOLE, parts=PARTS, more=(), on="main,malleable,parts", lanes=LANES, **config
):
    """The missing lines of a site whose settings differ from a good site by some words."""
    words = {**CONFIG, **config}
    said = [f"{key} = {value}" for key, value in words.items() if value is not None]
    nodes = [NODE.format(1, on), NODE.format(2, "main,malleable")]
    text = [*nodes, main, whole, parts, *more, "Configuration data as of 1800000000", *said]
    return parse_cluster("\n".join(text), lanes).no_parts


def test_no_line_is_missing_where_all_is_as_the_page_says():
    assert lines() == ()


def test_no_line_is_missing_where_no_parts_are_wanted():
    wrong = {"SelectType": "select/linear", "PreemptType": "preempt/none"}
    assert lines(**wrong, parts="", lanes=LaneNames(("malleable",))) == ()
    assert len(lines(**wrong, parts="")) == 1


PAIR = re.compile(r"(\w+)=(\S+)")


def changed(line: str, **words: str) -> str:
    return PAIR.sub(lambda m: f"{m[1]}={words.get(m[1], m[2])}", line)


EXCLUSIVE = {"OverSubscribe": "EXCLUSIVE"}
# the change, and the words of the line
MISSING = [
    ({"parts": ""}, r"there is no partition parts; .*: PartitionName=parts Nodes=ALL .*Tier=0 "),
    ({"parts": changed(PARTS, State="DOWN")}, r"parts is DOWN; .*=parts \.\.\. State=UP"),
    ({"parts": changed(PARTS, State="INACTIVE")}, "parts is INACTIVE"),
    ({"parts": changed(PARTS, Nodes="(null)")}, "parts has no nodes"),
    ({"parts": changed(PARTS, PreemptMode="OFF")}, "PreemptMode=OFF"),
    ({"parts": f"{PARTS} MaxCPUsPerNode=2"}, r"larger .*=parts \.\.\. MaxCPUsPerNode=UNLIMITED$"),
    ({"parts": f"{PARTS} MaxMemPerNode=500"}, r"larger .*=parts \.\.\. MaxMemPerNode=0$"),
    ({"whole": f"{WHOLE} MaxMemPerNode=500"}, r"larger .*=\w+ \.\.\. MaxMemPerNode=0$"),
    (
        {"parts": PARTS.replace("PreemptMode=REQUEUE", ""), "PreemptMode": "CANCEL"},
        "PreemptMode=CANCEL",
    ),
    (
        {"parts": changed(PARTS, PriorityTier="2")},
        r"PriorityTier=2 is not below the tier of malleable \(2\); .*=parts \.\.\. PriorityTier=1$",
    ),
    (
        {"parts": changed(PARTS, PriorityTier="10")},
        r"below the tier of main \(10\), malleable \(2\); .*=parts \.\.\. PriorityTier=1$",
    ),
    (
        {"parts": changed(PARTS, PriorityTier="0"), "whole": changed(WHOLE, PriorityTier="0")},
        r"PartitionName=malleable \.\.\. PriorityTier=1$",
    ),
    ({"parts": changed(PARTS, **EXCLUSIVE)}, "parts: OverSubscribe=EXCLUSIVE: its fragments"),
    ({"parts": changed(PARTS, OverSubscribe="FORCE:1")}, r"=parts \.\.\. OverSubscribe=NO"),
    ({"parts": f"{PARTS} Exclusive=NODE"}, "parts: OverSubscribe=EXCLUSIVE"),
    ({"parts": f"{PARTS} Exclusive=USER"}, "parts: Exclusive=USER"),
    ({"whole": changed(WHOLE, **EXCLUSIVE)}, "malleable: OverSubscribe=EXCLUSIVE: parts of idle"),
    ({"main": changed(MAIN, OverSubscribe="YES:4")}, r"=main \.\.\. OverSubscribe=NO"),
    ({"main": changed(MAIN, OverSubscribe="FORCE:4")}, "main: OverSubscribe=FORCE:4"),
    ({"main": changed(MAIN, **EXCLUSIVE)}, "main: OverSubscribe=EXCLUSIVE: its jobs take whole"),
    ({"main": f"{MAIN} Exclusive=NODE"}, "main: OverSubscribe=EXCLUSIVE: its jobs take whole"),
    ({"main": f"{MAIN} ExclusiveUser=YES"}, r"main: ExclusiveUser=YES .*ExclusiveUser=NO"),
    ({"PreemptType": "preempt/qos"}, 'parts is a partition; .* malleable.toml: part_nodes = "QOS"'),
    ({"PreemptType": "preempt/none"}, r"slurm\.conf: PreemptType=preempt/partition_prio$"),
    (
        {"lanes": BY_QOS},
        'prio: parts is not in site.partitions, .* malleable.toml: part_nodes = "PARTITION"',
    ),
    (
        {"lanes": BY_QOS, "main": changed(MAIN, **EXCLUSIVE), "PreemptType": "preempt/qos"},
        r"main: OverSubscribe=EXCLUSIVE: its fragments",
    ),
    ({"lanes": TWO, "parts": changed(PARTS, **EXCLUSIVE), "PreemptType": "preempt/qos"}, "parts: "),
    ({"PreemptParameters": "youngest_first"}, r"PreemptParameters has .*: PreemptParameters=$"),
    (
        {"SchedulerParameters": "bf_continue,preempt_youngest_first,defer"},
        "SchedulerParameters=bf_continue,defer$",
    ),
    ({"SelectType": "select/linear"}, "SelectType=select/linear"),
    ({"SelectTypeParameters": "CR_CPU"}, "SelectTypeParameters=CR_CPU_MEMORY"),
    ({"TaskPlugin": "task/affinity"}, "TaskPlugin=task/cgroup,task/affinity$"),
    ({"TaskPlugin": "task/none"}, "TaskPlugin=task/cgroup$"),
    ({"TaskPlugin": "(null)"}, "TaskPlugin=task/cgroup$"),  # so 24.11 shows task/none
    ({"ConstrainDevices": "no"}, "GPUs of its neighbours; write in cgroup.conf: ConstrainDevices"),
    ({"ConstrainRAMSpace": "no"}, "write in cgroup.conf: ConstrainRAMSpace=yes"),
]


@pytest.mark.parametrize(("change", "line"), MISSING)
def test_a_line_names_the_missing_setting_and_its_value(change, line):
    (printed,) = lines(**change)
    assert re.search(line, printed)


# settings that Slurm was seen to allow, or that cannot be known here
FINE = [
    {"main": changed(MAIN, OverSubscribe="FORCE:1")},
    {"parts": f"{PARTS} MaxCPUsPerNode=UNLIMITED MaxMemPerNode=UNLIMITED"},
    {"main": f"{MAIN} MaxCPUsPerNode=2"},
    {"parts": changed(PARTS, PriorityTier="0"), "whole": changed(WHOLE, PriorityTier="1")},
    {"ConstrainDevices": None, "ConstrainRAMSpace": None, "TaskPlugin": "task/none"},
    {"CgroupPlugin": "disabled", "ConstrainDevices": "no", "ConstrainRAMSpace": "no"},
    {"GresTypes": "(null)", "ConstrainDevices": "no"},
    {"lanes": BY_QOS, "PreemptType": "preempt/qos", "whole": "", "parts": ""},
    {"lanes": BY_QOS, "PreemptType": "preempt/qos", "whole": changed(WHOLE, PriorityTier="99")},
]


@pytest.mark.parametrize("change", FINE)
def test_settings_that_slurm_allows_are_not_missed(change):
    assert lines(**change) == ()


OTHER = "PartitionName=big Nodes=n[1-2] PriorityTier={} OverSubscribe=EXCLUSIVE State=UP"


def test_a_partition_on_other_nodes_does_not_matter():
    assert lines(more=[OTHER.format(1)]) == ()
    assert len(lines(more=[OTHER.format(1)], on="main,malleable,parts,big")) == 1


def test_a_partition_of_whole_nodes_leaves_parts_of_the_other_nodes():
    assert lines(more=[OTHER.format(20)], on="main,malleable,parts,big") == ()
    main = changed(MAIN, **EXCLUSIVE)
    assert len(lines(more=[OTHER.format(20)], on="main,malleable,parts,big", main=main)) == 2
