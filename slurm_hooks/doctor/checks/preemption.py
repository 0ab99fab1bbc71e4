"""Whether fragments yield to everybody else, at once and by being requeued."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from slurm_hooks.doctor.facts import CannotLook, Facts, SlurmSays, known
from slurm_hooks.doctor.finding import (
    Category,
    Change,
    Check,
    Finding,
    Paste,
    Run,
    error,
    note,
    warning,
)
from slurm_hooks.slurm.part_nodes import PART_LINE
from slurm_hooks.slurm.scontrol import Words, of_partition
from slurm_hooks.slurm.text import parse_limit

OUR_LINE = (
    "PartitionName={name} Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=0 "
    "OverSubscribe=EXCLUSIVE OverTimeLimit=0"
)
_RESTART = "restart slurmctld"


def _partition(facts: Facts) -> Iterator[Finding]:
    slurm = known(facts.slurm)
    for name in slurm.missing:
        is_for_parts = name == facts.settings.site.part_nodes
        line = (PART_LINE if is_for_parts else OUR_LINE).format(name=name)
        yield error(
            f"Slurm has no partition {name}, which site.partitions names",
            Paste(slurm.conf, line, then="scontrol reconfigure"),
        )
    for words in slurm.ours:
        name = words["PartitionName"]
        if name in slurm.missing:
            continue
        if words.get("State", "UP") != "UP":
            yield warning(
                f"partition {name} is {words['State']}",
                Change("State", "UP", of_partition(words)),
            )
        if words.get("Nodes") in (None, "", "(null)"):
            yield error(
                f"partition {name} has no nodes", Change("Nodes", "ALL", of_partition(words))
            )


def _preempt_type(facts: Facts) -> Iterator[Finding]:
    slurm = known(facts.slurm)
    if not slurm.value("PreemptType") or slurm.value("PreemptType") == "preempt/none":
        # Slurm does not start with only one of the two (22.05: "values incompatible").
        yield error("PreemptType=preempt/none: nobody can preempt anybody", *_both(slurm))


def _both(slurm: SlurmSays) -> Iterator[Change]:
    """The settings of preemption that have to change, together."""
    if slurm.value("PreemptType") in ("", "preempt/none"):
        yield Change("PreemptType", "preempt/partition_prio", then=_RESTART)
    mode = slurm.value("PreemptMode")
    if "REQUEUE" not in mode:
        gang = "GANG," if "GANG" in mode else ""
        yield Change("PreemptMode", f"{gang}REQUEUE", then=_RESTART)


def _is_by_qos(slurm: SlurmSays) -> bool:
    return slurm.value("PreemptType") == "preempt/qos"


def _preempt_mode(facts: Facts) -> Iterator[Finding]:
    slurm = known(facts.slurm)
    everywhere = slurm.value("PreemptMode")
    if "REQUEUE" not in everywhere:
        yield error(
            f"PreemptMode={everywhere or 'OFF'} for the whole cluster: Slurm does not preempt by "
            "requeue",
            *_both(slurm),
        )
    for words in slurm.ours:
        mode = words.get("PreemptMode", everywhere)
        is_judged = words["PartitionName"] not in slurm.missing and not _is_by_qos(slurm)
        if is_judged and "REQUEUE" not in mode:
            yield error(
                f"partition {words['PartitionName']}: PreemptMode={mode}, so its jobs cannot be "
                "preempted by requeue, and job_submit refuses malleable jobs there",
                Change("PreemptMode", "REQUEUE", of_partition(words)),
            )


def _priority_tier(facts: Facts) -> Iterator[Finding]:
    slurm = known(facts.slurm)
    if _is_by_qos(slurm):
        raise CannotLook("preemption is by QOS here")
    for other, ours, limit in slurm.others:
        tier = int(other.get("PriorityTier", 1))
        if tier <= limit and ours != facts.settings.site.part_nodes:  # part-nodes looks at that
            yield error(
                f"partition {other['PartitionName']}: PriorityTier={tier} is not above that of "
                f"{ours} ({limit}), with which it shares nodes",
                Change("PriorityTier", str(limit + 1), of_partition(other)),
            )


def _others_safe(facts: Facts) -> Iterator[Finding]:
    slurm = known(facts.slurm)
    if _is_by_qos(slurm):
        raise CannotLook("preemption is by QOS here")
    highest = max((int(o.get("PriorityTier", 1)) for o, _, _ in slurm.others), default=0)
    names = set()
    for other, _ours, _limit in slurm.others:
        mode = other.get("PreemptMode", slurm.value("PreemptMode"))
        is_lower = int(other.get("PriorityTier", 1)) < highest
        if is_lower and mode != "OFF" and other["PartitionName"] not in names:
            names.add(other["PartitionName"])
            yield note(
                f"partition {other['PartitionName']}: PreemptMode={mode}: its jobs can be "
                "preempted as well, by partitions of a higher tier",
                Change("PreemptMode", "OFF", of_partition(other)),
                advice="the line is for a partition whose jobs must never be preempted",
            )


def _preempt_qos(facts: Facts) -> Iterator[Finding]:
    slurm = known(facts.slurm)
    name = facts.settings.site.qos
    if not _is_by_qos(slurm) and not name:
        raise CannotLook("preemption is by partition here")
    if not name:
        yield error(
            "site.qos is not set: here the QOS of a job decides, and job_submit refuses malleable "
            "jobs until it knows theirs",
            Paste(facts.settings_path, 'qos = "NAME-OF-THE-QOS"', "in section [site]"),
            Run("malleable render lua -o /etc/slurm/malleable_policy.lua"),
        )
        return
    qos = {words["Name"]: words for words in known(facts.accounting).qos}
    if name not in qos:
        yield error(f"site.qos: there is no QOS {name}", Run(f"sacctmgr -i add qos {name}"))
    elif _is_by_qos(slurm):
        yield from _one_qos(name, qos)


def _one_qos(name: str, qos: dict[str, Words]) -> Iterator[Finding]:
    preemptors = [n for n, words in qos.items() if name in words.get("Preempt", "").split(",")]
    others = [n for n in qos if n != name]
    lacking = sorted(set(others) - set(preemptors))
    if not preemptors:
        first = lacking[0] if lacking else "normal"
        yield error(
            f"QOS {name}: no other QOS may preempt it",
            Run(f"sacctmgr -i modify qos {first} set Preempt+={name}"),
        )
    elif lacking:
        yield warning(
            f"QOS {name} cannot be preempted by jobs of QOS {', '.join(lacking)}",
            Run(f"sacctmgr -i modify qos {','.join(lacking)} set Preempt+={name}"),
        )
    mode = qos.get(name, {}).get("PreemptMode", "cluster")
    if mode.lower() not in ("cluster", "requeue", ""):
        yield error(
            f"QOS {name}: PreemptMode={mode}",
            Run(f"sacctmgr -i modify qos {name} set PreemptMode=requeue"),
        )
    for key in ("GraceTime", "PreemptExemptTime"):
        value = qos.get(name, {}).get(key, "")
        if value not in ("", "0", "00:00:00"):
            yield warning(
                f"QOS {name}: {key}={value}", Run(f"sacctmgr -i modify qos {name} set {key}=0")
            )


def _grace_time(facts: Facts) -> Iterator[Finding]:
    for words in known(facts.slurm).ours:
        if words.get("GraceTime", "0") != "0":
            yield warning(
                f"partition {words['PartitionName']}: GraceTime={words['GraceTime']}",
                Change("GraceTime", "0", of_partition(words)),
            )


def _exempt_time(facts: Facts) -> Iterator[Finding]:
    value = known(facts.slurm).config.get("PreemptExemptTime", "NONE")
    try:
        is_set = value != "NONE" and parse_limit(value) != timedelta(0)
    except ValueError:
        is_set = True
    if is_set:
        yield error(f"PreemptExemptTime={value}", Change("PreemptExemptTime", "0"))


def _over_subscribe(facts: Facts) -> Iterator[Finding]:
    part_nodes = facts.settings.site.part_nodes
    for words in known(facts.slurm).ours:
        value = words.get("OverSubscribe", "NO")
        if value.startswith("FORCE") and words["PartitionName"] != part_nodes:
            wanted = "NO" if part_nodes else "EXCLUSIVE"  # NO leaves parts to small jobs
            yield error(
                f"partition {words['PartitionName']}: OverSubscribe={value}",
                Change("OverSubscribe", wanted, of_partition(words)),
            )


TABLE = (
    Check(
        "partition",
        Category.PREEMPTION,
        "each partition of site.partitions is there, up, and has nodes",
        "Fragments live in a partition of their own, over the nodes that they may use when they "
        "are idle.",
        _partition,
        is_ours=True,
    ),
    Check(
        "preempt-type",
        Category.PREEMPTION,
        "Slurm preempts, by partition or by QOS",
        "Urgent jobs take nodes from fragments by preemption. Without it a hole that closes early "
        "is closed to its new owner until the lease ends.",
        _preempt_type,
    ),
    Check(
        "preempt-mode",
        Category.PREEMPTION,
        "preempted fragments are requeued",
        "A fragment that yields comes back later as the same array element. A job that is "
        "cancelled or suspended instead is lost, or keeps its memory.",
        _preempt_mode,
    ),
    Check(
        "priority-tier",
        Category.PREEMPTION,
        "every partition that shares nodes with ours has a higher PriorityTier",
        "With preempt/partition_prio only jobs of a higher tier preempt. A partition on the same "
        "tier waits for the leases of fragments to end: the queue that silently never preempts.",
        _priority_tier,
    ),
    Check(
        "others-preempt",
        Category.PREEMPTION,
        "partitions of other jobs do not begin to preempt each other",
        "PreemptMode=REQUEUE for the cluster holds for each partition that does not say OFF: jobs "
        "of a lower tier may be requeued by those of a higher one.",
        _others_safe,
    ),
    Check(
        "preempt-qos",
        Category.PREEMPTION,
        "with preempt/qos, other QOS may preempt that of fragments, by requeue and without grace",
        "With preempt/qos neither a partition's tier nor its PreemptMode means anything, nor a QOS "
        "that is only the partition's: the job's own decides, which is site.qos, and only a QOS "
        "that lists it in Preempt takes nodes from fragments.",
        _preempt_qos,
    ),
    Check(
        "grace-time",
        Category.PREEMPTION,
        "GraceTime is 0 in our partitions",
        "Slurm enforces a positive GraceTime in a slow periodic check only: an urgent job that "
        "needed two of our nodes waited 17 to 24 s with GraceTime=10 and 0.8 to 2.0 s with 0. "
        "KillWait is the grace of a fragment.",
        _grace_time,
    ),
    Check(
        "exempt-time",
        Category.PREEMPTION,
        "PreemptExemptTime is 0",
        "For so long after its start a fragment cannot be preempted by anybody.",
        _exempt_time,
    ),
    Check(
        "over-subscribe",
        Category.PREEMPTION,
        "no other job is put on the nodes of a fragment",
        "A fragment takes whole nodes, and the planner counts whole nodes. job_submit asks for "
        "them with each job; only OverSubscribe=FORCE is stronger.",
        _over_subscribe,
    ),
)
