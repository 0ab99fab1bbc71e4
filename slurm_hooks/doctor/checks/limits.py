"""What bounds the number and length of fragments: arrays, job counts, accounting, partitions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from slurm_hooks.doctor.facts import CannotLook, Facts, Unread, known
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
from slurm_hooks.slurm.scontrol import Words, of_partition
from slurm_hooks.slurm.text import parse_limit
from slurm_hooks.words.engines import offered

REQUESTS = 5  # of a fragment in its first minute (tests/promises/test_asks.py)
JOBS_OF_ALL = 10  # as many malleable jobs of full size should fit into MaxJobCount
_RESTART = "restart slurmctld"
_SUBMIT_LIMITS = (
    "MaxSubmitJobs",
    "MaxSubmit",
    "GrpSubmitJobs",
    "GrpSubmit",
    "MaxSubmitPU",
    "MaxSubmitPA",
)


def largest_job(facts: Facts) -> tuple[int, str]:
    """How many elements a malleable job may have, and the setting that says so."""
    request = facts.settings.request
    has_pools = any(row.is_pool for row in offered(request.engines).values())
    if has_pools and request.max_workers > request.max_fragments:
        return request.max_workers, "request.max_workers"
    return request.max_fragments, "request.max_fragments"


def _array_size(facts: Facts) -> Iterator[Finding]:
    most = known(facts.slurm).number("MaxArraySize", 1001)
    wanted = facts.settings.request.max_fragments
    if wanted > most - 1:
        yield warning(
            f"MaxArraySize={most} allows {most - 1} fragments, request.max_fragments {wanted}",
            Change("MaxArraySize", str(wanted + 1), then=_RESTART),
        )


def _job_count(facts: Facts) -> Iterator[Finding]:
    most = known(facts.slurm).number("MaxJobCount", 10_000)
    elements, name = largest_job(facts)
    if most < JOBS_OF_ALL * elements:
        yield warning(
            f"MaxJobCount={most}: {max(1, most // elements)} malleable jobs of {elements} "
            f"elements ({name}) would fill it",
            Change("MaxJobCount", str(max(10_000, JOBS_OF_ALL * elements)), then=_RESTART),
        )


def _request_rate(facts: Facts) -> Iterator[Finding]:
    """The defaults are those of Slurm 23.02 to 26.05, where root and SlurmUser have no limit."""
    slurm, key, size = known(facts.slurm), "SlurmctldParameters", "rl_bucket_size"
    words = slurm.value(key).split(",")
    per_s = slurm.option(key, "rl_refill_rate", 2) / max(
        1, slurm.option(key, "rl_refill_period", 1)
    )
    refill, fragments = int(60 * per_s), facts.settings.request.max_fragments
    allowed, wanted = slurm.option(key, size, 30) + refill, REQUESTS * fragments
    if "rl_enable" in words and allowed < wanted:
        kept = [word for word in words if not word.startswith(size)]
        yield warning(
            f"{key} allows a user {allowed} requests in a first minute, and a malleable job of "
            f"{fragments} fragments makes {wanted} in its",
            Change(key, ",".join([*kept, f"{size}={wanted - refill}"])),
        )


def _submit_limits(facts: Facts) -> Iterator[Finding]:
    qos, (wanted, name) = known(facts.accounting).qos, largest_job(facts)
    for kind, rows in (("qos", qos), ("association", here(facts))):
        for key in _SUBMIT_LIMITS:
            low = [w for w in rows if w.get(key, "").isdigit() and int(w[key]) < wanted]
            if low:
                least = min(low, key=lambda words: int(words[key]))
                others = f" (and {len(low) - 1} more)" if len(low) > 1 else ""
                yield note(
                    f"{kind} {named(least)}{others}: {key}={least[key]} is below {name} = {wanted}",
                    advice="its users can submit malleable jobs of up to that many fragments, "
                    "less whatever else they have in the queue",
                )


def here(facts: Facts) -> list[Words]:
    """The associations of this cluster; the database may be that of several."""
    own = known(facts.slurm).value("ClusterName").lower()
    every = known(facts.accounting).associations
    return [words for words in every if words.get("Cluster", own).lower() in (own, "")]


def named(words: Words) -> str:
    """A QOS or an association, as people know it."""
    name = [words[key] for key in ("Name", "Account", "User", "Partition") if words.get(key)]
    return "/".join(name) or "root"


def _usage(facts: Facts) -> Iterator[Finding]:
    name = facts.settings.site.qos
    rows = {words["Name"]: words for words in known(facts.accounting).qos}
    taste = "only if leftovers should be free of charge"
    if not name:
        yield note(
            "use of idle nodes costs fair share (site.qos is not set)",
            Run("sacctmgr -i add qos malleable set UsageFactor=0"),
            Run("sacctmgr -i modify account root set qos+=malleable"),
            Paste(facts.settings_path, 'qos = "malleable"', place="in the section [site]"),
            advice=f"{taste}; then render the policy again",
        )
        return
    if name not in rows:
        raise CannotLook(f"there is no QOS {name}")
    factor = rows[name].get("UsageFactor") or "1"
    if float(factor) != 0:
        yield note(
            f"use of idle nodes costs fair share (QOS {name}: UsageFactor={factor})",
            Run(f"sacctmgr -i modify qos {name} set UsageFactor=0"),
            advice=taste,
        )


def _longest_lease(words: Words, facts: Facts) -> timedelta:
    """The longest lease in this partition: job_submit shortens leases to its MaxTime."""
    lease = timedelta(seconds=facts.settings.lease.length_s)
    try:
        most = parse_limit(words.get("MaxTime", "UNLIMITED"))
    except ValueError:
        return lease
    return lease if most is None else min(lease, most)


def _partition_time(facts: Facts) -> Iterator[Finding]:
    wanted = facts.settings.lease
    for words in known(facts.slurm).ours:
        lease = _longest_lease(words, facts)
        seen = f"partition {words['PartitionName']}: MaxTime={words.get('MaxTime')} is shorter than"
        if lease < timedelta(seconds=wanted.shortest_hole_s):
            yield error(
                f"{seen} the shortest hole worth starting in "
                f"(lease.shortest_hole_s = {wanted.shortest_hole_s}): job_submit refuses malleable "
                "jobs there",
                Change("MaxTime", "INFINITE", of_partition(words)),
            )
        elif lease < timedelta(seconds=wanted.length_s):
            yield note(
                f"{seen} a lease (lease.length_s = {wanted.length_s}): leases there are as long as "
                "MaxTime"
            )


def _enforced(facts: Facts) -> Iterator[Finding]:
    slurm = known(facts.slurm)
    if isinstance(facts.accounting, Unread):
        return
    if "safe" in slurm.value("AccountingStorageEnforce"):
        yield note(
            "AccountingStorageEnforce=safe: a fragment does not start if its lease could exceed "
            "GrpTRESMins",
            advice="short leases (lease.length_s) pass more easily",
        )


TABLE = (
    Check(
        "max-array-size",
        Category.LIMITS,
        "MaxArraySize has room for request.max_fragments",
        "Each fragment is an element of a job array. `malleable render lua` takes the smaller of "
        "both, so users are refused above it.",
        _array_size,
    ),
    Check(
        "max-job-count",
        Category.LIMITS,
        f"MaxJobCount has room for {JOBS_OF_ALL} malleable jobs of full size",
        "Every fragment counts against MaxJobCount, including ended ones for MinJobAge. Once it "
        "is reached nobody on the cluster can submit.",
        _job_count,
    ),
    Check(
        "request-rate",
        Category.LIMITS,
        "a limit on a user's requests (rl_enable) has room for the start of a malleable job",
        "Fragments ask Slurm when their lease ends and tell it where they stand. Beyond the limit "
        "Slurm makes them wait: what they tell comes late, and a fragment whose question about a "
        "renewed lease has no answer leaves at the end that it knows.",
        _request_rate,
    ),
    Check(
        "submit-limits",
        Category.LIMITS,
        "submit limits of associations and QOS have room for the largest malleable job",
        "Every fragment counts against MaxSubmitJobs and GrpSubmitJobs, so a large malleable job "
        "is refused at submission where they are lower.",
        _submit_limits,
    ),
    Check(
        "usage-factor",
        Category.LIMITS,
        "the use of leftovers is free of charge",
        "With fair share, a user who uses idle nodes that nobody wanted gets less later. With "
        "UsageFactor=0 of the QOS that site.qos gives to malleable jobs, they do not. That of a "
        "QOS which is only the partition's has no effect (22.05.8).",
        _usage,
    ),
    Check(
        "partition-time",
        Category.LIMITS,
        "our partitions allow a whole lease",
        "A lease is renewed while the hole lasts. Short leases are renewed more often, and each "
        "must be as long as the shortest hole worth starting in.",
        _partition_time,
    ),
    Check(
        "enforced-limits",
        Category.LIMITS,
        "limits are not enforced in advance",
        "With AccountingStorageEnforce=safe Slurm starts a job only if it can run to its time "
        "limit within the limits of its association.",
        _enforced,
    ),
)
