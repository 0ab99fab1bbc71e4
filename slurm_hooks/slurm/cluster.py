"""The question to scontrol about nodes, reservations and configuration, and its answer."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple, Optional

from ClusterShell.NodeSet import NodeSetParseError

from slurm_hooks.errors import UnreadableOutput
from slurm_hooks.model import Node, NodeState, Reservation, Resources, Slurm
from slurm_hooks.slurm.lanes import is_by_qos
from slurm_hooks.slurm.part_nodes import NO_LANE_NAMES, LaneNames, find_lacks
from slurm_hooks.slurm.scontrol import (
    Words,
    has_switches,
    lines_of,
    name_in,
    read_config,
    read_records,
    words_of,
)
from slurm_hooks.slurm.terms import ListedTerms, lane_terms
from slurm_hooks.slurm.text import Command, expand, parse_gres, parse_time
from slurm_hooks.slurm.used import total_of, used_of


def cluster_command() -> Command:
    """Ask for nodes, reservations, partitions and configuration by a single scontrol. Only in
    detail it says which GPUs of a node are used."""
    questions = ("show nodes", "show reservations", "show partitions", "show config")
    return Command(
        ("scontrol", "--oneliner", "--details"),
        "".join(f"{a}\n" for a in questions),
        len(questions),
    )


@dataclass(frozen=True)
class Cluster:
    """The answer of scontrol, with slurmctld's own clock in `now`. Snapshot explains `hidden`,
    `registering` and `no_parts`. Switches of nodes and terms that QOS set for our `lanes` are not
    in the answer."""

    now: datetime
    slurm: Slurm
    nodes: tuple[Node, ...]
    reservations: tuple[Reservation, ...]
    unknown: tuple[str, ...]
    hidden: frozenset[str] = frozenset()
    registering: frozenset[str] = frozenset()
    no_parts: tuple[str, ...] = ()
    has_switches: bool = False
    lanes: tuple[ListedTerms, ...] = ()


def parse_cluster(text: str, lanes: LaneNames = NO_LANE_NAMES) -> Cluster:
    """Read the answer to cluster_command. Raises UnreadableOutput without clock or version."""
    config = read_config(text)
    now = clock(config)
    if now is None or "SLURM_VERSION" not in config:
        raise UnreadableOutput(
            f"scontrol show config said neither time nor version: {text[-200:]!r}"
        )
    partitions = read_records(text, "PartitionName")
    up = frozenset(words["PartitionName"] for words in partitions if words.get("State") == "UP")
    lines = {name_in(line): line for line in lines_of(text, "NodeName")}
    records = read_records(text, "ReservationName")
    reservations, blocked, unknown = _reservations(records, frozenset(lines), now)
    shown = [_shown(line, up, name in blocked) for name, line in lines.items()]
    nodes, lists = [each.node for each in shown], Counter(each.partitions for each in shown)
    unknown += [
        f"node {n.name}: state {n.raw_state}" for n in nodes if n.state is NodeState.UNKNOWN
    ]
    terms, odd = lane_terms(lanes.partitions, partitions, config, lanes.qos, lanes.parts_qos)
    return Cluster(
        now=now,
        slurm=_slurm(config),
        nodes=tuple(nodes),
        reservations=tuple(reservations),
        unknown=(*unknown, *odd),
        hidden=_partitioned(partitions, lists) - lines.keys(),
        registering=frozenset(each.node.name for each in shown if each.registers),
        no_parts=tuple(map(str, find_lacks(lanes, partitions, lists.keys(), config))),
        has_switches=has_switches(config),
        lanes=terms,
    )


def _registers(node: Node, words: Words) -> bool:
    """Tell whether the node has yet to register after a restart of slurmctld.

    slurmctld keeps the start of slurmd in no file: the node sends it when it registers. The answer
    to a ping also has the load, but not the jobs that run there (24.11). A node that does not
    answer is UNKNOWN until slurmctld gives it up (16 s seen, 22.05)."""
    if words.get("SlurmdStartTime") != "None" or node.state is NodeState.UNKNOWN:
        return False
    return node_state(words.get("State", "").replace("UNKNOWN", "IDLE")) in _BASE.values()


def _partitioned(partitions: Iterable[Words], lists: Mapping[str, int]) -> frozenset[str]:
    """Return the nodes of all partitions that are not shown as a whole.

    Nearly all are shown as a whole, and reading a list takes 14 ms for 10,000 nodes. `lists` maps
    each list of partitions to the number of nodes that have it."""
    counts: Counter[str] = Counter()
    for names, number in lists.items():
        counts.update(dict.fromkeys(names.split(","), number))
    partitioned: set[str] = set()
    for words in partitions:
        if words.get("TotalNodes") != str(counts[words["PartitionName"]]):
            with contextlib.suppress(NodeSetParseError):
                partitioned |= expand(words.get("Nodes", ""))
    return frozenset(partitioned)


def clock(config: Words) -> Optional[datetime]:
    """Return slurmctld's own time, or None if the answer does not have it."""
    try:
        return parse_time(config.get("Configuration data as of", ""))
    except ValueError:
        return None


