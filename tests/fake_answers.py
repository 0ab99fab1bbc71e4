"""The output of the fake Slurm: the same fields and words as 22.05."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Optional

from fake_life import find_unfit, waits_for
from fake_parts import MAIN, START, Element
from slurm_hooks.slurm.rows import jobs_command
from slurm_hooks.slurm.text import Command, fold

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
    "Dependency": "(null)",
    "Feature": "(null)",
    "MinCPUs": 1,
    "NumCPUs": 1,
    "MinMemory": 0,
    "tres-per-node": "N/A",
    "comment": "(null)",
    "admin_comment": "(null)",
}


def row(command: Optional[Command] = None, **values: object) -> str:
    """A line of squeue with the asked fields. An unknown field is empty."""
    given = {**_EMPTY, **{key: value for key, value in values.items() if value is not None}}
    return "".join(
        _cell(str(given.get(name, "")), size) + suffix
        for name, size, suffix in fields(command or jobs_command())
    )


def fields(command: Command) -> list[tuple[str, str, str]]:
    """Name, size and suffix of each field of squeue's -O, `name:[size]suffix`."""
    (asked,) = (word[2:] for word in command.argv if word.startswith("-O"))
    matches = [re.fullmatch(r"(\w+(?:-\w+)*):(\d*)(.*)", part) for part in asked.split(",")]
    return [part.groups("") for part in matches if part]  # type: ignore[misc]


