"""Finds settings of Slurm to change before fragments may take parts of nodes.

Pure: ticks and doctor ask. Each rule was tried on a real Slurm: docs/developers/slurm-facts/.
slurmctld knows only its own cgroup.conf, and only if a cgroup plugin is in use. doctor reads the
nodes' own files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Optional

from slurm_hooks.slurm.lanes import is_by_qos, tier_of
from slurm_hooks.slurm.scontrol import Words, of_partition

PART_LINE = (
    "PartitionName={name} Nodes=ALL PriorityTier=0 PreemptMode=REQUEUE GraceTime=0 "
    "OverSubscribe=NO OverTimeLimit=0"
)
PART_QOS = 'part_nodes = "QOS"  # a QOS of lower Priority than site.qos, in no partition'
PART_PARTITION = 'part_nodes = "PARTITION"  # one of site.partitions, but not the first'
_BESIDE_PARTS = ("NO", "FORCE:1")
_EXCLUSIVE = "EXCLUSIVE"
_UNLIMITED = "UNLIMITED"
# The value that lifts each limit. Slurm shows UNLIMITED for both and accepts it for the first only
# (22.05).
_LIMITS_OF_NODE = (("MaxCPUsPerNode", _UNLIMITED), ("MaxMemPerNode", "0"))
_NO_PREEMPTION = "preempt/none"
_USED_BY_CGROUPS = "ConstrainDevices"  # show config has it if a cgroup plugin is in use


@dataclass(frozen=True)
class Lack:
    """A fault, and the `key=value` that mends it.

    `owner` is the beginning of its line, like `PartitionName=main`, or empty. With `is_whole` the
    value is a whole line.
    """

    seen: str
    key: str
    value: str
    owner: str = ""
    file: str = "slurm.conf"
    is_whole: bool = False

    def __str__(self) -> str:
        return f"{self.seen}; write in {self.file}: {self.line}"

    @property
    def line(self) -> str:
        """The text to write, shortened if only a word of a line changes."""
        if self.is_whole:
            return self.value
        return f"{self.owner} ... {self.key}={self.value}" if self.owner else self.pair

    @property
    def pair(self) -> str:
        """The setting alone."""
        return f"{self.key}={self.value}"


@dataclass(frozen=True)
class LaneNames:
    """The names in the settings: the lanes, the lane or the QOS for parts of nodes, and the QOS of
    malleable jobs. An empty name means that the site has no such lane or QOS.

    ListedTerms has Slurm's terms of a lane, model.lane.Lane the leases that follow from them."""

    partitions: Sequence[str] = ()
    part_nodes: str = ""
    qos: str = ""

    @property
    def parts_qos(self) -> str:
        """The QOS for parts of nodes, empty if `part_nodes` is a partition."""
        return "" if self.part_nodes in self.partitions else self.part_nodes

    @property
    def of_parts(self) -> Sequence[str]:
        """The partitions for parts of nodes: all lanes if there is a QOS for parts."""
        return self.partitions if self.parts_qos else (self.part_nodes,) if self.part_nodes else ()


NO_LANE_NAMES = LaneNames()


def find_lacks(
    lanes: LaneNames, partitions: Iterable[Words], lists: Iterable[str], config: Words
) -> tuple[Lack, ...]:
    """Return all faults, or an empty tuple if the site has no lane for parts. The words are
    scontrol's. `lists` has the partitions of each node."""
    if not lanes.part_nodes:
        return ()
    if lanes.parts_qos and not is_by_qos(config):
        kind = config.get("PreemptType", _NO_PREEMPTION)
        seen = f"PreemptType={kind}: {lanes.parts_qos} is not in site.partitions, and a QOS for "
        return (_of_settings(f"{seen}parts needs preempt/qos", PART_PARTITION),)
    known = {words["PartitionName"]: words for words in partitions}
    missing = [name for name in lanes.of_parts if name not in known]
    if missing:
        line = PART_LINE.format(name=missing[0])
        return (Lack(f"there is no partition {missing[0]}", "PartitionName", line, is_whole=True),)
    lacks: list[Lack] = []
    lists = frozenset(lists)
    for name in lanes.of_parts:
        near = [known[other] for other in sorted(neighbours(name, lists)) if other in known]
        others = [words for words in near if words["PartitionName"] not in lanes.partitions]
        lacks += _of_lane(known[name])
        lacks += () if lanes.parts_qos else _of_tier(known[name], near, config)
        lacks += _of_sharing(known[name], others)
    whole = None if lanes.parts_qos else known.get(lanes.partitions[0])
    rest = (_of_whole(whole), _of_order(lanes, config), _of_selection(config), _of_cgroups(config))
    return tuple(dict.fromkeys((*lacks, *chain(*rest))))


