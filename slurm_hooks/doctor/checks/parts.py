"""Check that fragments may take parts of nodes (site.part_nodes) without harm to other jobs."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from slurm_hooks.doctor.facts import CannotLook, Facts, SlurmSays, known
from slurm_hooks.doctor.finding import (
    Category,
    Change,
    Check,
    Finding,
    Paste,
    error,
    note,
    warning,
)
from slurm_hooks.model.moments import plural
from slurm_hooks.slurm.part_nodes import (
    Lack,
    LaneNames,
    find_lacks,
    has_key,
    neighbours,
    sees_cgroups,
    unconstrained,
)
from slurm_hooks.slurm.scontrol import Words, of_partition

# The daemons to restart for a key. For other keys slurmctld reads slurm.conf again.
_THEN = {
    "PreemptType": "restart slurmctld",
    "PreemptParameters": "restart slurmctld",
    "SelectType": "restart slurmctld",
    "TaskPlugin": "restart slurmctld and all slurmd",
}
_CONSTRAINTS = ("ConstrainDevices", "ConstrainRAMSpace")
_LOSES_JOBS = "Slurm forgets all jobs when SelectType changes: change it while there are no jobs"
# A script that ends all processes of a user; a script that first asks for the user's other jobs.
_ALL_OF_USER = re.compile(
    r"\b(?:pkill|killall|slay)\b[^\n#]*(?:-[a-zA-Z]*[uU]\b|--user|--euid|--uid)|"
    r"\bslay\b|\bloginctl\s+(?:terminate|kill)-user"
)
_ASKS_FIRST = re.compile(r"\bsqueue\b")


def _lane_names(facts: Facts) -> LaneNames:
    """The names of the lanes. Raises CannotLook if none is for parts, as far as known."""
    site = facts.settings.site
    if facts.settings_faults:
        raise CannotLook("the settings have a fault: site.part_nodes is unknown")
    if not site.part_nodes:
        raise CannotLook("site.part_nodes is empty")
    return LaneNames(site.partitions, site.part_nodes, site.qos)


def _lanes(facts: Facts) -> tuple[SlurmSays, LaneNames]:
    """The facts of Slurm, and the lanes. Raises CannotLook while a partition for parts is
    missing."""
    lanes, slurm = _lane_names(facts), known(facts.slurm)
    missing = [name for name in lanes.of_parts if name in slurm.missing]
    if missing:
        raise CannotLook(f"there is no partition {missing[0]} yet")
    return slurm, lanes


def _partitions(slurm: SlurmSays) -> list[Words]:
    """Our partitions, and all partitions that share nodes with them."""
    ours = [words for words in slurm.ours if words["PartitionName"] not in slurm.missing]
    return [*ours, *{words["PartitionName"]: words for words, _, _ in slurm.others}.values()]


def _lists(slurm: SlurmSays) -> Iterator[str]:
    """The partitions of each node."""
    return (words.get("Partitions", "") for words in slurm.nodes)


def _part_nodes(facts: Facts) -> Iterator[Finding]:
    slurm, lanes = _lanes(facts)
    for lack in find_lacks(lanes, _partitions(slurm), _lists(slurm), slurm.config):
        yield _of_lack(lack, slurm, facts.settings_path)
    if not lanes.parts_qos:
        yield from _same_nodes(slurm, lanes.partitions[0], lanes.part_nodes)


def _of_lack(lack: Lack, slurm: SlurmSays, settings_path: str) -> Finding:
    if lack.key == "part_nodes":
        return error(lack.seen, Paste(settings_path, lack.value, "in section [site]"))
    if lack.file == "cgroup.conf":
        return error(lack.seen, _cgroup_line(slurm, lack.pair))
    then = _THEN.get(lack.key, "scontrol reconfigure")
    advice = _LOSES_JOBS if lack.key == "SelectType" else ""
    return error(lack.seen, Change(lack.key, lack.value, lack.owner, then), advice=advice)


def _cgroup_line(slurm: SlurmSays, line: str) -> Paste:
    path = posixpath.join(posixpath.dirname(slurm.conf), "cgroup.conf")
    return Paste(path, line, "on every node", _THEN["TaskPlugin"])


def _same_nodes(slurm: SlurmSays, whole: str, parts: str) -> Iterator[Finding]:
    lists = [words.get("Partitions", "").split(",") for words in slurm.nodes]
    differing = sum((whole in names) != (parts in names) for names in lists)
    if differing:
        nodes = next((w.get("Nodes", "ALL") for w in slurm.ours if w["PartitionName"] == whole), "")
        yield note(
            f"{plural(differing, 'node')} in only {whole} or only {parts}",
            Change("Nodes", nodes, f"PartitionName={parts}"),
            advice="fine for a trial on some nodes",
        )


def _isolation(facts: Facts) -> Iterator[Finding]:
    slurm, _ = _lanes(facts)
    plugins = slurm.value("TaskPlugin").split(",")
    wanted = Change("TaskPlugin", "task/cgroup,task/affinity", then=_THEN["TaskPlugin"])
    if not sees_cgroups(slurm.config):
        yield error(
            "Slurm uses no cgroups for jobs: a part can use GPUs and memory of its neighbours",
            *(() if "task/cgroup" in plugins else (wanted,)),
            *(_cgroup_line(slurm, f"{key}=yes") for key in _CONSTRAINTS),
        )
    elif "task/affinity" not in plugins and not has_key(slurm.config, "ConstrainCores"):
        yield warning(
            "a part may use cores of its neighbours",
            _cgroup_line(slurm, "ConstrainCores=yes"),
        )


def _cgroups_here(facts: Facts) -> Iterator[Finding]:
    _lane_names(facts)
    here = known(facts.cgroups)
    values = {key: here.settings.get(key.lower(), "no") for key in _CONSTRAINTS}
    for lack in unconstrained(known(facts.slurm).config, values):
        yield error(f"{here.path}: {lack.seen}", Paste(here.path, lack.pair, then="restart slurmd"))


def _others(slurm: SlurmSays, lanes: LaneNames) -> Iterator[Words]:
    """The partitions of ordinary jobs that share nodes with parts. Where QOS decide, jobs of other
    QOS may use our partitions too."""
    near = frozenset(lanes.of_parts).union(*(neighbours(n, _lists(slurm)) for n in lanes.of_parts))
    near -= frozenset(() if lanes.parts_qos else lanes.partitions)
    return (words for words in _partitions(slurm) if words["PartitionName"] in near)


def _memory(facts: Facts) -> Iterator[Finding]:
    slurm, lanes = _lanes(facts)
    for words in _others(slurm, lanes):
        if not (_has_default(words) or _has_default(slurm.config)):
            yield warning(
                f"partition {words['PartitionName']}: a job without --mem gets all memory of its "
                "nodes, so no part fits beside it",
                Change("DefMemPerCPU", str(_memory_per_cpu(slurm)), of_partition(words)),
            )


def _has_default(words: Words) -> bool:
    """True if a partition, or slurm.conf for all, has a default for a job's memory."""
    keys = ("DefMemPerCPU", "DefMemPerNode")
    is_given = any(words.get(key, "UNLIMITED") not in ("UNLIMITED", "0") for key in keys)
    return is_given or "DefMemPerGPU=" in words.get("JobDefaults", "")


