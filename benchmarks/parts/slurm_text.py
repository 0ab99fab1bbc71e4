"""The output of squeue and scontrol for a machine of any size, and a port that prints it.

It is made from a Snapshot, in the words of Slurm 22.05. It includes the unread words of a record,
so that reading costs as much as at a site.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Optional

from slurm_hooks.model import (
    Fragment,
    FragmentState,
    MalleableJob,
    Node,
    NodeState,
    PlannedStart,
    Resources,
    Snapshot,
)
from slurm_hooks.slurm.live import Asked
from slurm_hooks.slurm.mark import format_mark
from slurm_hooks.slurm.rows import jobs_command
from slurm_hooks.slurm.text import Command, fold

_EMPTY = {
    "SubmitTime": "1795186000",
    "EligibleTime": "1795186000",
    "StartTime": "N/A",
    "EndTime": "N/A",
    "TimeLimit": "1-00:00:00",
    "restartcnt": "0",
    "exit_code": "0",
    "Reason": "None",
    "SchedNodes": "(null)",
    "Dependency": "(null)",
    "Feature": "(null)",
    "MinCPUs": "1",
    "NumCPUs": "1",
    "MinMemory": "0",
    "tres-per-node": "N/A",
    "comment": "(null)",
    "admin_comment": "(null)",
}
_NODE = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=32  CPUAlloc={cpus} CPUEfctv=64 CPUTot=64 "
    "CPULoad=2.38 AvailableFeatures=ib,a100 ActiveFeatures=ib,a100 Gres=gpu:a100:8(S:0-1) "
    "GresDrain=N/A GresUsed=gpu:a100:{gpus}(IDX:0-7) "
    "NodeAddr={name} NodeHostName={name} Version=22.05.8 OS=Linux 6.1.0 #1 SMP Debian 6.1.170-1 "
    "(2026-05-12)  RealMemory=512000 AllocMem={memory} FreeMem=421723 Sockets=2 Boards=1 "
    "State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A "
    "Partitions={partitions}  "
    "BootTime=1795186830 SlurmdStartTime=1795187104 LastBusyTime=1795189115 "
    "CfgTRES=cpu=64,mem=500G,billing=64 AllocTRES= CapWatts=n/a CurrentWatts=0 "
    "AveWatts=0 ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s"
)
_CONFIG = """PartitionName=main PreemptMode=OFF State=UP PriorityTier=10 OverSubscribe=NO Nodes=ALL
PartitionName=malleable PreemptMode=REQUEUE State=UP PriorityTier=2 OverSubscribe=NO Nodes=ALL
PartitionName=parts PreemptMode=REQUEUE State=UP PriorityTier=1 OverSubscribe=NO Nodes=ALL
SelectType              = select/cons_tres
SelectTypeParameters    = CR_CORE_MEMORY
Configuration data as of {now}
KillWait                = 30 sec
MaxArraySize            = 1001
MaxJobCount             = 100000
MinJobAge               = 300 sec
PreemptType             = preempt/partition_prio
SLURM_VERSION           = 22.05.8
"""


@dataclass
class Answers:
    """A port that prints the same each time, and records its commands."""

    queue: str
    cluster: str
    asked: list[Asked] = field(default_factory=list)
    changes: list[Command] = field(default_factory=list)

    def ask(self, command: Command) -> str:
        """The answer to a question, or "" for a changing command."""
        self.asked.append(Asked(command.argv, command.rpcs, 0.0))
        if command.argv[0] == "squeue":
            return self.queue
        if command.stdin.startswith("show"):
            return self.cluster
        self.changes.append(command)
        return ""


def answers(seen: Snapshot, others: int = 0) -> Answers:
    """The port of this machine, with so many pending jobs of others in addition to the
    planned jobs.
    """
    return Answers("".join(_queue(seen, others)), "".join(_cluster(seen)))


def _queue(seen: Snapshot, others: int) -> Iterator[str]:
    fields = _fields()
    for job in seen.jobs:
        for fragment in job.fragments:
            yield _row(fields, _of_fragment(job, fragment))
    for start in seen.planned:
        yield _row(fields, _of_planned(start))
    for i in range(others):
        row = {"JobArrayID": f"{1_000_000 + i}", "State": "PENDING", "Partition": "main"}
        row |= {"UserName": f"user{i % 99}", "Reason": "Priority", "PriorityLong": "4294901750"}
        yield _row(fields, row)


def _fields() -> list[tuple[str, int, str]]:
    """Name, size (0: no size) and suffix of each asked field."""
    (asked,) = (word[2:] for word in jobs_command().argv if word.startswith("-O"))
    matches = [re.fullmatch(r"(\w+(?:-\w+)*):(\d*)(.*)", part) for part in asked.split(",")]
    return [(m.group(1), int(m.group(2) or 0), m.group(3)) for m in matches if m]


def _row(fields: list[tuple[str, int, str]], values: dict[str, str]) -> str:
    cells = []
    for name, size, suffix in fields:
        text = values.get(name, _EMPTY.get(name, ""))
        cells.append((text[:size].ljust(size) if size else text) + suffix)
    return "".join(cells) + "\n"


def _of_fragment(job: MalleableJob, fragment: Fragment) -> dict[str, str]:
    runs = fragment.state is FragmentState.RUNNING
    return {
        "JobArrayID": str(fragment.id),
        "State": "RUNNING" if runs else "PENDING",
        "PriorityLong": "0",
        "Partition": fragment.lane or job.partition,
        "UserName": job.user,
        "SubmitTime": _epoch(job.submitted),
        "StartTime": _epoch(fragment.start),
        "EndTime": _epoch(fragment.end),
        "TimeLimit": "10:00",
        "Reason": "None" if runs else "JobHeldUser",
        **_size(fragment),
        "NodeList": fold(fragment.nodes) if runs else "",
        "ReqNodes": fold(fragment.nodes),
        "comment": "trained{0};h{600};" if runs else "(null)",
        "admin_comment": format_mark(fragment.mark),
    }


def _size(fragment: Fragment) -> dict[str, str]:
    asks = fragment.asks
    if not asks.cpus:
        return {}
    cpus, memory = str(asks.cpus), f"{asks.memory_mib}M"
    gres = f"gres:gpu:{asks.gpus}"
    return {"MinCPUs": cpus, "NumCPUs": cpus, "MinMemory": memory, "tres-per-node": gres}


def _of_planned(start: PlannedStart) -> dict[str, str]:
    return {
        "JobArrayID": start.job_id,
        "State": "PENDING",
        "PriorityLong": "4294901760",
        "Partition": "main",
        "UserName": "root",
        "StartTime": _epoch(start.start),
        "Reason": "Resources",
        "SchedNodes": fold(start.nodes),
    }


def _epoch(when: Optional[datetime]) -> str:
    return str(int(when.timestamp())) if when else "N/A"


def _cluster(seen: Snapshot) -> Iterator[str]:
    for node in seen.nodes:
        yield _of_node(node) + "\n"
    yield _CONFIG.format(now=_epoch(seen.now))


def _of_node(node: Node) -> str:
    """A node without a part is used by a job as a whole, or free."""
    names = {NodeState.FREE: "IDLE", NodeState.SHARED: "MIXED"}
    used = node.used
    if node.state is NodeState.BUSY and not used.cpus:
        used = Resources(64, 512_000, (("gpu", 8),))
    return _NODE.format(
        name=node.name,
        cpus=used.cpus,
        gpus=used.gpus,
        memory=used.memory_mib,
        state=names.get(node.state, "ALLOCATED"),
        partitions=",".join(sorted(node.partitions)),
    )
