"""The configuration files of a sandbox as a pure function of spec, Slurm version and layout.

Writes nothing and starts nothing. Quirks of a Slurm version belong here and nowhere else.
"""

from __future__ import annotations

from slurm_hooks.sandbox.installation import Installation
from slurm_hooks.sandbox.spec import SCAVENGE, Layout, Preemption, SandboxSpec

# Defaults wait seconds for batches of work; these make a small machine answer at once.
SCHEDULER_PARAMETERS = (
    "batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval={bf_s},bf_continue"
)
CGROUP_PLUGIN_CAN_BE_DISABLED = (24, 5)  # in the manual of 24.05, not in that of 23.11
MANY_NODES = 64
MAX_ARRAY_SIZE = 1001
MIN_JOB_AGE_S = 300  # the default
PREEMPTIBLE = {"main": False, "malleable": True}  # the partitions, and which can be preempted


def render_conf(spec: SandboxSpec, slurm: Installation, layout: Layout) -> dict[str, str]:
    """File name (in the directory of slurm.conf) -> text of it."""
    files = {"slurm.conf": _slurm_conf(spec, layout)}
    if slurm.version >= CGROUP_PLUGIN_CAN_BE_DISABLED:
        # 24.11 and 26.05 stop without it where cgroups are not theirs; 22.05 refuses it.
        files["cgroup.conf"] = "CgroupPlugin=disabled\n"
    if spec.spank is not None:
        files["plugstack.conf"] = _plugstack_conf(spec, layout)
    if layout.accounting_port is not None:
        files["slurmdbd.conf"] = _slurmdbd_conf(layout)
    if spec.policy is not None:
        files["malleable_policy.lua"] = spec.policy
    files["malleable.toml"] = spec.settings_text or default_settings(spec, slurm, layout)
    return {**files, **dict(spec.extra_files)}


def default_settings(spec: SandboxSpec, slurm: Installation, layout: Layout) -> str:
    """The settings that fit a sandbox and what runs beside it; the rest is as shipped."""
    qos = f'qos = "{SCAVENGE}"\n' if spec.preemption is Preemption.QOS else ""
    return (
        f'[site]\npartitions = ["malleable"]\noperators = ["{layout.user}"]\n{qos}\n'
        f'[tick]\nlock = "{layout.run}/tick.lock"\nslurm_bin = "{slurm.bin_dir}"\n'
        f'state_dir = "{layout.run}/malleable"\n'
    )


def _slurm_conf(spec: SandboxSpec, layout: Layout) -> str:
    parts = (
        _daemon_lines(layout),
        _network_lines(spec, layout),
        _job_lines(spec),
        _accounting_lines(layout),
        _hook_lines(spec, layout),
        _machine_lines(spec, layout),
        [spec.extra_conf.rstrip("\n")] if spec.extra_conf else [],
    )
    return "\n".join(line for part in parts for line in part) + "\n"


def _daemon_lines(layout: Layout) -> list[str]:
    return [
        f"ClusterName={layout.cluster}",
        f"SlurmUser={layout.user}",
        f"SlurmdUser={layout.user}",
        "AuthType=auth/munge",
        f"AuthInfo=socket={layout.munge_socket}",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core",
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
        # The host's own name need not resolve: slurmctld takes "localhost" for itself.
        "SlurmctldHost=localhost(127.0.0.1)",
        f"SlurmctldPort={layout.controller_port}",
        "SlurmctldTimeout=60",
        "SlurmdTimeout=60",
    ]
    if spec.nodes > MANY_NODES:
        lines.append("MessageTimeout=30")  # one host plays them all and answers late
    if layout.is_loopback_only:
        lines.append("CommunicationParameters=NoInAddrAny,NoCtldInAddrAny")
    return lines


def _job_lines(spec: SandboxSpec) -> list[str]:
    parameters = SCHEDULER_PARAMETERS.format(bf_s=spec.backfill_interval_s)
    return [
        f"SchedulerParameters={parameters}",
        f"KillWait={spec.kill_wait_s}",
        "JobRequeue=1",
        "JobFileAppend=1",  # a requeued fragment must not overwrite its log
        f"MinJobAge={MIN_JOB_AGE_S}",
        f"MaxArraySize={MAX_ARRAY_SIZE}",
        f"PreemptType=preempt/{spec.preemption.value}",
        "PreemptMode=REQUEUE",
    ]


def _accounting_lines(layout: Layout) -> list[str]:
    if layout.accounting_port is None:
        return []
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={layout.accounting_port}",
        f"AccountingStoragePass={layout.munge_socket}",  # a munge of its own: its socket
        "AccountingStorageEnforce=associations,limits,qos",
        "JobAcctGatherType=jobacct_gather/none",
        "PriorityType=priority/multifactor",
        "PriorityWeightFairshare=1000",
        "PriorityCalcPeriod=1",  # minutes, the shortest: how soon sshare shows what was used
    ]


def _slurmdbd_conf(layout: Layout) -> str:
    """Only root, or the sandbox's user, is let in: by the database's socket, without a password."""
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


def _machine_lines(spec: SandboxSpec, layout: Layout) -> list[str]:
    small = spec.nodes - spec.large_nodes
    kinds = [_node_line(spec, layout, range(1, small + 1), 1)]
    if spec.large_nodes:
        large = _node_line(spec, layout, range(small + 1, spec.nodes + 1), 2)
        kinds.append(f"{large} Feature=large")
    return [
        *kinds,
        "PartitionName=main Nodes=ALL Default=YES PriorityTier=10 PreemptMode=OFF "
        "MaxTime=INFINITE OverSubscribe=EXCLUSIVE",
        # GraceTime above 0 is enforced by a slow periodic check only (22.05): KillWait is the grace
        "PartitionName=malleable Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=0 "
        "MaxTime=INFINITE OverSubscribe=EXCLUSIVE",
    ]


def _node_line(spec: SandboxSpec, layout: Layout, numbers: range, times: int) -> str:
    first, last = numbers[0], numbers[-1]
    names, ports = f"n{first}", f"{layout.node_port + first - 1}"
    if last > first:
        names, ports = f"n[{first}-{last}]", f"{ports}-{layout.node_port + last - 1}"
    return (
        f"NodeName={names} NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports} "
        f"CPUs={times * spec.cpus} RealMemory={times * spec.memory_mib}"
    )


def _plugstack_conf(spec: SandboxSpec, layout: Layout) -> str:
    arguments = [f"max_restarts={spec.max_restarts}"]
    if spec.job_path is not None:
        arguments.insert(0, f"pythonpath={layout.job_path}")
    return f"optional {layout.spank} {' '.join([*arguments, f'dir={spec.job_dir}'])}\n"