def _memory_per_cpu(slurm: SlurmSays) -> int:
    """MiB: the smallest memory of a node for each of its CPUs."""
    pairs = ((words.get("RealMemory", ""), words.get("CPUTot", "")) for words in slurm.nodes)
    shares = [
        int(memory) // int(cpus)
        for memory, cpus in pairs
        if memory.isdigit() and cpus.isdigit()
        if int(cpus)
    ]
    return max(1, min(shares, default=2000))


def _packing(facts: Facts) -> Iterator[Finding]:
    slurm, lanes = _lanes(facts)
    for words in _others(slurm, lanes):
        if words.get("LLN") == "YES":
            yield _spreads(f"partition {words['PartitionName']}: LLN=YES")
    if "CR_LLN" in slurm.value("SelectTypeParameters").upper():
        yield _spreads("SelectTypeParameters has CR_LLN")
    kept = [words for words in slurm.nodes if "RestrictedCoresPerGPU" in words]
    if kept:
        yield note(
            f"{plural(len(kept), 'node')} with RestrictedCoresPerGPU, like {kept[0]['NodeName']}",
            advice="jobs with unit=task cannot use cores that are kept for GPUs, and may wait",
        )


def _spreads(seen: str) -> Finding:
    return note(
        f"{seen}: Slurm spreads small jobs over all nodes",
        advice="that leaves fewer whole idle nodes; remove it if jobs wait for whole nodes",
    )


def _epilog(facts: Facts) -> Iterator[Finding]:
    _lane_names(facts)
    for hook in known(facts.hooks):
        is_on_node = hook.key in ("Prolog", "Epilog") and hook.text is not None
        text = re.sub(r"(?m)^\s*#.*", "", hook.text or "")
        if is_on_node and _ALL_OF_USER.search(text) and not _ASKS_FIRST.search(text):
            yield warning(
                f"{hook.key}={hook.value} ends all processes of the job's user on the node",
                advice="several jobs of a user may share a node: end only the processes of the job "
                "(as proctrack/cgroup does), or first ask squeue for the user's other jobs there",
            )


TABLE = (
    Check(
        "part-nodes",
        Category.PARTS,
        "Slurm's settings allow fragments on parts of nodes",
        "This check needs site.part_nodes. Slurm must preempt parts before whole nodes, and jobs "
        "of both sides must be able to share a node. While a line is missing, ticks give no parts.",
        _part_nodes,
    ),
    Check(
        "part-isolation",
        Category.PARTS,
        "cgroups keep a part to its own GPUs, memory and cores",
        "Without ConstrainDevices and ConstrainRAMSpace a script can use the GPUs and the memory "
        "of the job beside it. slurmctld reports only its own cgroup.conf. `malleable doctor "
        "--node` reads the file of a node.",
        _isolation,
    ),
    Check(
        "part-cgroups",
        Category.NODE,
        "cgroup.conf of this node keeps a part to its own GPUs and memory",
        "This check needs site.part_nodes. slurmd reads its own file, which slurmctld cannot see.",
        _cgroups_here,
    ),
    Check(
        "part-memory",
        Category.PARTS,
        "a job without --mem does not take all memory of its node",
        "Without DefMemPerCPU, DefMemPerGPU or DefMemPerNode a job without --mem gets the whole "
        "memory of its nodes. Then no job can use the GPUs beside it.",
        _memory,
    ),
    Check(
        "part-packing",
        Category.PARTS,
        "Slurm packs small jobs, and all jobs may use all cores",
        "With LLN small jobs spread over all nodes. RestrictedCoresPerGPU keeps cores for jobs "
        "with GPUs.",
        _packing,
    ),
    Check(
        "part-epilog",
        Category.PARTS,
        "no Prolog or Epilog ends all processes of a user on the node",
        "Where jobs share nodes, the end of a job must not end another job of the same user.",
        _epilog,
    ),
)
