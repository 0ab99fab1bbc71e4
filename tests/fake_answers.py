"""What the fake Slurm prints: the same fields and words as 22.05."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fake_parts import START
from slurm_hooks.slurm.jobs import JOB_FIELDS
from slurm_hooks.slurm.text import fold

if TYPE_CHECKING:
    from fake_slurm import FakeSlurm

_EMPTY = {
    "SubmitTime": START,
    "EligibleTime": "N/A",
    "StartTime": "N/A",
    "EndTime": "N/A",
    "restartcnt": 0,
    "exit_code": 0,
    "SchedNodes": "(null)",
    "admin_comment": "(null)",
}


def row(**values: object) -> str:
    """A line of squeue with every field that is asked for; what is not known is empty."""
    given = {**_EMPTY, **{key: value for key, value in values.items() if value is not None}}
    return "".join(f"{given.get(name, '')}|" for name in JOB_FIELDS)


def queue_lines(slurm: FakeSlurm) -> Iterable[str]:
    for e in slurm.elements.values():
        yield row(
            JobArrayID=e.name,
            State=e.state,
            PriorityLong=0 if e.is_held else 4294901750,
            Partition="malleable",
            UserName="nobody",
            EligibleTime=e.eligible,
            StartTime=e.start,
            EndTime=e.end,
            TimeLimit=f"{e.limit_min}:00",
            restartcnt=e.restarts,
            exit_code=e.exit_code,
            Reason="JobHeldUser" if e.is_held and e.state == "PENDING" else "None",
            NodeList=fold(e.nodes),
            ReqNodes=fold(e.asked),
            admin_comment=e.comment,
        )
    for j in slurm.rigid:
        if j.seen <= slurm.now:
            place = "SchedNodes" if j.state == "PENDING" else "NodeList"
            yield row(
                JobArrayID=j.job,
                State=j.state,
                PriorityLong=4294901760,
                Partition="main",
                UserName="root",
                EligibleTime=j.seen,
                StartTime=j.start,
                EndTime=j.start + j.seconds,
                TimeLimit="UNLIMITED",
                Reason="Resources" if j.state == "PENDING" else "None",
                **{place: fold(j.nodes)},
            )


def cluster_lines(slurm: FakeSlurm) -> Iterable[str]:
    for name, flags in slurm.nodes.items():
        yield (
            f"NodeName={name} CPUTot=2 ActiveFeatures=(null) RealMemory=2000 "
            f"State={_node_text(slurm, name, flags)} Partitions=main,malleable Reason=State=IDLE"
        )
    for b in slurm.bookings:
        if b.seen <= slurm.now < b.end:
            yield (
                f"ReservationName={b.name} StartTime={b.start} EndTime={b.end} "
                f"Nodes={fold(b.nodes)} Flags=SPEC_NODES"
            )
    yield "PartitionName=main PreemptMode=OFF State=UP"
    yield "PartitionName=malleable PreemptMode=REQUEUE State=UP"
    yield f"Configuration data as of {slurm.now}"
    yield f"KillWait                = {slurm.kill_wait_s} sec"
    yield "MaxArraySize            = 1001"
    yield "MinJobAge               = 3600 sec"
    yield "PreemptType             = preempt/partition_prio"
    yield "SLURM_VERSION           = 22.05.8"


def _node_text(slurm: FakeSlurm, name: str, flags: str) -> str:
    if re.match(r"[A-Z]", flags):
        return flags
    user = slurm.user_of(name)
    is_ending = any(e.state == "COMPLETING" for e in slurm.ours_on(frozenset({name})))
    base = "IDLE" if user is None or is_ending else "ALLOCATED"
    return base + ("+COMPLETING" if is_ending else "") + flags