def neighbours(name: str, lists: Iterable[str]) -> frozenset[str]:
    """Return the partitions that share nodes with this partition. Each text of `lists` has the
    partitions of a node. Even 10,000 nodes have few different lists."""
    name_sets = (frozenset(text.split(",")) for text in set(lists))
    return frozenset[str]().union(*(names for names in name_sets if name in names)) - {name}


def _of_lane(words: Words) -> Iterator[Lack]:
    name, owner = words["PartitionName"], of_partition(words)
    if words.get("State", "UP") != "UP":
        yield Lack(f"partition {name} is {words['State']}", "State", "UP", owner)
    if words.get("Nodes") in (None, "", "(null)"):
        yield Lack(f"partition {name} has no nodes", "Nodes", "ALL", owner)
    yield from _of_limits(words)


def _of_limits(words: Words) -> Iterator[Lack]:
    """Find limits on a partition's share of a node."""
    for key, unlimited in _LIMITS_OF_NODE:
        if words.get(key, _UNLIMITED) != _UNLIMITED:
            name = words["PartitionName"]
            seen = f"partition {name}: {key}={words[key]}: larger fragments do not start"
            yield Lack(seen, key, unlimited, of_partition(words))


def _of_tier(words: Words, near: Sequence[Words], config: Words) -> Iterator[Lack]:
    """Find a mode that does not requeue, and partitions that are not above this tier. 0 is a valid
    tier (22.05.8), so the other partitions need no change."""
    name, tier = words["PartitionName"], tier_of(words)
    mode = words.get("PreemptMode") or config.get("PreemptMode", "")
    if "REQUEUE" not in mode:
        seen = f"partition {name}: PreemptMode={mode}: Slurm does not requeue its jobs"
        yield Lack(seen, "PreemptMode", "REQUEUE", of_partition(words))
    above = [other for other in near if tier_of(other) <= tier]
    if not above:
        return
    names = ", ".join(f"{other['PartitionName']} ({tier_of(other)})" for other in above)
    seen = f"partition {name}: PriorityTier={tier} is not below the tier of {names}"
    lowest = min(map(tier_of, above))
    if lowest > 0:
        yield Lack(seen, "PriorityTier", str(lowest - 1), of_partition(words))
        return
    for other in above:
        yield Lack(seen, "PriorityTier", str(tier + 1), of_partition(other))


def _sharing(words: Words) -> str:
    """Return OverSubscribe as in slurm.conf. 26.05 shows EXCLUSIVE as NO with Exclusive=NODE."""
    exclusive = words.get("Exclusive") == "NODE"
    return _EXCLUSIVE if exclusive else words.get("OverSubscribe", "NO")


def _of_sharing(words: Words, others: Sequence[Words]) -> Iterator[Lack]:
    """Find partitions whose jobs cannot share nodes with parts. Jobs that share and jobs that do
    not never meet on a node. If only some partitions take whole nodes, parts fit beside the
    rest."""
    if _sharing(words) != "NO":
        yield _not_shared(words, "its fragments cannot share a node with other jobs")
    for other in others:
        if _sharing(other) not in (*_BESIDE_PARTS, _EXCLUSIVE):
            yield _not_shared(other, "parts cannot share a node with its jobs")
    if others and all(_sharing(other) == _EXCLUSIVE for other in others):
        for other in others:
            yield _not_shared(other, "its jobs take whole nodes and leave no part")
    for each in (words, *others):
        yield from _of_one_user(each)


def _of_whole(words: Optional[Words]) -> Iterator[Lack]:
    """Find faults of the lane for whole nodes. Parts of otherwise idle nodes start there, with all
    memory."""
    if words is None:
        return
    if _sharing(words) != "NO":
        yield _not_shared(words, "parts of idle nodes start there")
    yield from _of_limits(words)


def _not_shared(words: Words, why: str) -> Lack:
    seen = f"partition {words['PartitionName']}: OverSubscribe={_sharing(words)}: {why}"
    return Lack(seen, "OverSubscribe", "NO", of_partition(words))


