"""Turn the answers of slurmctld and sacctmgr into facts."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from ClusterShell.NodeSet import NodeSetParseError

from slurm_hooks.doctor.facts import Accounting, SlurmSays
from slurm_hooks.errors import UnreadableOutput
from slurm_hooks.slurm.cluster import clock
from slurm_hooks.slurm.live import Port
from slurm_hooks.slurm.scontrol import Words, read_config, read_records
from slurm_hooks.slurm.text import Command, expand

_QOS = (
    "Name,Priority,Preempt,PreemptMode,GraceTime,PreemptExemptTime,UsageFactor,"
    "MaxSubmitPU,MaxSubmitPA,GrpSubmit,GrpTRES,GrpTRESRunMins,GrpJobs,"
    "MaxTRESPU,MaxTRESRunMinsPU,MaxJobsPU,MaxTRESPA,MaxTRESRunMinsPA,MaxJobsPA"
)
_ASSOCIATIONS = (
    "Cluster,Account,User,Partition,ParentName,MaxSubmit,GrpSubmit,"
    "GrpTRES,GrpTRESRunMins,GrpJobs,MaxJobs"
)
SUPPOSED = {
    "PriorityTier": "1",
    "PreemptMode": "REQUEUE",
    "GraceTime": "0",
    "OverSubscribe": "EXCLUSIVE",
    "OverTimeLimit": "0",
}


def read_slurm(answer: str, partitions: Sequence[str], asked_at: float = 0.0) -> SlurmSays:
    """The facts in the answer to cluster_command, which came at `asked_at` (epoch seconds).

    For a missing partition of ours it assumes our own line, over all nodes, so that a single run
    lists all steps. Raises UnreadableOutput without a version, and for a PriorityTier that is not
    a number.
    """
    config = read_config(answer)
    if "SLURM_VERSION" not in config:
        raise UnreadableOutput(f"scontrol show config has no version: {answer[-200:]!r}")
    records = read_records(answer, "PartitionName")
    nodes = tuple(read_records(answer, "NodeName"))
    ours = [words for words in records if words["PartitionName"] in partitions]
    missing = tuple(sorted(set(partitions) - {words["PartitionName"] for words in ours}))
    everywhere = ",".join(words["NodeName"] for words in nodes)
    supposed = [{**SUPPOSED, "PartitionName": name, "Nodes": everywhere} for name in missing]
    mine = (*ours, *supposed)
    others = [words for words in records if words["PartitionName"] not in partitions]
    tiers = {words["PartitionName"]: _tier(words) for words in (*mine, *others)}
    has = {words["PartitionName"]: _nodes(words) for words in (*mine, *others)}
    now = clock(config)
    return SlurmSays(
        config=config,
        ours=mine,
        others=tuple(
            (one, two["PartitionName"], tiers[two["PartitionName"]])
            for one in others
            for two in mine
            if has[one["PartitionName"]] & has[two["PartitionName"]]
        ),
        missing=missing,
        nodes=nodes,
        our_nodes=frozenset().union(*(has[words["PartitionName"]] for words in mine)),
        offset_s=asked_at - now.timestamp() if asked_at and now else 0.0,
        now=now,
    )


def _tier(partition: Words) -> int:
    text = partition.get("PriorityTier", "1")
    if not re.fullmatch(r"\d{1,5}", text, re.ASCII):
        raise UnreadableOutput(
            f"scontrol show partition {partition['PartitionName']}: PriorityTier={text!r}"
        )
    return int(text)


def _nodes(partition: Words) -> frozenset[str]:
    """Its nodes, empty if the list cannot be read, which each tick reports."""
    try:
        return expand(partition.get("Nodes", ""))
    except NodeSetParseError:
        return frozenset()


def ask_slurm(port: Port, command: Command, partitions: Sequence[str]) -> tuple[str, SlurmSays]:
    """The answer and its facts. Raises UnreadableOutput, and the errors of the port."""
    before = time.time()
    answer = port.ask(command)
    return answer, read_slurm(answer, partitions, (before + time.time()) / 2)


def ask_accounting(port: Port) -> Accounting:
    """QOS, associations and admin levels. Raises the errors of the port."""
    users = _table(port, "user", "User,Admin")
    return Accounting(
        qos=_table(port, "qos", _QOS),
        associations=_table(port, "assoc", _ASSOCIATIONS),
        levels={words.get("User", ""): words.get("Admin", "None") for words in users},
    )


def _table(port: Port, kind: str, columns: str) -> tuple[Words, ...]:
    argv = ("sacctmgr", "--readonly", "--parsable2", "show", kind, f"format={columns}")
    head, *rows = port.ask(Command(argv)).splitlines() or [""]
    names = head.split("|")
    return tuple(dict(zip(names, row.split("|"))) for row in rows)
