"""The configuration files of a sandbox as a pure function of spec, Slurm version and layout.

Writes no file and starts no process. All quirks of a Slurm version belong here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from slurm_hooks.sandbox.installation import Installation
from slurm_hooks.sandbox.spec import PART_NODES, SCAVENGE, Layout, Preemption, SandboxSpec

# Slurm's defaults wait seconds for batches of work. These values make a small machine answer at
# once.
SCHEDULER_PARAMETERS = (
    "batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval={bf_s},bf_continue"
)
CGROUP_PLUGIN_CAN_BE_DISABLED = (24, 5)  # in the manual of 24.05, not of 23.11
MANY_NODES = 64
MAX_ARRAY_SIZE = 1001
MIN_JOB_AGE_S = 300  # the default


def render_conf(spec: SandboxSpec, slurm: Installation, layout: Layout) -> dict[str, str]:
    """Returns file name (in the directory of slurm.conf) -> text."""
    files = {"slurm.conf": _slurm_conf(spec, layout)}
    if slurm.version >= CGROUP_PLUGIN_CAN_BE_DISABLED:
        # Without it 24.11 and 26.05 stop if they cannot control cgroups. 22.05 refuses it.
        files["cgroup.conf"] = "CgroupPlugin=disabled\n"
    if spec.gpus:
        files["gres.conf"] = "\n".join(_gres_lines(spec, layout)) + "\n"
    if spec.spank is not None:
        files["plugstack.conf"] = _plugstack_conf(spec, layout)
    if layout.accounting_port is not None:
        files["slurmdbd.conf"] = _slurmdbd_conf(layout)
    if spec.policy is not None:
        files["malleable_policy.lua"] = spec.policy
    files["malleable.toml"] = spec.settings_text or default_settings(spec, slurm, layout)
    return {**files, **dict(spec.extra_files)}


def default_settings(spec: SandboxSpec, slurm: Installation, layout: Layout) -> str:
    """Returns settings for a sandbox and the services beside it. Others are the defaults."""
    is_qos = spec.preemption is Preemption.QOS
    qos = f'qos = "{SCAVENGE}"\n' if is_qos else ""
    names = [spec.lane, PART_NODES] if spec.gpus and not is_qos else [spec.lane]
    parts = f'part_nodes = "{PART_NODES}"\n' if spec.gpus else ""
    return (
        f'[site]\npartitions = {json.dumps(names)}\n{parts}operators = ["{layout.user}"]\n{qos}\n'
        f'[mode]\nlevel = "on"\n\n'
        f'[tick]\nlock = "{layout.run}/tick.lock"\nslurm_bin = "{slurm.bin_dir}"\n'
        f'state_dir = "{layout.run}/malleable"\n'
    )


def _slurm_conf(spec: SandboxSpec, layout: Layout) -> str:
    parts = (
        _daemon_lines(spec, layout),
        _network_lines(spec, layout),
        _job_lines(spec),
        _accounting_lines(spec, layout),
        _hook_lines(spec, layout),
        _machine_lines(spec, layout),
        [spec.extra_conf.rstrip("\n")] if spec.extra_conf else [],
    )
    return "\n".join(line for part in parts for line in part) + "\n"


def _daemon_lines(spec: SandboxSpec, layout: Layout) -> list[str]:
    return [
        f"ClusterName={layout.cluster}",
        f"SlurmUser={layout.user}",
        f"SlurmdUser={layout.user}",
        "AuthType=auth/munge",
        f"AuthInfo=socket={layout.munge_socket}",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SelectType=select/cons_tres",
        f"SelectTypeParameters={'CR_Core_Memory' if spec.gpus else 'CR_Core'}",
        "ReturnToService=2",
        "MailProg=/bin/true",
        f"StateSaveLocation={layout.state}",
        f"SlurmctldPidFile={layout.run}/slurmctld.pid",
        f"SlurmctldLogFile={layout.logs}/slurmctld.log",
        f"SlurmdSpoolDir={layout.spool}/%n",
        f"SlurmdPidFile={layout.run}/%n.pid",
        f"SlurmdLogFile={layout.logs}/%n.log",
        "SlurmdParameters=config_overrides",  # more CPUs and memory than the host has
    ]


def _network_lines(spec: SandboxSpec, layout: Layout) -> list[str]:
    lines = [
        # slurmctld knows itself as "localhost", since the host's name may not resolve.
        "SlurmctldHost=localhost(127.0.0.1)",
        f"SlurmctldPort={layout.controller_port}",
        "SlurmctldTimeout=60",
        "SlurmdTimeout=60",
    ]
    if spec.nodes > MANY_NODES:
        lines.append("MessageTimeout=30")  # the same host plays all nodes and answers late
    if layout.is_loopback_only:
        lines.append("CommunicationParameters=NoInAddrAny,NoCtldInAddrAny")
    return lines


def _job_lines(spec: SandboxSpec) -> list[str]:
    parameters = SCHEDULER_PARAMETERS.format(bf_s=spec.backfill_interval_s)
    return [
        f"SchedulerParameters={parameters}",
        f"KillWait={spec.kill_wait_s}",
        "JobRequeue=1",
        f"JobFileAppend={int(spec.appends)}",
        f"MinJobAge={MIN_JOB_AGE_S}",
        f"MaxArraySize={MAX_ARRAY_SIZE}",
        f"PreemptType=preempt/{spec.preemption.value}",
        "PreemptMode=REQUEUE",
    ]


def _accounting_lines(spec: SandboxSpec, layout: Layout) -> list[str]:
    if layout.accounting_port is None:
        return []
    return [
        *(["AccountingStorageTRES=gres/gpu"] if spec.gpus else []),
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={layout.accounting_port}",
        f"AccountingStoragePass={layout.munge_socket}",  # the socket of the sandbox's munged
        "AccountingStorageEnforce=associations,limits,qos",
        "JobAcctGatherType=jobacct_gather/none",
        "PriorityType=priority/multifactor",
        "PriorityWeightFairshare=1000",
        "PriorityCalcPeriod=1",  # minutes, the shortest: then sshare shows usage soon
    ]


def _slurmdbd_conf(layout: Layout) -> str:
    """Returns the text. Root and the sandbox's user enter the database by its socket, without a
    password."""
    lines = [
        "AuthType=auth/munge",
        f"AuthInfo=socket={layout.munge_socket}",
        "DbdHost=localhost",
        "DbdAddr=127.0.0.1",
        f"DbdPort={layout.accounting_port}",
        f"SlurmUser={layout.user}",
        f"LogFile={layout.logs}/slurmdbd.log",
        f"PidFile={layout.run}/slurmdbd.pid",
        "StorageType=accounting_storage/mysql",
        "StorageHost=localhost",  # libmariadb takes the socket then, see MYSQL_UNIX_PORT
        f"StorageUser={layout.user}",
        "StorageLoc=slurm_acct_db",
    ]
    return "\n".join(lines) + "\n"


def _hook_lines(spec: SandboxSpec, layout: Layout) -> list[str]:
    lines = []
    if spec.lua_dir is not None:
        lines.append("JobSubmitPlugins=lua")
    if spec.epilog is not None:
        lines.append(f"Epilog={layout.etc / spec.epilog.name}")
    return lines


@dataclass(frozen=True)
class _Kind:
    """Equal nodes, by their numbers: how many times the usual size, and their GPUs."""

    numbers: range
    times: int
    gpus: int
    gpu_type: str

    @property
    def names(self) -> str:
        return "n" + self.ranged(0)

    @property
    def gres(self) -> str:
        """`gpu:8` or `gpu:a100:8`."""
        return ":".join(filter(None, ("gpu", self.gpu_type, str(self.gpus))))

    def ranged(self, base: int) -> str:
        """Returns the numbers as Slurm writes them, counted from `base`."""
        first, last = base + self.numbers[0], base + self.numbers[-1]
        if first == last:
            return str(first)
        return f"[{first}-{last}]" if base == 0 else f"{first}-{last}"


def _kinds(spec: SandboxSpec) -> list[_Kind]:
    """Returns small nodes first, in a stretch for each type of GPU, then large nodes."""
    small, types = spec.nodes - spec.large_nodes, spec.gpu_types or ("",)
    ends = [small * n // len(types) for n in range(len(types) + 1)]
    kinds = [
        _Kind(range(first + 1, last + 1), 1, spec.gpus, gpu_type)
        for first, last, gpu_type in zip(ends, ends[1:], types)
    ]
    if spec.large_nodes:
        kinds.append(_Kind(range(small + 1, spec.nodes + 1), 2, 2 * spec.gpus, types[-1]))
    return kinds


def gpu_counts(spec: SandboxSpec) -> dict[str, list[int]]:
    """Returns how many GPUs nodes have, by `gpu` and, with types, by `gpu:a100`."""
    numbers: dict[str, set[int]] = {}
    for kind in _kinds(spec):
        if kind.gpus and kind.numbers:
            for name in {"gpu", kind.gres.rpartition(":")[0]}:
                numbers.setdefault(name, set()).add(kind.gpus)
    return {name: sorted(counts) for name, counts in sorted(numbers.items())}


def _machine_lines(spec: SandboxSpec, layout: Layout) -> list[str]:
    nodes = [_node_line(spec, layout, kind) for kind in _kinds(spec)]
    # Slurm enforces a GraceTime above 0 only in a slow periodic check (22.05): KillWait is the
    # grace.
    settings = "Nodes=ALL PreemptMode=REQUEUE GraceTime=0 MaxTime=INFINITE OverSubscribe"
    main = "PartitionName=main Nodes=ALL Default=YES PriorityTier=10 PreemptMode=OFF"
    if not spec.gpus:
        return [
            *nodes,
            f"{main} MaxTime=INFINITE OverSubscribe=EXCLUSIVE",
            f"PartitionName={spec.lane} PriorityTier=1 {settings}=EXCLUSIVE",
        ]
    parts = f"PartitionName={PART_NODES} PriorityTier=1 {settings}=NO"
    return [
        "GresTypes=gpu",
        # Without it a job takes all memory of a node.
        f"DefMemPerCPU={max(1, spec.memory_mib // spec.cpus)}",
        *nodes,
        f"{main} MaxTime=INFINITE OverSubscribe=NO",
        f"PartitionName={spec.lane} PriorityTier=2 {settings}=NO",
        *([] if spec.preemption is Preemption.QOS else [parts]),
    ]


def _node_line(spec: SandboxSpec, layout: Layout, kind: _Kind) -> str:
    cpus, memory_mib = kind.times * spec.cpus, kind.times * spec.memory_mib
    return (
        f"NodeName={kind.names} NodeHostname=localhost NodeAddr=127.0.0.1 "
        f"Port={kind.ranged(layout.node_port - 1)} CPUs={cpus} RealMemory={memory_mib}"
        f"{' Gres=' + kind.gres if kind.gpus else ''}{' Feature=large' if kind.times > 1 else ''}"
    )


def _gres_lines(spec: SandboxSpec, layout: Layout) -> list[str]:
    """Returns lines with character devices, for which alone Slurm sets CUDA_VISIBLE_DEVICES."""
    return [
        f"NodeName={kind.names} Name=gpu{' Type=' + kind.gpu_type if kind.gpu_type else ''} "
        f"File={layout.devices}/gpu[0-{kind.gpus - 1}]"
        for kind in _kinds(spec)
    ]


def _plugstack_conf(spec: SandboxSpec, layout: Layout) -> str:
    arguments = [f"max_restarts={spec.max_restarts}"]
    if spec.job_path is not None:
        arguments.insert(0, f"pythonpath={layout.job_path}")
    return f"optional {layout.spank} {' '.join([*arguments, f'dir={spec.job_dir}'])}\n"
