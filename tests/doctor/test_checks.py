"""Each check with a good site and with broken sites."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from known_sites import (
    DIRECTORY,
    FILE,
    GOOD_SITE,
    LAYS,
    LONG_AGO,
    NO_ANSWER,
    answer,
    by_database,
    cgroups,
    conf,
    env_store,
    hook,
    job,
    only_users,
    parts,
    plugin,
    plugstack,
    python,
    qos,
    says,
    shared,
    slurm,
    submission,
    textfile,
    tick,
)

from slurm_hooks.doctor.catalogue import CHECKS
from slurm_hooks.doctor.facts import SILENT, Accounting, Facts, Hook, Unread, known
from slurm_hooks.doctor.finding import Change, Paste
from slurm_hooks.doctor.gather.slurm import read_slurm
from slurm_hooks.doctor.remedies import Remedies
from slurm_hooks.doctor.run import run
from slurm_hooks.settings.values import Settings, Site, parse

ADMINS = Path(__file__).resolve().parents[2] / "docs" / "admins"
PATIENT = {"BatchStartTimeout": "70 sec"}
SMALL = {"settings": parse("[request]\nmax_fragments = 2000\n")}
NO_POOLS = {"settings": parse('[request]\nengines = ["torchrun"]\n')}
LONG_LEASES = {"settings": parse("[lease]\nlength_s = 50001\n")}
EVERY_HALF_MINUTE = {"settings": parse("[tick]\nevery_s = 30\n")}
RARE_TICKS = {
    "settings": parse("[tick]\nevery_s = 300\n[lease]\nlength_s = 3600\nshortest_hole_s = 600\n")
}
LIMITED = Accounting(
    ({"Name": "low", "MaxSubmitPU": "10"},), ({"User": "u", "GrpSubmit": "9"},), {}
)
LAB = {"Account": "lab", "ParentName": "root", "GrpTRES": "node=2"}
SPARE = ({"Account": "root"}, {"Account": "spare", "ParentName": "root"},
         {"Account": "spare", "User": "u"})  # fmt: skip


def limits(
    *associations: dict[str, str],
    qos: tuple[dict[str, str], ...] = (),
    enforced: str = "associations,limits,qos",
    account: str = "",
    site_qos: str = "",
) -> dict[str, Any]:
    """A site whose accounting has these rows, and enforces them."""
    return {
        **slurm(config={"AccountingStorageEnforce": enforced}),
        "accounting": Accounting(qos, associations, {}),
        "settings": Settings(site=Site(qos=site_qos, account=account)),
    }


OF_ANOTHER_SITE = ("plugin-on-nodes", "preempt-qos", "usage-factor")
OTHER_CLUSTER = {"Cluster": "another", "Account": "a", "MaxSubmit": "5"}
SITES_OWN = Hook("Epilog", "/etc/slurm/epilog", FILE, "exit 0")
DAY = timedelta(days=1)
MARK = "malleable{{min=2,max=4,unit=1,engine={},frags=4,lease=600,hole=120}}"
# These checks cover settings that are unset as shipped, so they have no finding.
PARTS = (
    "part-nodes",
    "part-isolation",
    "part-cgroups",
    "part-memory",
    "part-packing",
    "part-epilog",
)
OPTIONAL = (
    *PARTS,
    "site-account",
    "metrics-file",
)
# Of settings alone, which are known without any fact.
OF_SETTINGS = ("settings", "enforced-limits", "lease-margin")

# check, change of the good site, severity, and a pattern of the finding and its remedy
BROKEN: tuple[tuple[str, dict[str, Any], str, str], ...] = (
    ("settings", {"settings_faults": ("lease.a: unknown key",)}, "error", r"lease.a: unknown key"),
    ("slurm-answers", {"slurm": SILENT, "silence": NO_ANSWER}, "error", "gave no answer"),
    ("release", slurm(config={"SLURM_VERSION": "23.02.4"}), "warning", r"23\.02\.4 is not"),
    ("release", slurm(config={"SLURM_VERSION": "22.05.9"}), "note", r"22\.05\.8, not .* 22\.05\.9"),
    ("clocks", slurm(asked_at=1795287748.0), "error", "100 s ahead"),
    ("clocks", slurm(asked_at=1795287638.0), "warning", "10 s behind"),
    (
        "clocks",
        slurm(more="NodeName=n3 State=IDLE SlurmdStartTime=1795288000"),
        "error",
        r"1 node is ahead of slurmctld's: n3",
    ),
    (
        "partition",
        {
            **slurm(more="", ours={"State": "DOWN"}),
            "conf": conf("PartitionName=malleable Nodes=ALL State=DOWN"),
        },
        "warning",
        r"malleable is DOWN(?!.*scontrol update).*State=UP",
    ),
    (
        "partition",
        slurm(ours={"State": "INACTIVE"}),
        "warning",
        r"is INACTIVE.*scontrol update PartitionName=malleable State=UP",
    ),
    ("partition", slurm(ours={"Nodes": "(null)"}), "error", r"no nodes.*Nodes=ALL"),
    (
        "preempt-type",
        slurm(config={"PreemptType": "preempt/none"}),
        "error",
        r"no job can.*PreemptType=preempt/partition_prio",
    ),
    ("preempt-mode", slurm(config={"PreemptMode": "OFF"}), "error", r"PreemptMode=REQUEUE"),
    (
        "preempt-mode",
        slurm(ours={"PreemptMode": "CANCEL"}),
        "error",
        r"PartitionName=malleable PreemptMode=CANCEL: .* would be lost .*PreemptMode=REQUEUE",
    ),
    ("preempt-mode", slurm(ours={"PreemptMode": "OFF"}), "error", r"malleable PreemptMode=OFF"),
    (
        "priority-tier",
        slurm(main={"PriorityTier": "1"}),
        "error",
        r"malleable PriorityTier=1: no partition .*: main \(1\) PartitionName=main .*Tier=2",
    ),
    ("priority-tier", slurm(ours={"PriorityTier": "10"}), "error", r"PriorityTier=11"),
    (
        "priority-tier",
        slurm(more="PartitionName=low PriorityTier=1 Nodes=n1"),
        "warning",
        r"low: PriorityTier=1 is not above the tier of malleable \(1\).* the end of leases",
    ),
    (
        "others-preempt",
        slurm(more="PartitionName=low PriorityTier=5 PreemptMode=REQUEUE Nodes=n1"),
        "note",
        r"low: PreemptMode=REQUEUE.*PreemptMode=OFF",
    ),
    ("preempt-qos", qos({"Preempt": ""}, {}), "error", r"modify qos normal set Preempt\+=low"),
    ("preempt-qos", qos({}, {"PreemptMode": "cancel"}), "error", "set PreemptMode=requeue"),
    ("preempt-qos", qos({}, {}, name=""), "error", r"site\.qos is not set"),
    ("preempt-qos", qos({}, {}, name="none"), "error", "sacctmgr -i add qos none"),
    (
        "preempt-qos",
        {**qos({}, {}, name="none"), "slurm": says()},
        "error",
        "sacctmgr -i add qos none",
    ),
    ("longest-wait", slurm(ours={"GraceTime": "600"}), "note", "up to 11 min .*: grace|lease"),
    (
        "longest-wait",
        slurm(config={"PreemptExemptTime": "00:05:00"}),
        "note",
        "partition malleable: .* up to 5 min 30 s .*: PreemptExemptTime 5 min, KillWait 30 s",
    ),
    ("longest-wait", slurm(config={"PreemptExemptTime": "odd"}), "warning", "=odd: not a time"),
    (
        "longest-wait",
        qos({}, {"GraceTime": "00:00:30", "PreemptExemptTime": "00:05:00"}),
        "note",
        "up to 6 min 30 s .*: PreemptExemptTime 5 min, grace 30 s, 30 s until Slurm's check, Kill",
    ),
    ("over-subscribe", slurm(ours={"OverSubscribe": "FORCE:4"}), "error", r"FORCE:4.*=EXCLUSIVE"),
    ("kill-wait", slurm(config={"KillWait": "300 sec"}), "warning", r"=300.*KillWait=30"),
    ("over-time-limit", slurm(config={"OverTimeLimit": "5 min"}), "error", r"=5 .*TimeLimit=0"),
    ("over-time-limit", slurm(config={"OverTimeLimit": "UNLIMITED"}), "error", r"=UNLIMITED"),
    ("over-time-limit", slurm(ours={"OverTimeLimit": "3"}), "error", r"=3 "),
    (
        "lease-margin",
        {"settings": parse("[lease]\nmargin_s = 20\n")},
        "warning",
        r"= 20 .*margin_s = 60",
    ),
    (
        "farewell",
        {"settings": parse("[lease]\nfarewell_s = 29.5\n")},
        "warning",
        r"= 29.5 with KillWait=30 .*farewell_s = 29",
    ),
    ("farewell", slurm(config={"KillWait": "2 sec"}), "warning", r"= 2 with.*farewell_s = 1"),
    ("job-requeue", slurm(config={"JobRequeue": "0"}), "note", r"JobRequeue=1"),
    ("job-file-append", slurm(config={"JobFileAppend": "0"}), "warning", r"JobFileAppend=1"),
    ("min-job-age", slurm(config={"MinJobAge": "3600 sec"}), "warning", r"3600 s.*=300"),
    ("min-job-age", slurm(config={"MinJobAge": "0 sec"}), "warning", r"forever"),
    (
        "min-job-age",
        {**EVERY_HALF_MINUTE, **slurm(config={"MinJobAge": "60 sec"})},
        "warning",
        r"at least 120 s.*=300",
    ),
    ("min-job-age", RARE_TICKS, "warning", r"at least 1200 s.*MinJobAge=1200"),
    (
        "min-job-age",
        slurm(config={"MinJobAge": "200 sec", "MaxJobCount": "1500"}),
        "warning",
        r"kept for 200 s.*raise MaxJobCount to 2000",
    ),
    (
        "min-job-age",
        {**EVERY_HALF_MINUTE, **slurm(config={"MinJobAge": "60 sec", "MaxJobCount": "500"})},
        "warning",
        r"raise MaxJobCount to 3000.*MinJobAge=300",
    ),
    (
        "min-job-age",
        {**RARE_TICKS, **slurm(config={"MinJobAge": "1200 sec"})},
        "warning",
        r"kept for 1200 s.*raise MaxJobCount to 12000",
    ),
    ("unkillable", slurm(config={"UnkillableStepTimeout": "10"}), "warning", r"10 is shorter"),
    ("max-array-size", SMALL, "warning", r"MaxArraySize=1001 allows 1000.*MaxArraySize=2001"),
    (
        "request-rate",
        slurm(config={"SlurmctldParameters": "rl_enable,rl_bucket_size=40,enable_configless"}),
        "warning",
        r"allows a user 160 requests .* 64 fragments makes 320 .*"
        r"SlurmctldParameters=rl_enable,enable_configless,rl_bucket_size=200",
    ),
    ("max-job-count", slurm(config={"MaxJobCount": "100"}), "warning", r"1 malleable.*=10000"),
    (
        "max-job-count",
        slurm(config={"MaxJobCount": "5000"}),
        "warning",
        r"5 malleable jobs of 1000 elements \(request.max_workers\)",
    ),
    ("submit-limits", {"accounting": LIMITED}, "note", r"qos low: MaxSubmitPU=10 is below"),
    ("submit-limits", {"accounting": LIMITED}, "note", r"association u: GrpSubmit=9"),
    (
        "running-limits",
        limits(LAB),
        "warning",
        r"association lab: GrpTRES=node=2.*add account",
    ),
    ("running-limits", limits(LAB, enforced="safe"), "warning", r'account = "malleable"'),
    (
        "running-limits",
        limits({"Account": "lab", "User": "u", "MaxJobs": "9"}),
        "warning",
        r"association lab/u: MaxJobs=9",
    ),
    (
        "running-limits",
        limits(qos=({"Name": "normal", "MaxTRESPU": "license/x=1,gres/gpu=4"},)),
        "warning",
        r"qos normal: MaxTRESPU=license/x=1,gres/gpu=4.*add qos malleable",
    ),
    (
        "running-limits",
        limits({"Account": "root", "GrpJobs": "50"}, *SPARE[1:], account="spare"),
        "warning",
        r"above account spare: root: GrpJobs=50.*give spare a parent",
    ),
    ("running-limits", limits(*([LAB] * 5)), "warning", r"node=2, lab: GrpTRES=node=2 and 2 more"),
    ("site-account", limits(LAB, account="spare"), "error", r"no account spare.*add account spare"),
    ("site-account", limits(*SPARE[:2], account="spare"), "error", r"no user.*account=spare"),
    ("usage-factor", qos({}, {"UsageFactor": "1"}), "note", r"modify qos low set UsageFactor=0"),
    (
        "preempt-type",
        slurm(config={"PreemptType": "preempt/none", "PreemptMode": "OFF"}),
        "error",
        "PreemptMode=REQUEUE",
    ),
    ("usage-factor", {}, "note", r'add qos malleable set UsageFactor=0.*qos = "malleable"'),
    ("partition-time", slurm(ours={"MaxTime": "00:01:00"}), "error", r"refuses.*=INFINITE"),
    ("partition-time", slurm(ours={"MaxTime": "00:05:00"}), "note", r"leases there last MaxTime$"),
    ("enforced-limits", slurm(config={"AccountingStorageEnforce": "safe"}), "note", "GrpTRESMins"),
    (
        "scheduler-type",
        slurm(config={"SchedulerType": "sched/builtin"}),
        "error",
        "=sched/backfill",
    ),
    ("bf-window", LONG_LEASES, "warning", r"bf_window=1667"),
    (
        "bf-window",
        slurm(config={"SchedulerParameters": "bf_continue,bf_window=10"}),
        "warning",
        r"SchedulerParameters=bf_continue,bf_window=1440",
    ),
    (
        "bf-interval",
        slurm(config={"SchedulerParameters": "bf_interval=600,bf_continue"}),
        "warning",
        r"SchedulerParameters=bf_continue,bf_interval=30",
    ),
    (
        "job-submit-plugin",
        slurm(config={"JobSubmitPlugins": "require_timelimit"}),
        "error",
        r"JobSubmitPlugins=require_timelimit,lua",
    ),
    ("job-submit-plugin", slurm(config={"JobSubmitPlugins": "(null)"}), "error", r"Plugins=lua"),
    ("job-submit-chain", submission(lines=None), "error", r"cp /usr/share/.*/job_submit.lua"),
    ("job-submit-chain", submission(glue=""), "error", r'pcall\(dofile, "/usr/share'),
    ("job-submit-chain", submission(glue_is_there=False), "error", "which is missing"),
    ("policy", submission(policy=None), "error", r"malleable render lua -o .* && touch"),
    ("policy", submission(wanted="  lease_s = 900,\n"), "warning", r"\(lease_s differ\)"),
    ("policy-loaded", submission(policy_changed=LONG_AGO + 30 * DAY), "warning", "touch /etc"),
    ("operators", submission(strangers=("bob",)), "warning", "bob is not a user"),
    ("operators", only_users("ann", "bob", strangers=("bob",)), "warning", "bob is not a user"),
    ("operators", only_users("bob", strangers=("bob",)), "error", "bob is not a user"),
    ("operators", tick(user="bob"), "error", r'operators = \["root", "slurm", "bob"\]'),
    ("plugstack", plugstack(ours=None), "error", r"optional /usr/lib64/slurm/malleable.so .*dir="),
    ("plugstack", plugin(is_required=True), "warning", r"optional /usr/lib64"),
    ("plugstack", plugin(unknown=("python",)), "warning", r"ignores: python"),
    ("plugstack", plugin(arguments={"dir": "/s/%A"}), "error", r"has no %U"),
    ("plugin-file", plugin(plugin_file=None), "error", "not on this host"),
    ("plugin-file", plugin(plugin_file=replace(FILE, mode=0o700)), "error", "chmod a.rX"),
    ("plugin-release", plugin(tested=((24, 11), (26, 5))), "error", r"24\.11, 26\.05, not 22\.05"),
    ("job-path", plugin(job_path_file=None), "error", "not on this host"),
    ("job-path", plugin(arguments={}), "error", "no pythonpath="),
    (
        "job-path",
        plugin(job_path_file=replace(DIRECTORY, is_reachable=False)),
        "error",
        "every user",
    ),
    ("plugin-on-nodes", {}, "note", r"cannot check the 2 compute nodes.*doctor --node"),
    (
        "plugin-on-nodes",
        slurm(config={"SlurmctldParameters": "enable_configless"}),
        "note",
        "configless",
    ),
    ("pyxis", plugstack(pyxis="/p.so", pyxis_version=(0, 20, 0)), "warning", r"0\.20\.0"),
    ("pyxis", plugstack(pyxis="/p.so"), "note", "cannot be read"),
    ("epilog", {"hooks": ()}, "warning", r"no Epilog.*Epilog=/usr/libexec"),
    ("epilog", hook("Epilog", "/etc/slurm/epilog", text="exit 0"), "warning", "does not run ours"),
    ("epilog", hook("Epilog", "/etc/epilog.d/*", None, None), "note", "pattern"),
    (
        "epilog-readable",
        hook("Epilog", "/x/slurm-malleable/epilog.sh", replace(FILE, is_reachable=False)),
        "warning",
        "every user",
    ),
    ("environments-laid", env_store(prolog="exit 0"), "warning", "no Prolog copies"),
    ("environments-laid", env_store(prolog="# preposition"), "warning", "no Prolog copies"),
    ("environments-laid", {**env_store(), "hooks": ()}, "warning", "no Prolog copies"),
    ("environments-laid", env_store(path=""), "warning", "add env_store=/local/env to"),
    ("environments-laid", env_store(path="/local/other"), "warning", "copies environments to /loc"),
    ("environments-store", env_store(mode=0o777), "error", "only root may change"),
    ("environments-store", env_store(mode=0o711, uid=7), "error", "install -d -m 711"),
    ("environments-store", env_store(mode=0o700), "warning", "users cannot enter"),
    (
        "environments-store",
        env_store(path="/tmp/env"),
        "warning",
        "old files there are often removed",
    ),
    (
        "environments-time",
        {**env_store(), **slurm(config={"PrologEpilogTimeout": "60", **PATIENT})},
        "error",
        "PrologEpilogTimeout=120",
    ),
    (
        "environments-time",
        {**env_store(), **slurm(config={"BatchStartTimeout": "10 sec"})},
        "warning",
        "BatchStartTimeout=70",
    ),
    (
        "environments-time",
        {**env_store(prolog=f"{LAYS} 2>&1 | logger"), **slurm(config=PATIENT)},
        "note",
        "Prolog pipes",
    ),
    ("prolog", hook("Prolog", "/etc/prolog", None), "warning", "not on this host"),
    (
        "prolog",
        {
            **hook("Prolog", "/etc/prolog.d/*", None),
            **slurm(config={"SlurmctldParameters": "enable_configless"}),
        },
        "warning",
        "configless",
    ),
    (
        "slurmctld-hooks",
        hook("EpilogSlurmctld", "/e", text="sleep 5"),
        "warning",
        "up to 1000.*sleeps",
    ),
    ("slurmctld-hooks", hook("PrologSlurmctld", "/p", None, None), "note", "once for each"),
    ("last-tick", tick(silent_s=None), "error", "no tick has ever.*reconcile --dry-run"),
    ("last-tick", tick(silent_s=3600.0), "error", "for 60 min.*journalctl"),
    ("last-tick", tick(silent_s=75.0), "warning", "no tick for 75 s .expected every 30 s.: no job"),
    ("timer", tick(timer="inactive", silent_s=None), "error", "is inactive.*enable --now"),
    (
        "timer",
        tick(timer="", silent_s=None),
        "error",
        "nor a file of cron starts.* slurm told=.*cron",
    ),
    ("timer", tick(timer=""), "note", "but ticks come"),
    ("timer", tick(enabled="disabled"), "warning", "after a reboot.*enable"),
    ("timer", tick(cron="/etc/cron.d/x"), "warning", "both start ticks.*rm /etc/cron.d/x"),
    ("lock-directory", tick(directory=replace(DIRECTORY, mode=0o777)), "error", "chmod go-w /run"),
    ("lock-directory", tick(directory=FILE), "error", "not a directory"),
    ("rights", by_database({"bob": "Operator"}), "error", "level is Operator.*modify user bob"),
    ("rights", by_database({}), "error", "does not have.*add user bob account=root"),
    (
        "rights",
        {**tick(user="bob"), "accounting": Unread("none")},
        "error",
        "neither root nor.*User=slurm.*tmpfiles.*--create.*chown -R slurm: ",
    ),
    (
        "rights",
        {**tick(user="bob", timer="", cron="/etc/cron.d/x"), "accounting": Unread("none")},
        "error",
        "neither root nor.* slurm told=.*>/etc/cron.d/slurm-malleable.*chown -R slurm: ",
    ),
    ("timer", tick(timer="", cron="/c", has_cron=False), "warning", "no cron daemon runs here"),
    ("timer", tick(timer="", cron="/c", has_cron=False, silent_s=None), "error", "no cron daemon"),
    ("metrics-file", textfile("/m/a.txt"), "warning", r'textfile = "/m/a.txt.prom"'),
    ("metrics-file", textfile(directory=None), "error", "directory does not exist"),
    ("metrics-file", textfile(age_s=None), "error", "not written by the last"),
    ("metrics-file", textfile(age_s=3600.0), "error", "not written by the last"),
    ("solver", {"milp": ""}, "warning", "no MILP solver.*install coinor-cbc"),
    ("one-host", slurm(config={"SlurmctldHost[1]": "ctl2"}), "note", "backup.*ExecCondition"),
    ("hard-links", shared(trouble="link: Operation not permitted"), "error", "not permitted"),
    ("hard-links", shared(winners=2), "error", "2 writers"),
    ("hard-links", shared(kind="vfat"), "error", "is vfat"),
    ("shared-directory", shared(kind="ext4", met=1, of=1), "warning", "other nodes do not see"),
    ("shared-directory", shared(options="rw,acdirmax=300"), "warning", "acdirmax=300"),
    ("shared-directory", shared(options="rw,soft"), "warning", "mounted soft"),
    ("shared-directory", shared(options="lookupcache=all"), "note", "lookupcache"),
    ("shared-directory", shared(kind="lustre", options="localflock"), "note", "localflock"),
    ("locks", shared(no_locks="Function not implemented"), "note", "flock"),
    ("nodes-meet", shared(met=1, of=4), "error", r"1 of 4 tasks"),
    ("setpriv", {"has_setpriv": False}, "warning", "util-linux"),
    ("python-version", python(version=(3, 8, 1)), "error", r"Python 3\.8\.1"),
    ("torch-version", python(torch=""), "error", "no torch"),
    ("torch-version", python(torch="2.5.1+cu121"), "error", r"torch 2\.5\.1"),
    ("torch-version", python(torch="2.20.0"), "warning", "newer than"),
    ("rendezvous", python(has_rendezvous=False), "error", "lacks distributed"),
    ("rendezvous", python(handlers=()), "error", "no torchrun.handlers"),
    ("job-known", job(words={}), "error", "has no job 7"),
    ("job-known", job(is_malleable=False), "error", "ordinary job in partition malleable"),
    ("job-reason", job(lines=("3 other nodes: busy",)), "note", "3 other"),
    ("job-reason", job(lines=("busy",), lacks=("has 1 node and needs 2",)), "warning", "needs 2"),
    ("job-script", job(script="export PYTHONPATH=/x\ntorchrun t"), "error", "overwrites"),
    ("job-script", job(script="torchrun t | tee log"), "warning", "pipefail"),
    ("job-script", job(script="python train.py"), "note", "does not call torchrun"),
    (
        "job-script",
        job(script="python t", words={"AdminComment": MARK.format("x,traits=gang+daemon")}),
        "note",
        "does not call torchrun",
    ),
    ("part-nodes", parts(lane={"PriorityTier": "1"}), "error", r"malleable \(1\).*Tier=0"),
    ("part-nodes", parts(lane={"OverSubscribe": "EXCLUSIVE"}), "error", "parts .*Subscribe=NO"),
    ("part-nodes", parts(ours={"OverSubscribe": "EXCLUSIVE"}), "error", "malleable .*Subscribe=NO"),
    ("part-nodes", parts(main={"OverSubscribe": "YES:4"}), "error", "main .*OverSubscribe=NO"),
    ("part-nodes", parts({"SelectType": "select/linear"}), "error", "forgets all jobs"),
    ("part-nodes", parts({"PreemptType": "preempt/qos"}), "error", 'part_nodes = "QOS"'),
    (
        "part-nodes",
        {**parts(), "settings": Settings(site=Site(part_nodes="partz", qos="low"))},
        "error",
        'partz is not in site.partitions.*part_nodes = "PARTITION"',
    ),
    ("part-nodes", parts({"ConstrainDevices": "no"}), "error", "GPUs .*ConstrainDevices=yes"),
    ("part-nodes", parts({"PreemptParameters": "youngest_first"}), "error", "PreemptParameters="),
    (
        "part-nodes",
        parts(on="main,malleable"),
        "note",
        r"1 node in only malleable or only .*Nodes=n\[1-2\]",
    ),
    (
        "part-isolation",
        parts({"CgroupPlugin": "disabled", "TaskPlugin": "task/none"}),
        "error",
        "no cgroups.*TaskPlugin=task/cgroup.*ConstrainDevices=yes.*ConstrainRAMSpace=yes",
    ),
    ("part-cgroups", cgroups(), "error", "ConstrainDevices=yes.*ConstrainRAMSpace=yes"),
    (
        "part-cgroups",
        cgroups(constraindevices="yes", constrainramspace="no"),
        "error",
        "/etc/slurm/cgroup.conf: ConstrainRAMSpace=no: .*ConstrainRAMSpace=yes",
    ),
    ("part-isolation", parts({"TaskPlugin": "task/cgroup"}), "warning", "ConstrainCores=yes"),
    (
        "part-memory",
        parts({"DefMemPerCPU": "UNLIMITED"}, node="RealMemory=256000 CPUTot=32"),
        "warning",
        "main: a job without --mem .*PartitionName=main .*DefMemPerCPU=8000",
    ),
    ("part-packing", parts(main={"LLN": "YES"}), "note", "main: LLN=YES"),
    ("part-packing", parts({"SelectTypeParameters": "CR_CORE_MEMORY,CR_LLN"}), "note", "CR_LLN"),
    ("part-packing", parts(node="RestrictedCoresPerGPU=4(0-3)"), "note", "2 nodes .* like n1"),
    (
        "part-epilog",
        {**parts(), **hook("Epilog", "/e", text="#!/bin/sh\npkill -KILL -U $SLURM_JOB_UID\n")},
        "warning",
        "Epilog=/e ends all processes",
    ),
    (
        "part-epilog",
        {**parts(), **hook("Prolog", "/p", text="loginctl terminate-user $SLURM_JOB_USER")},
        "warning",
        "Prolog=/p ends all",
    ),
    ("over-subscribe", parts(ours={"OverSubscribe": "FORCE:4"}), "error", "OverSubscribe=NO"),
    ("job-script", job(script="torchrun t"), "note", "no environment"),
    ("job-log", job(log="x\nRuntimeError: CUDA out of memory\n"), "note", "ran out of memory"),
)
# well as well
FINE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("clocks", slurm(asked_at=1795287649.0)),
    ("clocks", slurm(more="NodeName=n3 State=IDLE SlurmdStartTime=1")),  # a node behind is not seen
    (
        "job-script",
        job(
            script=". venv/bin/activate\npython worker.py",
            words={"AdminComment": MARK.format("pool")},
        ),
    ),
    (
        "job-script",
        job(
            script=". venv/bin/activate\npython worker.py",
            words={"AdminComment": MARK.format("ours,traits=gang+rounds")},
        ),
    ),
    ("priority-tier", slurm(main={"PriorityTier": "1", "Nodes": "n[5-8]"})),
    ("priority-tier", slurm(main={"PriorityTier": "1", "Nodes": "n[4-"})),
    ("preempt-qos", qos({}, {})),
    (  # site.part_nodes is a partition that site.partitions lacks, and no QOS
        "preempt-qos",
        {**qos({}, {}), **slurm(), "settings": Settings(site=Site(part_nodes="parts", qos="low"))},
    ),
    ("usage-factor", qos({}, {})),
    ("over-time-limit", slurm(config={"OverTimeLimit": "5 min"}, ours={"OverTimeLimit": "0"})),
    ("over-time-limit", slurm(main={"OverTimeLimit": "3"})),
    ("longest-wait", slurm(config={"PreemptExemptTime": "NONE"})),
    ("longest-wait", qos({}, {}, ours={"GraceTime": "10"})),  # the QOS's number counts
    # A lane that says REQUEUE itself, whatever others do.
    ("preempt-mode", slurm(config={"PreemptMode": "CANCEL"})),
    ("preempt-mode", slurm(config={"PreemptMode": "GANG,SUSPEND"})),
    ("over-subscribe", slurm(ours={"OverSubscribe": "NO"})),  # job_submit asks for whole nodes
    ("min-job-age", slurm(config={"MinJobAge": "3600 sec", "MaxJobCount": "100000"})),
    ("kill-wait", slurm(config={"KillWait": "60 sec"})),
    ("farewell", slurm(config={"KillWait": "3 sec"})),
    ("farewell", {"settings": parse("[lease]\nfarewell_s = 29\n")}),
    ("submit-limits", {"accounting": Accounting((), (OTHER_CLUSTER,), {})}),
    ("request-rate", slurm(config={"SlurmctldParameters": "rl_bucket_size=1"})),
    (
        "request-rate",
        slurm(config={"SlurmctldParameters": "rl_enable,rl_refill_rate=10,rl_refill_period=2"}),
    ),
    ("max-job-count", {**NO_POOLS, **slurm(config={"MaxJobCount": "5000"})}),
    ("running-limits", limits(LAB, enforced="associations")),
    ("running-limits", limits(LAB, *SPARE, account="spare")),
    ("running-limits", limits(qos=({"Name": "normal", "GrpJobs": "5"},), site_qos="low")),
    ("running-limits", limits({"Account": "lab", "GrpTRES": "license/x=3"})),
    ("running-limits", limits({**LAB, "Cluster": "another"})),
    ("site-account", limits(*SPARE, account="Spare")),
    ("job-submit-plugin", slurm(config={"JobSubmitPlugins": "job_submit/lua"})),
    ("policy-loaded", {**submission(policy_changed=LONG_AGO + DAY)}),  # before slurmctld started
    ("epilog", {"hooks": (), **slurm(config={"ProctrackType": "proctrack/cgroup"})}),
    ("epilog", {"hooks": (SITES_OWN, *known(GOOD_SITE.hooks))}),  # 24.11 runs both
    ("epilog", hook("Epilog", "/etc/e", text="/usr/libexec/slurm-malleable/epilog.sh")),
    ("environments-laid", env_store()),
    ("environments-laid", env_store(path="", prolog="exit 0")),
    ("environments-laid", env_store(path="", prolog=None)),
    ("environments-store", env_store()),
    (
        "environments-time",
        {**env_store(), **slurm(config={"PrologEpilogTimeout": "61", **PATIENT})},
    ),
    ("plugin-release", plugin(tested=((22, 5), (24, 11)))),
    ("plugin-release", plugin(tested=((24, 11),), arguments={"untested": "use"})),
    ("shared-directory", shared(kind="ext4", met=2, of=2)),
    ("pyxis", plugstack(pyxis="/p.so", pyxis_version=(0, 24, 0))),
    ("timer", tick(timer="", cron="/etc/cron.d/slurm-malleable")),
    *((check, parts()) for check in PARTS if check != "part-cgroups"),
    ("part-cgroups", cgroups(constraindevices="yes", constrainramspace="True")),
    ("part-isolation", parts({"TaskPlugin": "task/cgroup", "ConstrainCores": "yes"})),
    ("part-memory", parts({"DefMemPerCPU": "0"}, main={"JobDefaults": "DefMemPerGPU=16000"})),
    ("part-memory", parts({"DefMemPerCPU": "0"}, main={"DefMemPerNode": "4000"})),
    ("part-epilog", {**parts(), **hook("Epilog", "/e", text="# pkill -u $SLURM_JOB_USER\n")}),
    ("part-epilog", {**parts(), **hook("Epilog", "/e", text="pkill -P $pid; rm -rf /x\n")}),
    ("part-epilog", {**parts(), **hook("Epilog", "/e", text="squeue -u $U\npkill -U $U\n")}),
    ("over-subscribe", parts(lane={"OverSubscribe": "FORCE:1"})),  # part-nodes checks that
    ("priority-tier", parts()),
    ("metrics-file", textfile()),
    ("metrics-file", {**textfile(age_s=3600.0), **tick(silent_s=3590.0)}),  # no tick, no file
    ("rights", tick(user="slurm")),
    ("rights", by_database({"bob": "Administrator"})),
    ("slurmctld-hooks", hook("Prolog", "/p")),
)


def look(name: str, facts: Facts) -> tuple[str, str]:
    """The result of a check, and all its text in a line."""
    (check,) = (check for check in CHECKS if check.id == name)
    (outcome,) = run([check], facts, is_before=False)
    remedies = Remedies(outcome.findings, facts.slurm, facts.conf)
    said = [outcome.skipped]
    for finding in outcome.findings:
        said += [finding.seen, finding.advice]
        said += [f"{r.line} {r.command}" for r in remedies.of(finding)]
    return outcome.word, " ".join(" ".join(said).split())


@pytest.mark.parametrize("check", [c.id for c in CHECKS if c.id not in OF_ANOTHER_SITE + PARTS])
def test_a_good_site_passes(check: str) -> None:
    assert look(check, GOOD_SITE) == ("ok", "")


@pytest.mark.parametrize(
    ("check", "changed", "reason"),
    [
        ("preempt-qos", {}, "preemption is by partition"),
        ("priority-tier", qos({}, {}, main={"PriorityTier": "1"}), "preemption is by QOS"),
        ("others-preempt", qos({}, {}), "preemption is by QOS"),
        ("plugin-file", plugstack(ours=None), "has no line for the plugin"),
        ("plugin-release", plugstack(ours=None), "has no line for the plugin"),
        ("job-path", plugstack(ours=None), "has no line for the plugin"),
        ("policy-loaded", submission(policy_changed=None), "no policy"),
        ("policy", submission(wanted=Unread("slurmdbd is down")), "slurmdbd is down"),
        ("nodes-meet", shared(of=1, met=1), "srun --nodes=2 malleable doctor --node"),
        ("epilog-readable", {"hooks": ()}, "not in use"),
        ("environments-laid", env_store(prolog=None), "cannot be read here"),
        ("environments-store", env_store(file=None), "may not be a compute node"),
        ("usage-factor", qos({}, {}, name="none"), "there is no QOS none"),
    ],
)
def test_a_check_that_does_not_apply_is_skipped(
    check: str, changed: dict[str, Any], reason: str
) -> None:
    word, said = look(check, replace(GOOD_SITE, **changed))
    assert word == "skipped"
    assert reason in said


@pytest.mark.parametrize("check", PARTS)
def test_without_a_partition_for_parts_its_checks_promise_nothing(check: str) -> None:
    assert look(check, GOOD_SITE) == ("skipped", "site.part_nodes is empty")
    faulty = replace(GOOD_SITE, **parts(), settings_faults=("site.x: unknown key",))
    fault = "the settings have a fault: site.part_nodes is unknown"
    assert look(check, faulty) == ("skipped", fault)


@pytest.mark.parametrize(("check", "changed"), FINE)
def test_other_good_sites(check: str, changed: dict[str, Any]) -> None:
    assert look(check, replace(GOOD_SITE, **changed)) == ("ok", "")


@pytest.mark.parametrize(("check", "changed", "severity", "pattern"), BROKEN)
def test_a_broken_site_is_reported(
    check: str, changed: dict[str, Any], severity: str, pattern: str
) -> None:
    word, said = look(check, replace(GOOD_SITE, **changed))
    assert word == severity, said
    assert re.search(pattern, said), said


def settings_asked_for(name: str, facts: Facts) -> dict[str, str]:
    """The settings of slurm.conf that a check would change, without words of longer lines."""
    (check,) = (check for check in CHECKS if check.id == name)
    (outcome,) = run([check], facts, is_before=False)
    fixes = [fix for finding in outcome.findings for fix in finding.fixes]
    return {fix.key: fix.value for fix in fixes if isinstance(fix, Change) and not fix.owner}


ASKED = [
    (check, facts, asked)
    for check, changed, _, _ in BROKEN
    if (asked := settings_asked_for(check, facts := replace(GOOD_SITE, **changed)))
    and check != "epilog"  # reads the file, not the setting
]


@pytest.mark.parametrize(("check", "facts", "asked"), ASKED)
def test_a_setting_with_the_wanted_value_is_not_changed_again(
    check: str, facts: Facts, asked: dict[str, str]
) -> None:
    slurm_now = known(facts.slurm)
    mended = replace(slurm_now, config={**slurm_now.config, **asked})
    assert settings_asked_for(check, replace(facts, slurm=mended)) == {}


def test_every_check_is_tried_on_a_broken_site() -> None:
    assert {check.id for check in CHECKS} == {row[0] for row in BROKEN}


def test_a_missing_partition_is_a_single_line_and_hides_no_other_finding() -> None:
    text = "\n".join(
        line
        for line in "PartitionName=main PriorityTier=1 Nodes=n[1-2] State=UP\n"
        "SLURM_VERSION = 22.05.8\nPreemptType = preempt/none\nNodeName=n1\n".splitlines()
    )
    facts = replace(GOOD_SITE, slurm=read_slurm(text, ["malleable"]))
    assert "PartitionName=malleable Nodes=ALL PriorityTier=1" in look("partition", facts)[1]
    assert look("priority-tier", facts)[0] == "error"


def test_a_missing_partition_promises_no_longest_wait() -> None:
    says = read_slurm(answer(), ["soon"])
    facts = replace(GOOD_SITE, slurm=says)
    assert look("longest-wait", facts) == ("skipped", "there is no partition soon yet")
    both = replace(GOOD_SITE, slurm=read_slurm(answer(), ["malleable", "soon"]))
    assert look("longest-wait", both) == ("ok", "")


def test_a_missing_partition_for_parts_has_its_own_line() -> None:
    settings = Settings(site=Site(("malleable", "parts"), "parts"))
    said = read_slurm(answer(), ["malleable", "parts"])
    facts = replace(GOOD_SITE, settings=settings, slurm=said)
    word, text = look("partition", facts)
    assert word == "error"
    assert "PartitionName=parts Nodes=ALL PriorityTier=0" in text
    assert "OverSubscribe=NO" in text
    assert look("part-nodes", facts) == ("skipped", "there is no partition parts yet")


@pytest.mark.parametrize("check", [c.id for c in CHECKS])
def test_without_any_fact_a_check_is_skipped_or_has_no_finding(check: str) -> None:
    nothing = replace(Facts(GOOD_SITE.host), slurm=SILENT, silence=NO_ANSWER)
    word, said = look(check, nothing)
    if check == "slurm-answers":
        assert word == "error"
    elif check in OF_SETTINGS + OPTIONAL:
        assert word in ("ok", "skipped")
    else:
        assert (word, bool(said)) == ("skipped", True)


def test_the_table_is_made_of_the_checks_texts() -> None:
    assert says().value("Epilog") == "/usr/libexec/slurm-malleable/epilog.sh"  # of 24.11: Epilog[0]


@pytest.mark.parametrize(
    ("up", "is_here"),
    [("n1 n2", True), ("n2 n1", False), ("n1.site n2.site", True), ("n1b n1", False), ("", False)],
)
def test_the_host_of_the_active_controller_ticks(up: str, is_here: bool, tmp_path: Path) -> None:
    """As doctor and the page say: the first controller that is up counts. This host is n1."""
    (check,) = (check for check in CHECKS if check.id == "one-host")
    facts = replace(GOOD_SITE, **slurm(config={"SlurmctldHost[1]": "n2"}))
    (outcome,) = run([check], facts, is_before=False)
    (fix,) = outcome.findings[0].fixes
    assert isinstance(fix, Paste)
    (condition,) = re.findall(r"ExecCondition=.*", fix.line)
    assert f"    {condition}\n" in (ADMINS / "operations.md").read_text()
    pinged = "".join(f"Slurmctld(of a pair) at {host} is UP\n" for host in up.split())
    for name, said in {"scontrol": pinged, "hostname": "n1"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{said}'\n")
        (tmp_path / name).chmod(0o755)
    command = shlex.split(condition.partition("=")[2].replace("$$", "$"))
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert (subprocess.run(command, env=env, check=False).returncode == 0) == is_here
