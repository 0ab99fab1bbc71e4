"""Check that fragments yield to all other jobs by a requeue, and how soon."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from datetime import timedelta
from itertools import repeat

from slurm_hooks.doctor.facts import Accounting, CannotLook, Facts, SlurmSays, Unread, known
from slurm_hooks.doctor.finding import (
    Category,
    Change,
    Check,
    Finding,
    Fix,
    Paste,
    Run,
    error,
    note,
    warning,
)
from slurm_hooks.model.lane import Lane
from slurm_hooks.report.promise import promise_text, time_text
from slurm_hooks.slurm.lanes import Unfit, find_unfit, is_by_qos, neighbours, tier_of
from slurm_hooks.slurm.part_nodes import PART_LINE
from slurm_hooks.slurm.qos import Qos, qos_of
from slurm_hooks.slurm.scontrol import Words, of_partition
from slurm_hooks.slurm.terms import decide, lane_terms

OUR_LINE = (
    "PartitionName={name} Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=0 "
    "OverSubscribe=EXCLUSIVE OverTimeLimit=0"
)
_RESTART = "restart slurmctld"
_BY_TIER = "preempt/partition_prio"


def _partition(facts: Facts) -> Iterator[Finding]:
    slurm = known(facts.slurm)
    for name in slurm.missing:
        yield _missing(name, facts, slurm)
    for words in slurm.ours:
        name = words["PartitionName"]
        if name in slurm.missing:
            continue
        if words.get("State", "UP") != "UP":
            yield warning(
                f"partition {name} is {words['State']}", _reopening(facts, words["State"], words)
            )
        if words.get("Nodes") in (None, "", "(null)"):
            yield error(
                f"partition {name} has no nodes", Change("Nodes", "ALL", of_partition(words))
            )


def _reopening(facts: Facts, state: str, words: Words) -> Fix:
    """Change slurm.conf if it has the state. Else the state is from scontrol, and ends with it."""
    lines = () if isinstance(facts.conf, Unread) else facts.conf
    owner = of_partition(words)
    pattern = re.compile(rf"\s*{re.escape(owner)}\s.*\bState={state}\b", re.IGNORECASE)
    if any(pattern.match(line.text) for line in lines):
        return Change("State", "UP", owner)
    return Run(f"scontrol update {owner} State=UP")


def _missing(name: str, facts: Facts, slurm: SlurmSays) -> Finding:
    """Suggest a line of slurm.conf, or of the settings if the site already has a lane."""
    is_for_parts = name == facts.settings.site.part_nodes
    line = (PART_LINE if is_for_parts else OUR_LINE).format(name=name)
    seen = f"Slurm has no partition {name}, which site.partitions names"
    lanes = [words["PartitionName"] for words in _others(slurm) if _is_lane(words, slurm)]
    if is_for_parts or not lanes:
        return error(seen, Paste(slurm.conf, line, then="scontrol reconfigure"))
    place = "in section [site], instead of its line partitions = ..."
    return error(
        seen,
        Paste(facts.settings_path, f"partitions = {json.dumps(lanes[:1])}", place),
        advice=f"malleable jobs can use a lane that you already have: {', '.join(lanes)}. For a "
        f"separate partition add this line to {slurm.conf}: {line}",
    )


def _is_lane(words: Words, slurm: SlurmSays) -> bool:
    """True if other partitions can preempt the jobs of this partition by requeue."""
    name, every = words["PartitionName"], _others(slurm)
    near = neighbours(words, [other for other in every if other["PartitionName"] != name])
    return bool(near) and not find_unfit([name], every, slurm.config) and not _is_by_qos(slurm)


def _others(slurm: SlurmSays) -> list[Words]:
    """The partitions that share nodes with ours, once each."""
    return list({words["PartitionName"]: words for words, _, _ in slurm.others}.values())


def _preempt_type(facts: Facts) -> Iterator[Finding]:
    slurm = known(facts.slurm)
    if not slurm.value("PreemptType") or slurm.value("PreemptType") == "preempt/none":
        # Slurm does not start with only one of the two (22.05: "values incompatible").
        yield error("PreemptType=preempt/none: no job can preempt another", *_both(slurm))


def _both(slurm: SlurmSays) -> Iterator[Change]:
    """The settings of preemption that have to change together."""
    if slurm.value("PreemptType") in ("", "preempt/none"):
        yield Change("PreemptType", _BY_TIER, then=_RESTART)
    mode = slurm.value("PreemptMode")
    if "REQUEUE" not in mode:
        gang = "GANG," if "GANG" in mode else ""
        yield Change("PreemptMode", f"{gang}REQUEUE", then=_RESTART)


def _is_by_qos(slurm: SlurmSays) -> bool:
    return is_by_qos(slurm.config)


def _unfit(slurm: SlurmSays) -> dict[str, Unfit]:
    """For each partition of ours that cannot run malleable jobs, the reason. The tiers of
    partitions decide, or will decide when PreemptType is right."""
    names = [words["PartitionName"] for words in slurm.ours]
    config = {**slurm.config, "PreemptType": _BY_TIER}
    return find_unfit(names, (*slurm.ours, *_others(slurm)), config)


def _preempt_mode(facts: Facts) -> Iterator[Finding]:
    slurm = known(facts.slurm)
    mode = slurm.value("PreemptMode")
    if mode in ("", "OFF"):
        yield error(
            f"PreemptMode={mode or 'OFF'} for the whole cluster: Slurm preempts no job",
            *_both(slurm),
        )
    if _is_by_qos(slurm):
        return
    for name, unfit in _unfit(slurm).items():
        if unfit.key == "PreemptMode":
            yield error(str(unfit), Change("PreemptMode", "REQUEUE", f"PartitionName={name}"))


def _priority_tier(facts: Facts) -> Iterator[Finding]:
    slurm = known(facts.slurm)
    if _is_by_qos(slurm):
        raise CannotLook("preemption is by QOS here")
    unfit = _unfit(slurm)
    for words in slurm.ours:
        name = words["PartitionName"]
        low = [
            words for words, ours, tier in slurm.others if ours == name and tier_of(words) <= tier
        ]
        if not low or name == facts.settings.site.part_nodes:  # the check part-nodes covers it
            continue
        above = str(tier_of(words) + 1)
        changes = [Change("PriorityTier", above, of_partition(other)) for other in low]
        if name in unfit and unfit[name].key == "PriorityTier":
            yield error(str(unfit[name]), *changes)
        else:
            yield from map(_waits, low, repeat(words), changes)


def _waits(other: Words, lane: Words, change: Change) -> Finding:
    return warning(
        f"partition {other['PartitionName']}: PriorityTier={tier_of(other)} is not above the tier "
        f"of {lane['PartitionName']} ({tier_of(lane)}), with which it shares nodes: its jobs wait "
        "for the end of leases",
        change,
    )


def _others_safe(facts: Facts) -> Iterator[Finding]:
    slurm = known(facts.slurm)
    if _is_by_qos(slurm):
        raise CannotLook("preemption is by QOS here")
    highest = max((int(o.get("PriorityTier", 1)) for o, _, _ in slurm.others), default=0)
    names = set()
    if slurm.missing:  # any of these may be the lane of malleable jobs yet
        names = {o["PartitionName"] for o in _others(slurm) if _is_lane(o, slurm)}
    for other, _ours, _limit in slurm.others:
        mode = other.get("PreemptMode", slurm.value("PreemptMode"))
        is_lower = int(other.get("PriorityTier", 1)) < highest
        if is_lower and mode != "OFF" and other["PartitionName"] not in names:
            names.add(other["PartitionName"])
            yield note(
                f"partition {other['PartitionName']}: PreemptMode={mode}: partitions of a higher "
                "tier can preempt its jobs too",
                Change("PreemptMode", "OFF", of_partition(other)),
                advice="add the line only if its jobs must never be preempted",
            )


def _preempt_qos(facts: Facts) -> Iterator[Finding]:
    slurm = known(facts.slurm)
    name = facts.settings.site.qos
    if not _is_by_qos(slurm) and not name:
        raise CannotLook("preemption is by partition here")
    if not name:
        yield error(
            "site.qos is not set: preemption is by QOS here, and job_submit refuses malleable jobs "
            "until site.qos names their QOS",
            Paste(facts.settings_path, 'qos = "NAME-OF-THE-QOS"', "in section [site]"),
            Run("malleable render lua -o /etc/slurm/malleable_policy.lua"),
        )
        return
    rows = {words["Name"]: words for words in known(facts.accounting).qos}
    qos = {key: qos_of(words) for key, words in rows.items()}
    parts = facts.settings.site.parts_qos if _is_by_qos(slurm) else ""
    for key, each in (("qos", name), ("part_nodes", parts)):
        if each and each not in qos:
            yield error(f"site.{key}: there is no QOS {each}", Run(f"sacctmgr -i add qos {each}"))
        elif each and _is_by_qos(slurm):
            yield from _one_qos(each, qos, slurm, (name, parts))
    if name in rows and parts in rows:
        yield from _parts_first(rows[name], rows[parts])


def _parts_first(whole: Words, parts: Words) -> Iterator[Finding]:
    """Find a QOS for parts of nodes that Slurm does not preempt first."""
    high, low = (int(words.get("Priority") or 0) for words in (whole, parts))
    if high <= low:
        yield error(
            f"QOS {parts['Name']}: Priority={low} is not below the Priority={high} of QOS "
            f"{whole['Name']}: Slurm does not take parts before whole nodes",
            Run(f"sacctmgr -i modify qos {whole['Name']} set Priority={low + 1}"),
        )


def _one_qos(
    name: str, qos: dict[str, Qos], slurm: SlurmSays, ours: Collection[str]
) -> Iterator[Finding]:
    lanes = [words["PartitionName"] for words in slurm.ours]
    unfit = next(iter(find_unfit(lanes, slurm.ours, slurm.config, name, qos).values()), None)
    lacking = sorted(qos.keys() - {q for q in qos if name in qos[q].preempts} - set(ours))
    if unfit and unfit.key == "Preempt":
        first = lacking[0] if lacking else "normal"
        yield error(str(unfit), Run(f"sacctmgr -i modify qos {first} set Preempt+={name}"))
        return
    if unfit and unfit.key == "PreemptMode":
        yield error(str(unfit), Run(f"sacctmgr -i modify qos {name} set PreemptMode=requeue"))
    if lacking:
        yield warning(
            f"QOS {name} cannot be preempted by jobs of QOS {', '.join(lacking)}",
            Run(f"sacctmgr -i modify qos {','.join(lacking)} set Preempt+={name}"),
        )


def _longest_wait(facts: Facts) -> Iterator[Finding]:
    slurm, site = known(facts.slurm), facts.settings.site
    ours = (words["PartitionName"] for words in slurm.ours)
    names = [name for name in ours if name not in slurm.missing]
    if slurm.missing and not names:
        raise CannotLook(f"there is no partition {', '.join(slurm.missing)} yet")
    lanes, odd = lane_terms(names, slurm.ours, slurm.config, site.qos, site.parts_qos)
    terms, unread = decide(lanes, lambda: _qos_times(known(facts.accounting)))
    yield from map(warning, (*odd, *unread))
    kill_wait = timedelta(seconds=slurm.number("KillWait", 30))
    for lane in (Lane(each, facts.settings.lease) for each in terms):
        if not lane.terms.is_at_once:
            yield note(promise_text(lane.terms, kill_wait, lane.longest_lease))
            yield from _no_time(lane)


def _no_time(lane: Lane) -> Iterator[Finding]:
    """Warn of a time limit that is hardly longer than the notice."""
    least, most = timedelta(seconds=lane.lease.shortest_hole_s), lane.terms.most
    if most is not None and lane.beyond and most < lane.notice + least:
        name = lane.terms.partition
        yield warning(
            f"partition {name}: MaxTime {time_text(most)} leaves less than {time_text(least)} "
            f"before the notice (the grace, {time_text(lane.notice)}): fragments leave soon after "
            "they start",
            Change("MaxTime", "INFINITE", f"PartitionName={name}"),
        )


def _qos_times(accounting: Accounting) -> str:
    """The answer to terms_command, from the answers that we already have."""
    keys = ("Name", "GraceTime", "PreemptExemptTime")
    return "\n".join("|".join(words.get(key, "") for key in keys) for words in accounting.qos)


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
        "each partition of site.partitions exists, is up, and has nodes",
        "Fragments run in a preemptible partition over the nodes that they may use. It is a lane "
        "that the site already has, or a separate partition.",
        _partition,
        is_ours=True,
    ),
    Check(
        "preempt-type",
        Category.PREEMPTION,
        "Slurm preempts, by partition or by QOS",
        "Urgent jobs take nodes from fragments by preemption. Without it, a job that needs a hole "
        "earlier than planned waits for the end of the lease.",
        _preempt_type,
    ),
    Check(
        "preempt-mode",
        Category.PREEMPTION,
        "preempted fragments are requeued",
        "A requeued fragment comes back later as the same array element. A cancelled fragment is "
        "lost, and a suspended fragment keeps its memory.",
        _preempt_mode,
    ),
    Check(
        "priority-tier",
        Category.PREEMPTION,
        "every partition that shares nodes with ours has a higher PriorityTier",
        "With preempt/partition_prio only jobs of a higher tier preempt. Jobs of a partition on "
        "the same tier wait for the leases of fragments to end. If no partition has a higher tier, "
        "job_submit refuses malleable jobs.",
        _priority_tier,
    ),
    Check(
        "others-preempt",
        Category.PREEMPTION,
        "partitions of other jobs do not preempt each other",
        "PreemptMode=REQUEUE of the cluster applies to each partition without PreemptMode=OFF. "
        "There jobs of a higher tier may requeue jobs of a lower tier.",
        _others_safe,
    ),
    Check(
        "preempt-qos",
        Category.PREEMPTION,
        "with preempt/qos, other QOS may preempt the QOS of fragments by requeue",
        "With preempt/qos only the job's own QOS counts, which is site.qos. A partition's tier, "
        "PreemptMode and QOS have no effect. Only a QOS that lists site.qos in Preempt takes nodes "
        "from fragments. A QOS in site.part_nodes needs the same, and a lower Priority.",
        _preempt_qos,
    ),
    Check(
        "longest-wait",
        Category.PREEMPTION,
        "a job that may preempt waits for at most KillWait",
        "A lane with a GraceTime or a PreemptExemptTime is fine for malleable jobs. The note gives "
        "the longest wait there. Slurm notices the end of a grace up to 30 s late. A tick keeps "
        "fragments off nodes that a planned job needs sooner.",
        _longest_wait,
    ),
    Check(
        "over-subscribe",
        Category.PREEMPTION,
        "no other job shares the nodes of a fragment",
        "A fragment takes whole nodes, and the planner counts whole nodes. job_submit requests "
        "them for each job, and only OverSubscribe=FORCE overrides that.",
        _over_subscribe,
    ),
)