def _slurm(config: Words) -> Slurm:
    def number(key: str, default: int) -> int:
        match = re.match(r"\d{1,9}", config.get(key, ""))
        return int(match.group()) if match else default

    version = tuple(int(n) for n in re.findall(r"\d{1,9}", config["SLURM_VERSION"])[:3])
    return Slurm(
        version=version,
        kill_wait=timedelta(seconds=number("KillWait", 30)),
        min_job_age=timedelta(seconds=number("MinJobAge", 300)),
        max_array_size=number("MaxArraySize", 1001),
        max_job_count=number("MaxJobCount", 10_000),
        requeue_wait=timedelta(seconds=_requeue_wait_s(config, version)),
        appends=config.get("JobFileAppend") == "1",
        enforces_qos=bool({"qos", "all"} & _enforced(config)),
        preempts_by_qos=is_by_qos(config),
    )


def _enforced(config: Words) -> set[str]:
    return set(config.get("AccountingStorageEnforce", "").lower().split(","))


def _requeue_wait_s(config: Words, version: tuple[int, ...]) -> int:
    """Return how long a requeued job waits: until no credential of its last run is valid, and a
    second more. Since 25.11 a site can set another time, which 22.05 and 24.11 ignore."""
    options = f"{config.get('AuthInfo', '')},{config.get('SchedulerParameters', '')}"
    delays = dict(re.findall(r"\b(cred_expire|requeue_delay)=(\d{1,6})", options, re.ASCII))
    wait_s = int(delays.get("cred_expire", 120))
    if version >= (25, 11):
        wait_s = int(delays.get("requeue_delay", wait_s))
    return wait_s + 1


_IGNORED = {
    "PLANNED",
    "RESERVED",
    "CLOUD",
    "DYNAMIC_NORM",
    "DYNAMIC_FUTURE",
    "PERFCTRS",
    "PERFCNTRS",
}
_LEAVING = {
    "DRAIN",
    "DRAINING",
    "DRAINED",
    "MAINTENANCE",
    "REBOOT_REQUESTED",
    "REBOOT_ISSUED",
    "INVALID_REG",  # Slurm drains a node that has lost a GPU; its jobs run on
    "INVAL",
}
_DOWN = {
    "DOWN",
    "ERROR",
    "FUTURE",
    "UNKNOWN",
    "FAIL",
    "NOT_RESPONDING",
    "BLOCKED",
    "POWERED_DOWN",
    "POWERING_DOWN",
    "POWERING_UP",
    "POWER_DOWN",
    "POWER_UP",
}
_BASE = {"IDLE": NodeState.FREE, "ALLOCATED": NodeState.BUSY, "MIXED": NodeState.SHARED}