def _of_one_user(words: Words) -> Iterator[Lack]:
    name = words["PartitionName"]
    for key in ("ExclusiveUser", "ExclusiveTopo"):
        if words.get(key) == "YES":
            seen = f"partition {name}: {key}=YES keeps the parts of others off its nodes"
            yield Lack(seen, key, "NO", of_partition(words))
    if words.get("Exclusive") in ("USER", "TOPO"):
        seen = f"partition {name}: Exclusive={words['Exclusive']} keeps the parts of others off"
        yield Lack(seen, "Exclusive", "NO", of_partition(words))


def _of_settings(seen: str, line: str) -> Lack:
    return Lack(seen, "part_nodes", line, file="malleable.toml", is_whole=True)


def _of_order(lanes: LaneNames, config: Words) -> Iterator[Lack]:
    """Find settings that break the order. Slurm takes parts before whole nodes if their tier is
    lower or, with preempt/qos, the Priority of their QOS."""
    kind = config.get("PreemptType", _NO_PREEMPTION)
    if is_by_qos(config) and not lanes.parts_qos:
        seen = f"PreemptType={kind}: parts need a QOS, and {lanes.part_nodes} is a partition"
        yield _of_settings(seen, PART_QOS)
    elif not (is_by_qos(config) or kind == "preempt/partition_prio"):
        seen = f"PreemptType={kind}: Slurm does not take parts before whole nodes"
        yield Lack(seen, "PreemptType", "preempt/partition_prio")
    for key in ("PreemptParameters", "SchedulerParameters"):
        options = config.get(key, "").split(",")
        left = [option for option in options if "youngest_first" not in option.lower()]
        if left != options:
            seen = f"{key} has youngest_first: Slurm takes the youngest job, not the lowest tier"
            yield Lack(seen, key, ",".join(left))


def _of_selection(config: Words) -> Iterator[Lack]:
    kind = config.get("SelectType", "")
    if kind != "select/cons_tres":
        seen = f"SelectType={kind}: Slurm does not count GPUs of a node"
        yield Lack(seen, "SelectType", "select/cons_tres")
    counted = config.get("SelectTypeParameters", "")
    if "MEMORY" not in counted.upper():
        unit = re.search(r"CR_(?:CORE|CPU|SOCKET)", counted.upper())
        seen = f"SelectTypeParameters={counted}: memory is not counted"
        value = f"{unit.group() if unit else 'CR_CORE'}_MEMORY"
        yield Lack(seen, "SelectTypeParameters", value)


def _of_cgroups(config: Words) -> Iterator[Lack]:
    """Find settings that let a part exceed its GPUs and memory, as far as slurmctld knows."""
    if not sees_cgroups(config):
        return
    plugins = config.get("TaskPlugin", "")
    if "task/cgroup" not in plugins.split(","):
        others = [
            plugin
            for plugin in plugins.split(",")
            if plugin.startswith("task/") and plugin != "task/none"
        ]
        seen = f"TaskPlugin={plugins}: cgroup.conf is not applied to jobs"
        yield Lack(seen, "TaskPlugin", ",".join(("task/cgroup", *others)))
    yield from unconstrained(config, config)


def unconstrained(config: Words, cgroup: Words) -> Iterator[Lack]:
    """Find resources that cgroup.conf does not constrain. GPUs count only if Slurm knows any."""
    has_gpus = "gpu" in config.get("GresTypes", "").split(",")
    for key, goods in (("ConstrainDevices", "GPUs"), ("ConstrainRAMSpace", "memory")):
        is_needed = has_gpus or goods == "memory"
        if is_needed and not has_key(cgroup, key):
            seen = f"{key}={cgroup.get(key, 'no')}: a part can use {goods} of its neighbours"
            yield Lack(seen, key, "yes", file="cgroup.conf")


def has_key(config: Words, key: str) -> bool:
    """Tell whether a switch of cgroup.conf is on."""
    return config.get(key, "").lower() in ("yes", "true")


def sees_cgroups(config: Words) -> bool:
    """Tell whether slurmctld shows cgroup.conf: only if a plugin uses cgroups and they are not
    disabled, as in a sandbox."""
    return _USED_BY_CGROUPS in config and config.get("CgroupPlugin", "") != "disabled"
