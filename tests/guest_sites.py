"""Four kinds of sites that have a preemptible lane already, as their documents describe them.

Each has a slurm.conf as this site writes it, and the words of malleable.toml there. The fast tests
turn it into scontrol's answer. The tests on a real Slurm scale it down to four nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slurm_hooks.slurm.scontrol import read_config
from slurm_hooks.slurm.text import expand

_UNITS = {"KillWait": " sec", "MinJobAge": " sec", "UnkillableStepTimeout": " sec"}


@dataclass(frozen=True)
class GuestSite:
    """A site, its lane for malleable jobs as guests, and the partition of an ordinary job above it.

    `small` replaces words of the file for four nodes.
    """

    conf: str
    version: str
    lane: str
    urgent: str
    qos: str = ""
    qos_rows: tuple[dict[str, str], ...] = ()
    small: tuple[tuple[str, str], ...] = ()

    @property
    def lines(self) -> list[str]:
        """The lines of slurm.conf, without comments."""
        return [line for line in self.conf.splitlines() if line and not line.startswith("#")]

    @property
    def settings(self) -> str:
        """The settings that a guest writes."""
        qos = f'qos = "{self.qos}"\n' if self.qos else ""
        return f'[site]\npartitions = ["{self.lane}"]\n{qos}'

    def answer(self, usual: str) -> str:
        """The answer of scontrol there. Values that the file does not name are as usual."""
        config = {**read_config(usual), "SLURM_VERSION": self.version}
        records = []
        for line in self.lines:
            kind, _, rest = line.partition("=")
            if kind == "NodeName":
                names, _, words = rest.partition(" ")
                gres = words.replace("CPUs=", "CPUTot=")
                records += [f"NodeName={name} State=IDLE {gres}" for name in sorted(expand(names))]
            elif kind == "PartitionName":
                records.append(line.replace(" QOS=", " QoS=") + " State=UP")
            else:
                config[kind] = rest + _UNITS.get(kind, "")
        as_of = "Configuration data as of"
        lines = [f"{as_of} {config.pop(as_of)}", *(f"{k:23} = {v}" for k, v in config.items())]
        return "\n".join([*records, *lines])

    def small_conf(self) -> str:
        """The file for a sandbox of four nodes, which brings its own nodes and daemons."""
        text = "\n".join(line for line in self.lines if not line.startswith("NodeName="))
        for old, new in self.small:
            assert old in text, old
            text = text.replace(old, new)
        return text + "\n"


def _qos(name: str, preempts: str = "", **more: Any) -> dict[str, str]:
    row = {"Name": name, "Preempt": preempts, "PreemptMode": "cluster", "GraceTime": "00:00:00"}
    return {**row, "PreemptExemptTime": "", "UsageFactor": "1.000000", **more}


GPU_CLUSTER = GuestSite(
    version="23.02.2",
    lane="lowest",
    urgent="learn",
    conf="""
# 3,000 nodes of 8 GPUs. Jobs share nodes. The scheduler is busy and slow.
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
JobSubmitPlugins=lua
EnforcePartLimits=ANY
MaxArraySize=25000
MaxJobCount=200000
DefMemPerNode=61440
UnkillableStepTimeout=180
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PreemptParameters=send_user_signal
SchedulerParameters=defer,sched_min_interval=5000000,bf_interval=90,bf_max_job_user=128,\
max_rpc_cnt=64,bf_ignore_newly_avail_nodes
NodeName=gpu[0001-3089] CPUs=80 RealMemory=490000 Gres=gpu:8
PartitionName=lowest Nodes=gpu[0001-1631] PriorityTier=20 GraceTime=600 MaxTime=3-00:00:00 \
DefaultTime=00:05:00 OverSubscribe=NO
PartitionName=scavenge Nodes=gpu[1632-3089] PriorityTier=20 GraceTime=0 MaxTime=3-00:00:00 \
DefaultTime=00:05:00 OverSubscribe=NO
PartitionName=learn Nodes=gpu[0001-3089] PriorityTier=30 PreemptMode=OFF MaxTime=3-00:00:00 \
DefaultTime=00:05:00 OverSubscribe=NO Default=YES
PartitionName=priority Nodes=gpu[0001-3089] PriorityTier=40 PreemptMode=OFF MaxTime=3-00:00:00 \
DefaultTime=00:05:00 OverSubscribe=NO
""",
    small=(
        ("GresTypes=gpu\n", ""),
        ("DefMemPerNode=61440\n", "DefMemPerNode=500\n"),
        ("PreemptParameters=send_user_signal\n", ""),  # this key came with 23.02
        (",bf_ignore_newly_avail_nodes", ",bf_ignore_newly_avail_nodes,preempt_send_user_signal"),
        ("gpu[0001-1631]", "n[1-4]"),
        ("gpu[1632-3089]", "n4"),
        ("gpu[0001-3089]", "n[1-4]"),
        ("GraceTime=600", "GraceTime=15"),
    ),
)
DELTA = GuestSite(
    version="24.11.5",
    lane="gpuA100x4-preempt",
    urgent="gpuA100x4",
    conf="""