@lru_cache(maxsize=256)
def node_state(text: str) -> NodeState:
    """Fold Slurm's base state and flags into a state. A word that is not known gives UNKNOWN."""
    words = set(text.replace("*", "+NOT_RESPONDING").split("+")) - _IGNORED
    if words & _DOWN:
        return NodeState.DOWN
    if words - _LEAVING - {"COMPLETING"} - set(_BASE):
        return NodeState.UNKNOWN
    if words & _LEAVING:
        return NodeState.LEAVING
    if "COMPLETING" in words:
        return NodeState.BUSY
    states = [_BASE[word] for word in words]
    return states[0] if len(states) == 1 else NodeState.UNKNOWN


class _Shown(NamedTuple):
    """The record of a node: the names of all its `partitions`, up or not, and whether the node has
    yet to register."""

    node: Node
    partitions: str
    registers: bool


@lru_cache(maxsize=1 << 15)  # most were equal in the last tick
def _shown(line: str, up: frozenset[str], is_blocked: bool) -> _Shown:
    words = words_of(line)
    node = _node(words, up, is_blocked)
    return _Shown(node, words.get("Partitions", ""), _registers(node, words))


def _node(words: Words, up: frozenset[str], is_blocked: bool) -> Node:
    state = words.get("State", "")
    features = words.get("ActiveFeatures", "").replace("(null)", "")
    gres = parse_gres(words.get("Gres", ""))
    total = total_of(words, gres)
    is_odd = is_blocked or not total.cpus
    total = Resources(0, 0, gres) if is_odd else total
    return Node(
        name=words["NodeName"],
        state=NodeState.UNKNOWN if is_odd else node_state(state),
        partitions=up.intersection(words.get("Partitions", "").split(",")),
        features=frozenset(f for f in features.split(",") if f),
        cpus=total.cpus,
        memory_mib=total.memory_mib,
        gres=gres,
        raw_state=f"{state} (left alone: record or reservation unreadable)" if is_odd else state,
        used=used_of(words, total),
        idle_since=_idle_since(words),
    )


def _idle_since(words: Words) -> Optional[datetime]:
    with contextlib.suppress(ValueError):
        return parse_time(words.get("LastBusyTime", ""))
    return None


# WEEKDAY and WEEKEND are taken for daily: a claim that comes too soon is safe.
_PERIODS = {
    "HOURLY": timedelta(hours=1),
    "DAILY": timedelta(days=1),
    "WEEKDAY": timedelta(days=1),
    "WEEKEND": timedelta(days=1),
    "WEEKLY": timedelta(weeks=1),
}


def _next_instance(
    start: datetime, end: datetime, flags: str, now: datetime
) -> tuple[datetime, datetime]:
    """Return the instance of a repeated reservation that counts: the first that has not ended.

    slurmctld still shows an instance for half a minute after its end (26 s seen, 22.05.8).
    """
    periods = [_PERIODS[flag] for flag in flags.split(",") if flag in _PERIODS]
    if not periods or end > now:
        return start, end
    step = min(periods) * ((now - end) // min(periods) + 1)
    return start + step, end + step


def _reservations(
    records: list[Words], all_nodes: frozenset[str], now: datetime
) -> tuple[list[Reservation], frozenset[str], list[str]]:
    """Return reservations, the nodes of those without readable times, and a line about each fault.

    A reservation whose nodes cannot be read may be about any node, so it counts for all nodes.
    """
    read: list[Reservation] = []
    blocked: set[str] = set()
    unknown: list[str] = []
    for words in records:
        name, nodes = words["ReservationName"], all_nodes
        try:
            nodes = expand(words.get("Nodes", ""))
        except NodeSetParseError as error:
            unknown.append(f"reservation {name}: {error}: every node counts as reserved")
        try:
            start, end = (parse_time(words.get(key, "")) for key in ("StartTime", "EndTime"))
            if start is None or end is None:
                raise ValueError("it has no start or end")
            start, end = _next_instance(start, end, words.get("Flags", ""), now)
            read.append(Reservation(name, start, end, nodes))
        except ValueError as error:
            blocked |= nodes
            unknown.append(f"reservation {name}: {error}: its nodes are left alone")
    return read, frozenset(blocked), unknown