def _limit(minutes: int) -> str:
    days, hours = divmod(minutes // 60, 24)
    return f"{days}-{hours:02}:{minutes % 60:02}:00"


def _cell(text: str, size: str) -> str:
    """With a size, in bytes, squeue cuts and pads. Without a size it prints the whole text."""
    if not size:
        return text
    cut = text.encode("utf-8", "surrogateescape")[: int(size)].ljust(int(size))
    return cut.decode("utf-8", "surrogateescape")


def place_lines(slurm: FakeSlurm, shown: Container[str]) -> Iterable[str]:
    """The output of squeue with --states=PENDING,RUNNING,COMPLETING --format=%i|%x|%N."""
    asked = ("PENDING", "RUNNING", "COMPLETING")
    elements = (e for e in slurm.elements.values() if e.state in asked and e.partition in shown)
    return (f"{e.name}|{fold(e.barred)}|{fold(e.nodes)}" for e in elements)


def queue_lines(slurm: FakeSlurm, command: Command) -> Iterable[str]:
    find_unfit(slurm)
    shown = _asked_partitions(slurm, command)
    if "--format=%i|%x|%N" in command.argv:
        yield from place_lines(slurm, shown)
        return
    for e in (e for e in slurm.elements.values() if e.partition in shown):
        yield row(
            command,
            JobArrayID=e.name,
            State=e.state,
            PriorityLong=0 if e.is_held or e.is_unfit or e.state == "SUSPENDED" else 4294901750,
            Partition=e.partition,
            UserName=e.user,
            EligibleTime=e.eligible,
            StartTime=e.start,
            EndTime=e.end,
            TimeLimit=_limit(e.limit_min),
            restartcnt=e.restarts,
            exit_code=e.exit_code,
            Reason=_reason(slurm, e),
            NodeList=fold(e.nodes),
            ReqNodes=fold(e.asked),
            Dependency="afterok:99(unfulfilled)" if slurm.job(e).is_dependent else None,
            Feature="&".join(sorted(e.features)) or None,
            comment=e.comment or None,
            admin_comment=e.admin_comment,
            **_size(e),
        )
    for j in slurm.rigid if MAIN in shown else ():
        if j.seen <= slurm.now:
            place = "SchedNodes" if j.state == "PENDING" else "NodeList"
            yield row(
                command,
                JobArrayID=j.job,
                State=j.state,
                PriorityLong=4294901760,
                Partition=MAIN,
                UserName="root",
                EligibleTime=j.seen,
                StartTime=j.start,
                EndTime=j.start + j.seconds,
                TimeLimit="UNLIMITED",
                Reason="Resources" if j.state == "PENDING" else "None",
                **{place: fold(j.nodes)},
            )


def _asked_partitions(slurm: FakeSlurm, command: Command) -> Sequence[str]:
    """The named partitions of the command, or all."""
    named = (w.partition("=")[2] for w in command.argv if w.startswith("--partition="))
    return next((names.split(",") for names in named), slurm.partitions)


def _size(element: Element) -> dict[str, object]:
    part = element.part
    if part is None:
        return {}
    return {
        "MinCPUs": part.min_cpus,
        "NumCPUs": part.cpus,
        "MinMemory": f"{part.memory_mib}M",
        "tres-per-node": part.tres or "N/A",
    }


_ENDS = {"FAILED": "NonZeroExitCode", "TIMEOUT": "TimeLimit"}


def _reason(slurm: FakeSlurm, element: Element) -> str:
    if element.state in _ENDS:
        return _ENDS[element.state]
    if element.is_held:
        kind = "JobHeldAdmin" if element.hold == "admin" else "JobHeldUser"
        return element.description or kind
    if element.is_unfit:
        return "BadConstraints"
    return waits_for(slurm, element) or "None"


def cluster_lines(slurm: FakeSlurm) -> Iterable[str]:
    for name, flags in slurm.nodes.items():
        if name in slurm.hidden:
            continue
        yield (
            f"NodeName={name} {_resources(slurm, name)} "
            f"ActiveFeatures={_features(slurm, name)} "
            f"State={_node_text(slurm, name, flags)} Partitions={','.join(slurm.partitions)} "
            f"Reason=State=IDLE "
            f"SlurmdStartTime={'None' if name in slurm.silent else START}"
        )
    for b in slurm.bookings:
        if b.seen <= slurm.now < b.end:
            yield (
                f"ReservationName={b.name} StartTime={b.start} EndTime={b.end} "
                f"Nodes={fold(b.nodes)} Flags=SPEC_NODES"
            )
    nodes = fold(slurm.nodes)
    for tier, lane in enumerate(slurm.partitions[::-1]):
        mode = "OFF" if lane == MAIN else "REQUEUE"
        yield (
            f"PartitionName={lane} Nodes={nodes} PriorityTier={tier} PreemptMode={mode} "
            f"OverSubscribe=NO State=UP"
        )
    yield f"Configuration data as of {slurm.now}"
    yield f"KillWait                = {slurm.kill_wait_s} sec"
    yield "MaxArraySize            = 1001"
    yield "MaxJobCount             = 10000"
    yield f"MinJobAge               = {slurm.min_job_age_s} sec"
    yield "PreemptType             = preempt/partition_prio"
    yield "SelectType              = select/cons_tres"
    yield "SelectTypeParameters    = CR_CORE_MEMORY"
    yield "SLURM_VERSION           = 22.05.8"


def _features(slurm: FakeSlurm, name: str) -> str:
    return ",".join(sorted(slurm.features.get(name, ()))) or "(null)"


def _resources(slurm: FakeSlurm, name: str) -> str:
    size, used = slurm.size_of(name), slurm.used(name)
    gpu = next((key for key, _ in size.gres if ":" in key), "gpu")
    return (
        f"CPUAlloc={used.cpus} CPUEfctv={size.cpus} CPUTot={size.cpus} "
        f"Gres={f'{gpu}:{size.gpus}' if size.gpus else '(null)'} GresDrain=N/A "
        f"GresUsed={gpu}:{used.gpus} RealMemory={size.memory_mib} AllocMem={used.memory_mib}"
    )


def _node_text(slurm: FakeSlurm, name: str, flags: str) -> str:
    """Slurm's words depend on processors alone."""
    if re.match(r"[A-Z]", flags):
        return flags
    left = slurm.size_of(name).cpus - slurm.used(name).cpus
    base = "ALLOCATED" if not left else "IDLE" if left == slurm.size_of(name).cpus else "MIXED"
    return base + ("+COMPLETING" if slurm.is_completing(name) else "") + flags