# Nodes of 4 GPUs, which jobs share. Half the price in the lane.
SelectType=select/cons_tres
SelectTypeParameters=CR_CORE_MEMORY
GresTypes=gpu
DefMemPerCPU=1000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PreemptExemptTime=00:10:00
NodeName=gpua[001-100] CPUs=64 RealMemory=250000 Gres=gpu:a100:4
PartitionName=gpuA100x4 Nodes=gpua[001-100] PriorityTier=100 PreemptMode=OFF MaxTime=2-00:00:00 \
DefaultTime=00:30:00 OverSubscribe=NO
PartitionName=gpuA100x4-interactive Nodes=gpua[001-100] PriorityTier=1000 PreemptMode=OFF \
MaxTime=01:00:00 DefaultTime=00:30:00 OverSubscribe=NO
PartitionName=gpuA100x4-preempt Nodes=gpua[001-100] PriorityTier=30 GraceTime=300 \
MaxTime=2-00:00:00 DefaultTime=00:30:00 OverSubscribe=NO
""",
    small=(
        ("GresTypes=gpu\n", ""),
        ("gpua[001-100]", "n[1-4]"),
        ("GraceTime=300", "GraceTime=15"),
        ("PreemptExemptTime=00:10:00", "PreemptExemptTime=00:00:20"),
    ),
)
QOS_LANE = GuestSite(
    version="25.11.8",
    lane="gpu_b1",
    urgent="gpu_b1",
    qos="low",
    qos_rows=(
        _qos("normal", "low"),
        _qos("high", "low,normal"),
        _qos("low", PreemptExemptTime="02:00:00", PreemptMode="requeue"),
    ),
    conf="""
# Nodes of 4 GPUs, partitions by length. The QOS of a job decides who preempts it.
SelectType=select/cons_tres
SelectTypeParameters=CR_CORE_MEMORY
GresTypes=gpu
DefMemPerCPU=2000
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageEnforce=associations,limits,qos
PreemptType=preempt/qos
PreemptMode=REQUEUE
NodeName=kn[001-160] CPUs=64 RealMemory=512000 Gres=gpu:l40s:4
PartitionName=gpu_b1 Nodes=kn[001-160] PriorityTier=1 MaxTime=03:00:00 OverSubscribe=NO
PartitionName=gpu_b2 Nodes=kn[001-120] PriorityTier=1 MaxTime=12:00:00 OverSubscribe=NO
PartitionName=gpu_b3 Nodes=kn[001-080] PriorityTier=1 MaxTime=1-00:00:00 OverSubscribe=NO
""",
    small=(
        ("GresTypes=gpu\n", ""),
        ("DefMemPerCPU=2000\n", "DefMemPerCPU=500\n"),
        ("kn[001-160]", "n[1-4]"),
        ("kn[001-120]", "n[1-3]"),
        ("kn[001-080]", "n[1-2]"),
    ),
)
ALIKE = GuestSite(
    version="24.11.5",
    lane="preempt",
    urgent="gpu",
    conf="""
# 16 nodes of 8 GPUs. The portal calls jobs preemptible, and all tiers are the same.
SelectType=select/cons_tres
SelectTypeParameters=CR_CORE_MEMORY
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=b[01-16] CPUs=192 RealMemory=2000000 Gres=gpu:b200:8 CoreSpecCount=4
PartitionName=gpu Nodes=b[01-16] PriorityTier=1 PreemptMode=OFF MaxTime=3-00:00:00 OverSubscribe=NO
PartitionName=debug Nodes=b[01-02] PriorityTier=1 PreemptMode=OFF MaxTime=01:00:00 OverSubscribe=NO
PartitionName=preempt Nodes=b[01-16] PriorityTier=1 MaxTime=3-00:00:00 OverSubscribe=NO
""",
    small=(("GresTypes=gpu\n", ""), ("b[01-16]", "n[1-4]"), ("b[01-02]", "n[1-2]")),
)
SITES = {"gpu cluster": GPU_CLUSTER, "delta": DELTA, "qos lane": QOS_LANE, "alike": ALIKE}
