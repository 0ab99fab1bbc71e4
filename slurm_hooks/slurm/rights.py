"""Finds the users that may have the QOS of malleable jobs.

A tick gives QOS to fragments of a job with a core, and to parts of nodes where QOS decide. It does
so as an operator, and Slurm lets an operator give any QOS. So the tick asks first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from slurm_hooks.errors import CommandRefused, MissingProgram, RetryLater
from slurm_hooks.model import MalleableJob, Slurm, Snapshot
from slurm_hooks.settings.values import Site
from slurm_hooks.slurm.live import Port
from slurm_hooks.slurm.text import Command


def rights_command(users: Iterable[str]) -> Command:
    """Ask for the QOS of all associations of these users."""
    words = ("show", "assoc", f"user={','.join(sorted(users))}", "format=User,Account,QOS")
    return Command(("sacctmgr", "--noheader", "--parsable2", *words))


def parse_rights(text: str) -> dict[str, dict[str, frozenset[str]]]:
    """Return the QOS by user and account. Other rows are skipped."""
    rights: dict[str, dict[str, frozenset[str]]] = defaultdict(dict)
    for line in text.splitlines():
        user, *rest = line.split("|")
        if user and len(rest) == 2:
            account, qos = rest[0].lower(), frozenset(rest[1].lower().split(","))
            rights[user][account] = rights[user].get(account, frozenset()) | qos
    return rights


def with_rights(port: Port, seen: Snapshot, site: Site) -> Snapshot:
    """Return the snapshot with the jobs whose user may not have the site's QOS. Only jobs whose
    fragments need it count. Without an answer all of these wait for the next tick."""
    jobs = [job for job in seen.jobs if needs_qos(job, site, seen.slurm)]
    if not (seen.slurm.enforces_qos and jobs):
        return seen
    try:
        rights = parse_rights(port.ask(rights_command({job.user for job in jobs})))
    except (CommandRefused, RetryLater, MissingProgram) as error:
        line = f"no fragment gets QOS {site.qos} now, since its users are not known: {error}"
        ids = frozenset(job.job_id for job in jobs)
        return replace(seen, without_qos=ids, unknown=(*seen.unknown, line))
    denied = (job.job_id for job in jobs if not _may(job, site, rights.get(job.user, {})))
    return replace(seen, without_qos=frozenset(denied))


def needs_qos(job: MalleableJob, site: Site, slurm: Slurm) -> bool:
    """True if fragments of the job are yet to get a QOS of the site: in another partition or, where
    QOS decide, while none has had one."""
    is_part = bool(site.parts_qos) and job.request.slot is not None
    if not (site.qos and (job.request.core or is_part)):
        return False
    is_first = slurm.preempts_by_qos and not any(f.mark.qos for f in job.fragments)
    return is_first or any(f.is_astray(site.partitions) for f in job.fragments)


def _may(job: MalleableJob, site: Site, rights: Mapping[str, frozenset[str]]) -> bool:
    """Tell whether the job's user may have each QOS that its fragments may get.

    That is asked of the account that the fragments get, or of the job's account. If neither is
    known, any account of the user counts.
    """
    account = (site.account or job.account).lower()
    known = (qos for name, qos in rights.items() if not account or name == account)
    wanted = {name.lower() for name in site.qos_of(job.request.slot is not None)}
    return any(wanted <= qos for qos in known)
