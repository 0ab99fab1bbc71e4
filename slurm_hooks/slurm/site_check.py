"""What slurm.conf says that would break a promise: one line for each, with what to write instead.

For an administrator who asks; a tick needs none of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from ClusterShell.NodeSet import NodeSetParseError

from slurm_hooks.slurm.scontrol import Words, read_config, read_records
from slurm_hooks.slurm.text import expand, parse_limit

LONG_KILL_WAIT_S = 60
# Ended jobs that slurmctld has room for, a second: with the defaults 10,000 / 300 s = 33.
FEW_JOBS_A_SECOND = 10
TICKS_TO_SEE_AN_END = 4


@dataclass(frozen=True)
class Site:
    """The words of `show config`, of our partitions and of those that share nodes with ours."""

    config: Words
    ours: tuple[Words, ...]
    others: tuple[tuple[Words, Words], ...]  # (another partition, that of ours it overlaps)
    every_s: float

    def seconds(self, key: str) -> int:
        """A number of seconds of the configuration, -1 if there is none."""
        found = re.match(r"\d+", self.config.get(key, ""))
        return int(found.group()) if found else -1


def check_site(text: str, partitions: Sequence[str], every_s: float) -> tuple[str, ...]:
    """All findings in the answer to cluster_command, for ticks every `every_s` seconds."""
    site = _read(text, partitions, every_s)
    return tuple(line for check in _CHECKS for line in check(site))


def _read(text: str, partitions: Sequence[str], every_s: float) -> Site:
    found = read_records(text, "PartitionName")
    ours = [words for words in found if words["PartitionName"] in partitions]
    others = [words for words in found if words not in ours]
    shared = [(one, two) for one in others for two in ours if _nodes(one) & _nodes(two)]
    return Site(read_config(text), tuple(ours), tuple(shared), every_s)


def _nodes(partition: Words) -> frozenset[str]:
    """Its nodes; none if the list cannot be read, which each tick reports."""
    try:
        return expand(partition.get("Nodes", ""))
    except NodeSetParseError:
        return frozenset()


def _over_time(site: Site) -> Iterator[str]:
    everywhere = site.config.get("OverTimeLimit", "0").split(" ")[0]
    for partition in site.ours:
        own = partition.get("OverTimeLimit", "NONE")
        value = everywhere if own == "NONE" else own
        if value != "0":
            yield (
                f"partition {partition['PartitionName']}: OverTimeLimit={value} (minutes) lets "
                "fragments run on when their lease has ended; write OverTimeLimit=0 for it"
            )


def _exempt_time(site: Site) -> Iterator[str]:
    value = site.config.get("PreemptExemptTime", "NONE")
    if value != "NONE" and parse_limit(value) != timedelta(0):
        yield (
            f"PreemptExemptTime={value}: nobody can preempt a fragment for so long after its "
            "start; write PreemptExemptTime=0"
        )


def _priority_tier(site: Site) -> Iterator[str]:
    if site.config.get("PreemptType") != "preempt/partition_prio":
        return
    for other, own in site.others:
        tier, limit = int(other.get("PriorityTier", 1)), int(own.get("PriorityTier", 1))
        if tier <= limit:
            yield (
                f"partition {other['PartitionName']}: PriorityTier={tier} is not above that of "
                f"{own['PartitionName']} ({limit}), with which it shares nodes, so its jobs cannot "
                f"preempt fragments; write PriorityTier={limit + 1} or more for it"
            )


def _grace_time(site: Site) -> Iterator[str]:
    for partition in site.ours:
        if partition.get("GraceTime", "0") != "0":
            yield (
                f"partition {partition['PartitionName']}: GraceTime={partition['GraceTime']} is "
                "enforced by a slow periodic check, so urgent jobs wait some 20 s for its nodes; "
                "write GraceTime=0, KillWait is the grace"
            )


def _over_subscribe(site: Site) -> Iterator[str]:
    for partition in site.ours:
        value = partition.get("OverSubscribe", "NO")
        if value.startswith("FORCE"):
            yield (
                f"partition {partition['PartitionName']}: OverSubscribe={value} puts other jobs on "
                "the nodes of fragments; write OverSubscribe=EXCLUSIVE"
            )


def _job_age(site: Site) -> Iterator[str]:
    age_s, most = site.seconds("MinJobAge"), site.seconds("MaxJobCount")
    if age_s == 0 or 0 < most < FEW_JOBS_A_SECOND * age_s:
        kept = "for ever" if age_s == 0 else f"for {age_s} s"
        yield (
            f"MinJobAge={age_s} with MaxJobCount={most}: ended jobs are kept {kept} and "
            "count, and once there are so many nobody can submit; write MinJobAge=300"
        )
    shortest_s = TICKS_TO_SEE_AN_END * site.every_s
    if 0 < age_s < shortest_s:
        yield (
            f"MinJobAge={age_s}: fragments that ended may be forgotten before a tick has seen how; "
            f"write MinJobAge=300 (at least {shortest_s:.0f})"
        )


def _kill_wait(site: Site) -> Iterator[str]:
    wait_s = site.seconds("KillWait")
    if wait_s > LONG_KILL_WAIT_S:
        yield (
            f"KillWait={wait_s}: an urgent job waits so long for a fragment that does not react, "
            "and holes are used that much less; write KillWait=30"
        )


_CHECKS = (
    _over_time,
    _exempt_time,
    _priority_tier,
    _grace_time,
    _over_subscribe,
    _job_age,
    _kill_wait,
)
