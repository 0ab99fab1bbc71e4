"""What Slurm says of partitions and QOS, and whether a malleable job may run there.

Pure: the commands, and how to read their answers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

CONFIG = ("scontrol", "show", "config")
PARTITIONS = ("scontrol", "show", "partition", "--oneliner")
NODES = ("sinfo", "--noheader", "--Node", "--format=%N|%R")
_QOS_FIELDS = "format=name,preempt,preemptmode,maxwall"
QOS = ("sacctmgr", "--noheader", "--parsable2", "show", "qos", _QOS_FIELDS)
NEVER_S = 10**9
_TIME = re.compile(r"(?:([0-9]+)-)?([0-9]+)(?::([0-9]+))?(?::([0-9]+))?")


class LaneError(Exception):
    """A malleable job cannot run there. The message says why, and what to write."""


@dataclass(frozen=True)
class Lane:
    """Where the job runs. Its elements may have at most `most_s` seconds. `qos` is empty where it
    makes no difference."""

    partitions: tuple[str, ...]
    qos: str
    most_s: int


def default_qos(user: str, account: str) -> tuple[str, ...]:
    """Return the command that prints the QOS of a user's jobs without --qos. An empty account is
    any.
    """
    own = (f"account={account}",) if account else ()
    where = ("where", f"user={user}", *own, "format=defaultqos")
    return ("sacctmgr", "--noheader", "--parsable2", "show", "assoc", *where)


def config(text: str) -> dict[str, str]:
    """Return the settings in the answer to CONFIG."""
    pairs = (line.partition(" = ") for line in text.splitlines())
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def partitions(text: str) -> dict[str, dict[str, str]]:
    """Return the settings of each partition in the answer to PARTITIONS."""
    rows = (dict(re.findall(r"(\w+)=(\S*)", line)) for line in text.splitlines())
    return {row["PartitionName"]: row for row in rows if "PartitionName" in row}


def chosen(names: str, known: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
    """Return the partitions of a job with `--partition=NAMES`. Raises LaneError."""
    if not names:
        own = tuple(name for name, row in known.items() if row.get("Default") == "YES")
        if not own:
            raise LaneError("there is no default partition; name one with --partition=")
        return own
    wanted = tuple(name for name in names.split(",") if name)
    for name in wanted:
        if name not in known:
            raise LaneError(f"there is no partition {name}; there are {', '.join(known)}")
    return wanted


def check_partitions(
    names: Sequence[str],
    known: Mapping[str, Mapping[str, str]],
    nodes: Mapping[str, Collection[str]],
    settings: Mapping[str, str],
) -> None:
    """Raises LaneError if Slurm takes no nodes back from one of these partitions. `nodes` are those
    of each partition.
    """
    modes = {name: _mode(known[name].get("PreemptMode", ""), settings) for name in known}
    lower = {name for name in known if _has_upper(name, known, nodes)}
    fit = [name for name in known if modes[name] in ("REQUEUE", "CANCEL") and name in lower]
    for name in names:
        if name not in fit:
            why = f"PreemptMode={modes[name]}" if name in lower else "none is above it there"
            raise LaneError(
                f"Slurm takes no nodes back from jobs of the partition {name} ({why}), so a "
                "malleable job would keep them from others; "
                + (f"write --partition={fit[0]}" if fit else "no partition here is preemptible")
            )


def _has_upper(
    name: str, known: Mapping[str, Mapping[str, str]], nodes: Mapping[str, Collection[str]]
) -> bool:
    """Tell whether a partition with a higher tier shares nodes with this one."""
    own = frozenset(nodes.get(name, ()))
    return any(
        _tier(known[other]) > _tier(known[name]) and own & frozenset(nodes.get(other, ()))
        for other in known
    )


def _tier(partition: Mapping[str, str]) -> int:
    text = partition.get("PriorityTier", "")
    return int(text) if text.isdigit() else 1


def nodes_of(answer: str) -> dict[str, set[str]]:
    """Return the nodes of each partition from the answer to NODES."""
    nodes: dict[str, set[str]] = {}
    for line in answer.splitlines():
        node, _, partition = line.partition("|")
        nodes.setdefault(partition, set()).add(node)
    return nodes


def longest_of_qos(qos: str, answer: str, settings: Mapping[str, str]) -> int:
    """Return the longest time limit of a job in this QOS in seconds, by the answer to QOS. Raises
    LaneError if Slurm takes no nodes back from it.
    """
    rows = [line.split("|") for line in answer.splitlines() if line.count("|") == 3]
    modes = {row[0]: _mode("" if row[2] == "cluster" else row[2], settings) for row in rows}
    weaker = [name for row in rows for name in row[1].split(",") if name in modes]
    fit = sorted({name for name in weaker if modes[name] in ("REQUEUE", "CANCEL")})
    if qos not in fit:
        raise LaneError(
            f"Slurm takes no nodes back from jobs of the QOS {qos or '(unknown)'}, so a malleable "
            "job would keep them from others; "
            + (f"write --qos={fit[0]}" if fit else "no QOS here is preemptible")
        )
    return next(seconds(row[3]) for row in rows if row[0] == qos)


def _mode(own: str, settings: Mapping[str, str]) -> str:
    words = (own or settings.get("PreemptMode", "")).upper().split(",")
    return next((word for word in words if word not in ("GANG", "WITHIN")), "OFF")


def check_preemption(settings: Mapping[str, str]) -> None:
    """Raises LaneError if this Slurm never takes a node back."""
    kind = settings.get("PreemptType", "")
    if kind not in ("preempt/partition_prio", "preempt/qos"):
        raise LaneError(
            f"this Slurm takes no node back from a running job (PreemptType={kind or 'none'}), so "
            "a malleable job would keep nodes from others"
        )


def check_size(elements: int, settings: Mapping[str, str]) -> None:
    """Raises LaneError if a job array cannot have so many elements."""
    most = settings.get("MaxArraySize", "")
    if most.isdigit() and elements >= int(most):
        raise LaneError(
            f"a job array has at most {int(most) - 1} elements here (MaxArraySize={most}); write a "
            "smaller MAX, or a larger unit"
        )


def longest(names: Iterable[str], known: Mapping[str, Mapping[str, str]]) -> int:
    """Return the longest time limit in these partitions in seconds."""
    return min(seconds(known[name].get("MaxTime", "")) for name in names)


def seconds(text: str) -> int:
    """Return a time limit in Slurm's words, such as 30, 1:30:00 or 2-12, in seconds. A text without
    a limit, or of another form, is NEVER_S."""
    match = _TIME.fullmatch(text.strip())
    if not match:
        return NEVER_S
    days, first, second, third = (int(group or 0) for group in match.groups())
    if match[1]:
        return days * 86400 + first * 3600 + second * 60 + third
    if match[4]:
        return first * 3600 + second * 60 + third
    return (first * 60 + second) or NEVER_S


def slurm_time(seconds_: int) -> str:
    """Return the time in Slurm's words."""
    return f"{seconds_ // 3600}:{seconds_ // 60 % 60:02d}:{seconds_ % 60:02d}"
