"""The wishes for a sandbox (`SandboxSpec`) and the places of its files (`Layout`): values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Optional

from slurm_hooks.errors import UsageError
from slurm_hooks.model.moments import plural
from slurm_hooks.sandbox.installation import Installation

# sockaddr_un holds 108 bytes; slurmstepd appends "/spool/n1024/n1024_4294967294.4294967294".
LONGEST_DIRECTORY = 60
MAX_NODES = 1024
MAX_GPUS = 64
SCAVENGE = "scavenge"  # a QOS in a sandbox with accounting, which QOS normal may preempt
PART_NODES = "parts"  # the partition or QOS for parts of nodes


class Preemption(Enum):
    """The property that decides which jobs may preempt which, in Slurm's words."""

    PARTITION = "partition_prio"
    QOS = "qos"


@dataclass(frozen=True)
class SandboxSpec:
    """The parts of a sandbox to start. A path of None leaves that part out.

    The nodes are n1, n2, ... with `cpus` CPUs and `memory_mib` MiB each, perhaps more than the host
    has. The last `large_nodes` of them have twice as much of all, and the feature `large`.
    The ordinary partition `main` takes nodes back from the partition `lane`.
    Sandboxes live in the directory `base` and run `slurm`. None means the default of each.
    `extra_conf` comes last in slurm.conf, where it wins. `extra_files` are names and texts of files
    beside it, like topology.conf.
    With `gpus` each node has so many fake GPUs, jobs share nodes, and the partition or QOS `parts`
    is for fragments on parts of nodes. `gpu_types` are the types of the GPUs, for a stretch of
    nodes each.
    `is_accounting` adds MariaDB and slurmdbd, an account, the QOS `scavenge` and enforced limits.
    Preemption by QOS needs them.
    """

    nodes: int = 8
    cpus: int = 2
    memory_mib: int = 2000
    large_nodes: int = 0
    gpus: int = 0
    gpu_types: tuple[str, ...] = ()
    is_accounting: bool = False
    preemption: Preemption = Preemption.PARTITION
    lane: str = "malleable"
    appends: bool = True  # JobFileAppend: a requeued fragment must not overwrite its log
    name: Optional[str] = None
    base: Optional[Path] = None
    slurm: Optional[Installation] = None
    extra_conf: str = ""
    extra_files: tuple[tuple[str, str], ...] = ()
    kill_wait_s: int = 5
    backfill_interval_s: int = 2
    spank: Optional[Path] = None  # malleable.so
    job_path: Optional[Path] = None  # the directory that the plugin puts in front of PYTHONPATH
    lua_dir: Optional[Path] = None  # holds job_submit.lua and the files that it loads
    policy: Optional[str] = None  # text of malleable_policy.lua
    epilog: Optional[Path] = None
    settings_text: Optional[str] = None  # text of malleable.toml
    max_restarts: int = 1000
    job_dir: str = "%w/.malleable-%U/%C/%A"

    def __post_init__(self) -> None:
        faults = [fault for fault in self._faults() if fault]
        if faults:
            raise UsageError("This sandbox cannot be made: " + "; ".join(faults) + ".")

    def _faults(self) -> list[str]:
        return [
            ""
            if 1 <= self.nodes <= MAX_NODES
            else f"nodes={self.nodes} must be from 1 to {MAX_NODES}",
            "" if self.cpus >= 1 else f"cpus={self.cpus} must be at least 1",
            "" if self.memory_mib >= 1 else f"memory_mib={self.memory_mib} must be at least 1",
            "" if self.kill_wait_s >= 1 else f"kill_wait_s={self.kill_wait_s} must be at least 1",
            ""
            if 0 <= self.large_nodes < self.nodes
            else f"large_nodes={self.large_nodes} must be less than nodes={self.nodes}",
            "" if 0 <= self.gpus <= MAX_GPUS else f"gpus={self.gpus} must be from 0 to {MAX_GPUS}",
            ""
            if self.gpus <= self.cpus
            else f"cpus={self.cpus} must be at least gpus={self.gpus}, since each GPU needs a CPU",
            "" if self.gpus or not self.gpu_types else "gpu_types needs gpus",
            ""
            if len(self.gpu_types) <= self.nodes - self.large_nodes
            else f"gpu_types has {len(self.gpu_types)} types for "
            f"{plural(self.nodes - self.large_nodes, 'node')}",
            *(
                "" if _is_name(kind) else f"gpu_types has {kind!r}: use letters, digits and '-'"
                for kind in self.gpu_types
            ),
            "preemption by QOS needs is_accounting"
            if self.preemption is Preemption.QOS and not self.is_accounting
            else "",
            ""
            if _is_name(self.name)
            else f"name={self.name!r}: use 1 to 20 letters, digits and '-'",
        ]

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(f"n{index}" for index in range(1, self.nodes + 1))


def _is_name(name: Optional[str]) -> bool:
    if name is None:
        return True
    return 0 < len(name) <= 20 and name.isascii() and name.replace("-", "").isalnum()


@dataclass(frozen=True)
class Layout:
    """The place of a sandbox: its directory, its ports, the user of its daemons.

    Node number i (from 1) listens on port `node_port + i - 1`. `is_loopback_only` says that the
    daemons may bind to 127.0.0.1 alone. `accounting_port` is slurmdbd's, None without accounting.
    """

    dir: Path
    user: str
    controller_port: int
    node_port: int
    is_loopback_only: bool
    accounting_port: Optional[int] = None

    def __post_init__(self) -> None:
        if len(str(self.dir)) > LONGEST_DIRECTORY:
            raise UsageError(
                f"The sandbox directory {self.dir} is longer than {LONGEST_DIRECTORY} characters, "
                "so the socket names under it would not fit; choose a shorter base directory."
            )

    @property
    def name(self) -> str:
        return self.dir.name

    @property
    def cluster(self) -> str:
        """Slurm's ClusterName."""
        return self.name.replace("-", "")

    @property
    def etc(self) -> Path:
        return self.dir / "etc"

    @property
    def conf(self) -> Path:
        return self.etc / "slurm.conf"

    @property
    def settings(self) -> Path:
        return self.etc / "malleable.toml"

    @property
    def job_path(self) -> Path:
        return self.dir / "jobpath"

    @property
    def spank(self) -> Path:
        return self.etc / "malleable.so"

    @property
    def state(self) -> Path:
        return self.dir / "state"

    @property
    def devices(self) -> Path:
        """The directory of the fake GPUs: gpu0, gpu1, ..."""
        return self.dir / "dev"

    @property
    def spool(self) -> Path:
        return self.dir / "spool"

    @property
    def logs(self) -> Path:
        return self.dir / "log"

    @property
    def run(self) -> Path:
        return self.dir / "run"

    @property
    def work(self) -> Path:
        return self.dir / "work"

    @property
    def munge_socket(self) -> Path:
        return self.run / "munge.sock"

    @property
    def database(self) -> Path:
        return self.dir / "database"

    @property
    def database_scratch(self) -> Path:
        """The directory of temporary tables. MariaDB empties it when it starts."""
        return self.dir / "scratch"

    @property
    def database_socket(self) -> Path:
        return self.run / "mariadb.sock"

    @property
    def munge_key(self) -> Path:
        return self.dir / "munge" / "key"
