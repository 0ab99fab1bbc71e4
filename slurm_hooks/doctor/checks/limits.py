"""Check the limits on fragments and their length: arrays, job counts, accounting, partitions."""

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
from slurm_hooks.protocol.engines import offered
from slurm_hooks.slurm.scontrol import Words, of_partition
from slurm_hooks.slurm.text import parse_limit

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
    """The largest number of elements of a malleable job, and the setting that limits it."""
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
    """Warn of a low limit. The defaults are from Slurm 23.02 to 26.05. Root and SlurmUser have no
    limit."""
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
            f"{key} allows a user {allowed} requests in the first minute, but a malleable job of "
            f"{fragments} fragments makes {wanted}",
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
                    "minus their other jobs in the queue",
                )


def here(facts: Facts) -> list[Words]:
    """The associations of this cluster. The database may serve several clusters."""
    own = known(facts.slurm).value("ClusterName").lower()
    every = known(facts.accounting).associations
    return [words for words in every if words.get("Cluster", own).lower() in (own, "")]


def named(words: Words) -> str:
    """The name of a QOS or an association, for people."""
    name = [words[key] for key in ("Name", "Account", "User", "Partition") if words.get(key)]
    return "/".join(name) or "root"


def _usage(facts: Facts) -> Iterator[Finding]:
    name = facts.settings.site.qos
    rows = {words["Name"]: words for words in known(facts.accounting).qos}
    taste = "only if idle nodes should be free of charge"
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
    """The longest lease in this partition. job_submit shortens leases to its MaxTime."""
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
                f"{seen} the shortest hole for a fragment "
                f"(lease.shortest_hole_s = {wanted.shortest_hole_s}): job_submit refuses malleable "
                "jobs there",
                Change("MaxTime", "INFINITE", of_partition(words)),
            )
        elif lease < timedelta(seconds=wanted.length_s):
            yield note(
                f"{seen} a lease (lease.length_s = {wanted.length_s}): leases there last MaxTime"
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
        "Each fragment is an element of a job array. `malleable render lua` uses the smaller of "
        "both limits, and job_submit refuses larger jobs.",
        _array_size,
    ),
    Check(
        "max-job-count",
        Category.LIMITS,
        f"MaxJobCount has room for {JOBS_OF_ALL} malleable jobs of full size",
        "Every fragment counts against MaxJobCount, and an ended fragment counts for MinJobAge. "
        "When MaxJobCount is reached, no user can submit.",
        _job_count,
    ),
    Check(
        "request-rate",
        Category.LIMITS,
        "a limit on a user's requests (rl_enable) has room for the start of a malleable job",
        "Fragments ask Slurm for the end of their lease, and report their progress. Beyond the "
        "limit Slurm makes them wait. Then reports come late, and a fragment without an answer "
        "leaves at the old end of its lease.",
        _request_rate,
    ),
    Check(
        "submit-limits",
        Category.LIMITS,
        "submit limits of associations and QOS have room for the largest malleable job",
        "Every fragment counts against MaxSubmitJobs and GrpSubmitJobs. Where these are lower, "
        "Slurm refuses a large malleable job at submission.",
        _submit_limits,
    ),
    Check(
        "usage-factor",
        Category.LIMITS,
        "the use of idle nodes is free of charge",
        "With fair share, users of idle nodes get less later. UsageFactor=0 of the QOS in site.qos "
        "prevents that. The UsageFactor of a partition's QOS has no effect (22.05.8).",
        _usage,
    ),
    Check(
        "partition-time",
        Category.LIMITS,
        "our partitions allow a whole lease",
        "Ticks renew a lease while the hole lasts. Short leases need more renewals. A lease must "
        "be at least as long as the shortest hole for a fragment.",
        _partition_time,
    ),
    Check(
        "enforced-limits",
        Category.LIMITS,
        "Slurm does not enforce limits in advance",
        "With AccountingStorageEnforce=safe Slurm starts a job only if its association's limits "
        "allow it to run until its time limit.",
        _enforced,
    ),
)
