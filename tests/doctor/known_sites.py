"""A site on which all is well, as facts, and ways to break it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from slurm_hooks.doctor.facts import (
    Accounting,
    Cgroups,
    Facts,
    FileSeen,
    Hook,
    Host,
    JobSeen,
    Line,
    PluginLine,
    Plugstack,
    PythonSeen,
    SharedDirectory,
    SlurmSays,
    Submission,
    Textfile,
    TickSeen,
    known,
)
from slurm_hooks.doctor.gather.slurm import read_slurm
from slurm_hooks.settings.values import Metrics, Settings, Site

GOOD = """NodeName=n1 State=IDLE SlurmdStartTime=1795187104 Comment=OverTimeLimit = 5
NodeName=n2 State=IDLE SlurmdStartTime=1795187104
Configuration data as of 1795287648
BOOT_TIME               = 1795187000
ClusterName             = dbd
Epilog[0]               = /usr/libexec/slurm-malleable/epilog.sh
EpilogSlurmctld         = (null)
JobFileAppend           = 1
JobRequeue              = 1
JobSubmitPlugins        = lua
KillWait                = 30 sec
MaxArraySize            = 1001
MaxJobCount             = 10000
MinJobAge               = 300 sec
OverTimeLimit           = 0 min
PluginDir               = /usr/lib64/slurm
PreemptMode             = REQUEUE
PreemptType             = preempt/partition_prio
PreemptExemptTime       = 00:00:00
ProctrackType           = proctrack/linuxproc
SchedulerParameters     = bf_continue,bf_interval=30
SchedulerType           = sched/backfill
SlurmUser               = slurm(64030)
SlurmctldHost[0]        = ctl
SlurmctldParameters     = (null)
SLURM_CONF              = /etc/slurm/slurm.conf
SLURM_VERSION           = 22.05.8
UnkillableStepTimeout   = 60 sec
"""
MAIN = {
    "Nodes": "n[1-2]",
    "OverTimeLimit": "NONE",
    "PreemptMode": "OFF",
    "PriorityTier": "10",
    "State": "UP",
}
OURS = {
    **MAIN,
    "GraceTime": "0",
    "MaxTime": "UNLIMITED",
    "OverSubscribe": "EXCLUSIVE",
    "PreemptMode": "REQUEUE",
    "PriorityTier": "1",
    "AllowQos": "low",
    "QoS": "low",
}
LONG_AGO = datetime(2026, 11, 1, tzinfo=timezone.utc)
FILE = FileSeen("file", 0o755, 0, "root", LONG_AGO)
DIRECTORY = FileSeen("directory", 0o755, 0, "root", LONG_AGO)
CONF = """ClusterName=c
KillWait=30
PartitionName=main Nodes=ALL Default=YES PriorityTier=10 PreemptMode=OFF
PartitionName=malleable Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE
"""


def answer(
    config: dict[str, str] | None = None,
    ours: dict[str, str] | None = None,
    main: dict[str, str] | None = None,
    more: str = "",
) -> str:
    """The answer of scontrol with some words changed. `more` is added in front."""
    changed = dict(config or {})
    lines = [
        f"{key} = {changed.pop(key)}" if (key := line.split(" ")[0]) in changed else line
        for line in GOOD.splitlines()
    ]
    lines += [f"{key} = {value}" for key, value in changed.items()]
    for name, words, other in (("main", MAIN, main or {}), ("malleable", OURS, ours or {})):
        pairs = " ".join(f"{key}={value}" for key, value in {**words, **other}.items())
        lines.insert(0, f"PartitionName={name} {pairs}")
    return "\n".join([*more.splitlines(), *lines])


def says(asked_at: float = 1795287648.0, **changes: Any) -> SlurmSays:
    """Slurm with some words of `answer` changed."""
    return read_slurm(answer(**changes), ["malleable"], asked_at)


LANES = ("malleable", "parts")
PARTS_CONFIG = {
    "GresTypes": "gpu",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_CORE_MEMORY",
    "TaskPlugin": "task/cgroup,task/affinity",
    "DefMemPerCPU": "2000",
    "CgroupPlugin": "autodetect",
    "ConstrainCores": "no",
    "ConstrainDevices": "yes",
    "ConstrainRAMSpace": "yes",
}
PART_LANE = {"Nodes": "n[1-2]", "PriorityTier": "0", "PreemptMode": "REQUEUE", "State": "UP",
             "OverSubscribe": "NO"}  # fmt: skip


def parts(
    config: dict[str, str] | None = None,
    lane: dict[str, str] | None = None,
    node: str = "",
    on: str = "main,malleable,parts",
    **changes: Any,
) -> dict[str, Any]:
    """A site with fragments on parts of nodes.

    `lane` are words of their partition, `node` words of all nodes, `on` the partitions of n1.
    """
    pairs = " ".join(f"{key}={value}" for key, value in {**PART_LANE, **(lane or {})}.items())
    ours = {"OverSubscribe": "NO", **changes.pop("ours", {})}
    text = answer({**PARTS_CONFIG, **(config or {})}, ours=ours, **changes)
    text = text.replace("NodeName=n1 ", f"NodeName=n1 Partitions={on} {node} ")
    text = text.replace("NodeName=n2 ", f"NodeName=n2 Partitions=main,malleable,parts {node} ")
    said = read_slurm(f"PartitionName=parts {pairs}\n{text}", LANES, 1795287648.0)
    return {"settings": Settings(site=Site(LANES, "parts")), "slurm": said}


def cgroups(**settings: str) -> dict[str, Any]:
    """A site for parts, and a node with these settings in cgroup.conf."""
    return {**parts(), "cgroups": Cgroups("/etc/slurm/cgroup.conf", settings)}


def conf(text: str = CONF) -> tuple[Line, ...]:
    return tuple(
        Line("/etc/slurm/slurm.conf", number, line)
        for number, line in enumerate(text.splitlines(), start=1)
    )


PLUGIN = PluginLine(
    where=Line("/etc/slurm/plugstack.conf", 1, "optional malleable.so"),
    is_required=False,
    plugin="/usr/lib64/slurm/malleable.so",
    plugin_file=FILE,
    arguments={"pythonpath": "/usr/share/slurm-malleable/jobpath", "dir": "%w/.malleable-%U/%C/%A"},
    unknown=(),
    job_path_file=DIRECTORY,
)
QOS = (
    {"Name": "normal", "Preempt": "low", "PreemptMode": "cluster", "UsageFactor": "1.000000"},
    {"Name": "low", "Preempt": "", "PreemptMode": "requeue", "UsageFactor": "0.000000"},
)

GOOD_SITE = Facts(
    host=Host("ctl", 0, "root"),
    settings_path="/etc/slurm-malleable/malleable.toml",
    slurm=says(),
    conf=conf(),
    submission=Submission(
        script="/etc/slurm/job_submit.lua",
        lines="...",
        script_changed=LONG_AGO,
        policy_path="/etc/slurm/malleable_policy.lua",
        policy="return {\n  lease_s = 600,\n}\n",
        policy_changed=LONG_AGO,
        wanted="return {\n  lease_s = 600,\n}\n",
        strangers=(),
        glue="/usr/share/slurm-malleable/lua/malleable_submit.lua",
        glue_is_there=True,
    ),
    cgroups=Cgroups("/etc/slurm/cgroup.conf", {"constraindevices": "yes"}),
    plugstack=Plugstack("/etc/slurm/plugstack.conf", PLUGIN, "/usr/lib64/slurm"),
    hooks=(Hook("Epilog", "/usr/libexec/slurm-malleable/epilog.sh", FILE, "#!/bin/sh\n"),),
    accounting=Accounting(QOS, ({"Account": "a", "User": "u", "MaxSubmit": ""},), {}),
    tick=TickSeen(
        every_s=30.0,
        lock="/run/slurm-malleable/tick.lock",
        directory=replace(DIRECTORY, mode=0o700),
        silent_s=12.0,
        patience_s=300.0,
        timer="active",
        enabled="enabled",
        user="",
    ),
    textfile=Textfile(DIRECTORY, 20.0),
    shared=SharedDirectory("/home/u", "nfs4", "rw,hard,acdirmax=30", "", met=2, of=2),
    has_setpriv=True,
    milp="cbc",
    python=PythonSeen(
        "/opt/py/bin/python", (3, 11, 2), "2.8.0", True, ("malleable",), "/usr/share/x"
    ),
    job=JobSeen(
        7,
        {"JobId": "7", "Partition": "malleable"},
        True,
        (),
        '#!/bin/bash\nsource venv/bin/activate\nexport PYTHONPATH=/x:"$PYTHONPATH"\ntorchrun t.py',
        "epoch 1\n",
    ),
)


def slurm(**changes: Any) -> dict[str, Any]:
    return {"slurm": says(**changes)}


def submission(**changes: Any) -> dict[str, Any]:
    return {"submission": replace(known(GOOD_SITE.submission), **changes)}


def only_users(*names: str, **changes: Any) -> dict[str, Any]:
    """A site whose malleable jobs are for these users alone."""
    return {"settings": Settings(site=Site(users=names)), **submission(**changes)}


def plugin(**changes: Any) -> dict[str, Any]:
    stack = known(GOOD_SITE.plugstack)
    return {"plugstack": replace(stack, ours=replace(PLUGIN, **changes))}


def plugstack(**changes: Any) -> dict[str, Any]:
    return {"plugstack": replace(known(GOOD_SITE.plugstack), **changes)}


def tick(**changes: Any) -> dict[str, Any]:
    return {"tick": replace(known(GOOD_SITE.tick), **changes)}


def textfile(path: str = "/m/a.prom", **changes: Any) -> dict[str, Any]:
    """A site that writes this file for Prometheus."""
    written = replace(known(GOOD_SITE.textfile), **changes)
    return {"settings": Settings(metrics=Metrics(textfile=path)), "textfile": written}


def shared(**changes: Any) -> dict[str, Any]:
    return {"shared": replace(known(GOOD_SITE.shared), **changes)}


def python(**changes: Any) -> dict[str, Any]:
    return {"python": replace(known(GOOD_SITE.python), **changes)}


def job(**changes: Any) -> dict[str, Any]:
    return {"job": replace(known(GOOD_SITE.job), **changes)}


def hook(key: str, value: str, file: Any = FILE, text: Any = "") -> dict[str, Any]:
    return {"hooks": (Hook(key, value, file, text),)}


LAYS = '[ -n "$SPANK_MALLEABLE_ENV" ] && python3 -I /x/preposition --store=/local/env --seconds=60'


def env_store(
    path: str = "/local/env", prolog: Any = LAYS, file: Any = DIRECTORY, **changes: Any
) -> dict[str, Any]:
    """A site with this store in plugstack.conf, and this Prolog."""
    arguments = {**PLUGIN.arguments, **({"env_store": path} if path else {})}
    seen = replace(file, **{"mode": 0o711, **changes}) if path and file else None
    return {
        **plugin(arguments=arguments, env_store_file=seen),
        **hook("Prolog", "/etc/prolog", text=prolog),
    }


def qos(*changes: dict[str, str], name: str = "low", **slurm_changes: Any) -> dict[str, Any]:
    """A site that preempts by QOS. Malleable jobs get the QOS called `name`."""
    rows = tuple({**row, **change} for row, change in zip(QOS, changes))
    facts: dict[str, Any] = {"accounting": Accounting(rows, (), {})}
    config = {
        "PreemptType": "preempt/qos",
        "AccountingStorageType": "accounting_storage/slurmdbd",
    }
    settings = Settings(site=Site(qos=name))
    return {**facts, "settings": settings, "slurm": says(config=config, **slurm_changes)}


def by_database(levels: dict[str, str]) -> dict[str, Any]:
    """A site with slurmdbd whose tick runs as bob, and the database's records of users."""
    config = {"AccountingStorageType": "accounting_storage/slurmdbd"}
    return {
        **tick(user="bob"),
        "slurm": says(config=config),
        "accounting": Accounting((), (), levels),
    }


NO_ANSWER = "`scontrol` gave no answer in 10 s: check slurmctld with `scontrol ping`"
