"""Nodes that jobs share, on the fake Slurm and on a real Slurm."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from contract.stages import until
from fake_parts import Part, Rigid, Script, resources
from fake_slurm import FakeSlurm
from programs import write_program
from slurm_hooks.model import Fragment, FragmentId, Intent, Node, Resources, Verb, Why
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.slurm.actions import commands
from slurm_hooks.slurm.cluster import cluster_command
from slurm_hooks.slurm.gateway import read_cluster, read_jobs
from slurm_hooks.slurm.live import Live, Port
from slurm_hooks.slurm.scontrol import read_records
from slurm_hooks.slurm.text import parse_gres

CPUS, MEMORY_MIB, GPUS = 16, 64_000, 8
NAMES = ("n1", "n2")
LANES = ("malleable", "parts")
LEASE = timedelta(minutes=20)
STUBBORN = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)"
_MARK = "malleable{min=1,max=16,unit=1,frags=16,lease=1200,hole=60,not=-,slot=SLOT,slots=1}"


def mark_of(slot: str) -> str:
    return _MARK.replace("SLOT", slot)


def of_one(slot: str) -> Part:
    """The options of a fragment with a single slot."""
    return Part(1 if slot.startswith("gpu") else 0, cpus=2, memory_mib=4000)


class PartStage(Protocol):
    """A cluster of two nodes that jobs share, on which people act."""

    port: Port

    def submit(self, count: int, slot: str, is_stubborn: bool = False) -> int:
        """Submit a held array of fragments of a slot. If stubborn they do not end on SIGTERM."""
        ...

    def rigid(self, node: str, size: Resources) -> int:
        """Submit a job of another user, which needs so much of a node."""
        ...

    def has_started(self, rigid: int) -> bool: ...

    def does(self, line: str) -> bool:
        """Type a command. Return True if it was not refused."""
        ...

    def now(self) -> int: ...

    def wait(self) -> None: ...

    def tidy(self) -> None: ...


@dataclass
class FakeParts:
    """The fake Slurm."""

    port: FakeSlurm = field(
        default_factory=lambda: FakeSlurm(
            dict.fromkeys(NAMES, ""),
            lanes=LANES,
            sizes=dict.fromkeys(NAMES, resources(CPUS, MEMORY_MIB, GPUS)),
        )
    )

    def submit(self, count: int, slot: str, is_stubborn: bool = False) -> int:
        job = len(self.port.jobs) + 1
        self.port.submit(job, count, mark_of(slot), script=Script(joins=False), part=of_one(slot))
        self.port.term_s = self.port.kill_wait_s if is_stubborn else 1
        return job

    def rigid(self, node: str, size: Resources) -> int:
        job = 1000 + len(self.port.rigid)
        now = self.port.now
        self.port.rigid.append(Rigid(job, frozenset({node}), now, now, 600, part=size))
        return job

    def has_started(self, rigid: int) -> bool:
        return any(j.job == rigid and j.state == "RUNNING" for j in self.port.rigid)

    def does(self, line: str) -> bool:
        return not self.port.does(line)

    def now(self) -> int:
        return self.port.now

    def wait(self) -> None:
        self.port.advance(1)

    def tidy(self) -> None:
        pass


@dataclass
class RealParts:
    """A sandbox without anything of this project in it."""

    box: Sandbox
    port: Live = field(init=False)

    def __post_init__(self) -> None:
        self.port = Live(20.0, environment=dict(self.box.environment))

    def _submit(self, partition: str, size: Resources, script: str, *words: str) -> int:
        gres = [f"--gres=gpu:{size.gpus}"] if size.gpus else []
        argv = ["sbatch", "--parsable", "-p", partition, "--time=20", "-o", "/dev/null", *gres]
        argv += ["-n1", f"-c{size.cpus}", f"--mem={size.memory_mib}", *words, script]
        return int(self.box.run(argv).stdout)

    def submit(self, count: int, slot: str, is_stubborn: bool = False) -> int:
        script = self.box.work / f"job{time.monotonic_ns()}"
        write_program(script, f"#!/usr/bin/python3\n{STUBBORN}" if is_stubborn else _SLEEP)
        words = ("--requeue", "--hold", f"--array=0-{count - 1}")
        job = self._submit("parts", of_one(slot).asks, str(script), *words)
        self.box.run(["scontrol", "update", f"jobid={job}", f"AdminComment={mark_of(slot)}"])
        return job

    def rigid(self, node: str, size: Resources) -> int:
        script = self.box.work / "rigid.sh"
        write_program(script, _SLEEP)
        return self._submit("main", size, str(script), "-w", node)

    def has_started(self, rigid: int) -> bool:
        return self.box.run(["squeue", "-h", "-j", f"{rigid}", "-o", "%T"]).stdout == "RUNNING\n"

    def does(self, line: str) -> bool:
        return self.box.run(line.split(" "), check=False).returncode == 0

    def now(self) -> int:
        return int(time.time())

    def wait(self) -> None:
        time.sleep(0.2)

    def tidy(self) -> None:
        for partition in ("main", *LANES):
            self.box.run(["scancel", f"--partition={partition}"], check=False)
        until(self, lambda: all(node(self, name).raw_state == "IDLE" for name in NAMES))


_SLEEP = "#!/bin/bash\nexec sleep 600\n"


def node(stage: Any, name: str) -> Node:
    return next(n for n in read_cluster(stage.port).nodes if n.name == name)


def gpus_used(stage: PartStage, name: str) -> int:
    """The GPUs in use, in Slurm's own words."""
    records = read_records(stage.port.ask(cluster_command()), "NodeName")
    (said,) = (words["GresUsed"] for words in records if words["NodeName"] == name)
    return dict(parse_gres(said))["gpu"]


def fragments(stage: PartStage, job: int) -> dict[int, Fragment]:
    (seen,) = (j for j in read_jobs(stage.port, LANES) if j.job_id == job)
    return {f.id.index: f for f in seen.fragments}


def release(
    stage: PartStage,
    job: int,
    where: Mapping[int, tuple[str, Resources]],
    is_told: bool = False,
) -> None:
    """Release fragments as a tick does, by index, each with its node and size.

    The command has only the sizes that Slurm does not show, or all sizes.
    """
    before = fragments(stage, job)
    intents = [
        Intent(
            FragmentId(job, index),
            Why.HOLE_OPEN,
            Verb.GROW,
            mark=before[index].mark,
            nodes=frozenset({name}),
            limit=LEASE,
            asks=size,
            is_resized=is_told or before[index].asks != size,
        )
        for index, (name, size) in where.items()
    ]
    for command in commands(intents, {}, NAMES):
        stage.port.ask(command)
