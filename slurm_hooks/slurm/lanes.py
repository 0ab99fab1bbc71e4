"""Finds the partitions in which malleable jobs cannot run, and the line of Slurm that shows why.

Pure. `render lua` and doctor ask, and job_submit tells the user. Slurm must preempt a fragment by
requeue, and some other job must be able to preempt it. With PreemptType=preempt/qos only the job's
own QOS counts. A partition's PreemptMode or QOS then has no effect (22.05.8).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from ClusterShell.NodeSet import NodeSetParseError

from slurm_hooks.slurm.qos import Qos
from slurm_hooks.slurm.scontrol import Words, of_partition
from slurm_hooks.slurm.text import expand

_MOST_NAMED = 3
_NONE = "preempt/none"
_UNKNOWN = "Slurm has no such partition"
_LOSSES = {
    "CANCEL": "Slurm cancels jobs that it preempts there, so a fragment would be lost",
    "SUSPEND": "Slurm suspends jobs that it preempts there, so a fragment would keep its memory",
}


@dataclass(frozen=True)
class Unfit:
    """A reason why malleable jobs cannot run in a partition. `shown` is the line that says so.
    `key` is the setting in it, or QOS if the accounting database has it."""

    key: str
    shown: str
    why: str

    def __str__(self) -> str:
        return f"{self.shown}: {self.why}"


def find_unfit(
    ours: Sequence[str],
    partitions: Iterable[Words],
    config: Words,
    qos: str = "",
    known: Mapping[str, Qos] = {},
) -> dict[str, Unfit]:
    """Return our partitions in which no malleable job can run, with the reason.

    The words are scontrol's. Malleable jobs have the QOS `qos`, and `known` are all QOS. Both count
    only with preempt/qos.
    """
    records = {words["PartitionName"]: words for words in partitions}
    others = [words for name, words in records.items() if name not in ours]
    unfits = {}
    for name in ours:
        lane = records.get(name)
        if lane is None:
            unfit: Optional[Unfit] = Unfit("PartitionName", f"PartitionName={name}", _UNKNOWN)
        elif config.get("PreemptType", _NONE) == _NONE:
            unfit = Unfit("PreemptType", f"PreemptType={_NONE}", "no job can preempt another")
        elif is_by_qos(config):
            unfit = _of_qos(qos, known, config)
        else:
            unfit = _of_partition(lane, others, config)
        if unfit is not None:
            unfits[name] = unfit
    return unfits


def is_by_qos(config: Words) -> bool:
    """True if the QOS of a job decides which jobs preempt it. Then its partition does not."""
    return config.get("PreemptType") == "preempt/qos"


def unfit_for_parts(qos: str, config: Words, known: Mapping[str, Qos]) -> dict[str, Unfit]:
    """Return the QOS for parts of nodes with the reason why no malleable job can run with it, if
    there is such a reason. `qos` may be empty."""
    unfit = _of_qos(qos, known, config) if qos and is_by_qos(config) else None
    return {qos: unfit} if unfit else {}


def _of_qos(name: str, known: Mapping[str, Qos], config: Words) -> Optional[Unfit]:
    if not name:
        why = (
            "jobs yield by their QOS, and site.qos is empty; write the QOS that other QOS may "
            'preempt, for example qos = "scavenge"'
        )
        return Unfit("QOS", "PreemptType=preempt/qos", why)
    if name not in known:
        return Unfit("QOS", f"QOS {name}", "there is no such QOS")
    if not any(name in other.preempts for other in known.values() if other.name != name):
        why = "no other QOS has it in Preempt, so no job can preempt its jobs"
        return Unfit("Preempt", f"QOS {name}", why)
    own = known[name].mode
    mode = config.get("PreemptMode", "") if own in ("", "cluster") else own
    loss = _loss(mode)
    return Unfit("PreemptMode", f"QOS {name} PreemptMode={mode}", loss) if loss else None


def _loss(mode: str) -> str:
    """Return the fault of this PreemptMode, empty if it requeues."""
    mode = mode.upper()
    if "REQUEUE" in mode:
        return ""
    losses = (why for word, why in _LOSSES.items() if word in mode)
    return next(losses, "Slurm preempts no job there")


def _of_partition(lane: Words, others: Sequence[Words], config: Words) -> Optional[Unfit]:
    mode = lane.get("PreemptMode") or config.get("PreemptMode", "")
    loss = _loss(mode)
    if loss:
        return Unfit("PreemptMode", f"{of_partition(lane)} PreemptMode={mode}", loss)
    near, tier = neighbours(lane, others), tier_of(lane)
    if not near or any(tier_of(other) > tier for other in near):
        return None
    why = "no partition that shares its nodes has a higher tier, so no job can preempt there: "
    return Unfit("PriorityTier", f"{of_partition(lane)} PriorityTier={tier}", why + _listed(near))


def _listed(partitions: Sequence[Words]) -> str:
    names = [f"{words['PartitionName']} ({tier_of(words)})" for words in partitions]
    rest = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def neighbours(lane: Words, others: Iterable[Words]) -> list[Words]:
    """Return the other partitions that share nodes with this partition."""
    own = nodes_of(lane)
    return [other for other in others if own & nodes_of(other)]


def tier_of(words: Words) -> int:
    """Return the PriorityTier of a partition, or the default of 1 if it cannot be read."""
    match = re.match(r"\d{1,5}", words.get("PriorityTier", ""), re.ASCII)
    return int(match.group()) if match else 1


def nodes_of(partition: Words) -> frozenset[str]:
    """Return its nodes. The set is empty if the list cannot be read, which each tick reports."""
    try:
        return expand(partition.get("Nodes", ""))
    except NodeSetParseError:
        return frozenset()
