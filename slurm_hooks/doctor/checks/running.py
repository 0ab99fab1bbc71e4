"""Check the limits on running jobs that count fragments together with other jobs.

Slurm preempts for nodes and never for a limit: a job that waits for a limit waits until fragments
have left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from slurm_hooks.doctor.checks.limits import here, named
from slurm_hooks.doctor.facts import Facts, known
from slurm_hooks.doctor.finding import (
    Category,
    Check,
    Finding,
    Fix,
    Paste,
    Run,
    error,
    warning,
)
from slurm_hooks.slurm.scontrol import Words

_OF_ASSOCIATION = ("GrpTRES", "GrpTRESRunMins", "GrpJobs", "MaxJobs")
_OF_QOS = (
    *("GrpTRES", "GrpTRESRunMins", "GrpJobs"),
    *("MaxTRESPU", "MaxTRESRunMinsPU", "MaxJobsPU"),
    *("MaxTRESPA", "MaxTRESRunMinsPA", "MaxJobsPA"),
)
_OF_A_FRAGMENT = ("cpu", "mem", "node", "billing", "gres/")  # of what a limit may count
_MOST_NAMED = 3


def _running_limits(facts: Facts) -> Iterator[Finding]:
    qos = known(facts.accounting).qos
    enforced = known(facts.slurm).value("AccountingStorageEnforce").split(",")
    if not {"limits", "safe"} & set(enforced):
        return
    site = facts.settings.site
    shared = _shared(here(facts), site.account)
    limits = _limits(shared, _OF_ASSOCIATION)
    if limits and site.account:
        yield warning(
            f"above account {site.account}: {_listed(limits)}",
            advice="these limits count fragments with all other jobs below. A job of another "
            f"account than {site.account} may wait for fragments there, and ticks do not see it. "
            f"Remove the limit, or give {site.account} a parent without a limit",
        )
    elif limits:
        yield warning(
            _listed(limits, "association "),
            *_own(facts, "account"),
            advice="fragments count against these limits like any job. While a job waits for such "
            "a limit, the malleable jobs of its user or account make room, so it waits for a tick "
            "and their notice. They do not make room for a limit of an account above. A separate "
            "account (site.account) avoids both",
        )
    limits = [] if site.qos else _limits(qos, _OF_QOS)
    if limits:
        yield warning(
            _listed(limits, "qos "),
            *_own(facts, "qos"),
            advice="fragments count against these limits like any job. While a job waits for such "
            "a limit, the malleable jobs with that QOS make room, even for the QOS of a partition "
            "that they do not use. A separate QOS (site.qos) avoids that",
        )


def _own(facts: Facts, name: str) -> tuple[Fix, ...]:
    key = Paste(facts.settings_path, f'{name} = "malleable"', place="in the section [site]")
    if name == "qos":
        every = "sacctmgr -i modify account root set qos+=malleable"
        return (Run("sacctmgr -i add qos malleable"), Run(every), key)
    users = Run("sacctmgr -i add user NAMES account=malleable")
    return (Run("sacctmgr -i add account malleable"), users, key)


def _site_account(facts: Facts) -> Iterator[Finding]:
    name = facts.settings.site.account
    if not name:
        return
    rows = [words for words in here(facts) if _is_named(words, name)]
    if not rows:
        yield error(
            f"site.account: there is no account {name} on this cluster",
            Run(f"sacctmgr -i add account {name}"),
            Run(f"sacctmgr -i add user NAMES account={name}"),
            advice="until then Slurm refuses every malleable job; else correct site.account",
        )
    elif not any(words.get("User") for words in rows):
        yield error(
            f"site.account: no user has an association with account {name}",
            Run(f"sacctmgr -i add user NAMES account={name}"),
            advice="Slurm refuses the malleable jobs of users without an association",
        )


def _is_named(words: Words, account: str) -> bool:
    return words.get("Account", "").lower() == account.lower()


def _shared(rows: list[Words], account: str) -> list[Words]:
    """The associations whose limits count malleable and other jobs together: all associations, or
    with `account` the associations of the accounts above it."""
    if not account:
        return rows
    accounts = {w["Account"]: w for w in rows if w.get("Account") and not w.get("User")}
    above: list[Words] = []
    name = account.lower()
    while name in accounts and len(above) < len(accounts):
        name = accounts[name].get("ParentName", "")
        above += [accounts[name]] if name in accounts else []
    return above


def _limits(rows: Iterable[Words], keys: Iterable[str]) -> list[tuple[str, str]]:
    """The limits that count fragments, each with the name of its owner."""
    return [
        (named(words), f"{key}={words[key]}")
        for words in rows
        for key in keys
        if _counts(words.get(key, ""))
    ]


def _counts(limit: str) -> bool:
    return limit.isdigit() or any(part.startswith(_OF_A_FRAGMENT) for part in limit.split(","))


def _listed(limits: list[tuple[str, str]], kind: str = "") -> str:
    rest = len(limits) - _MOST_NAMED
    more = f" and {rest} more" if rest > 0 else ""
    return kind + ", ".join(f"{owner}: {limit}" for owner, limit in limits[:_MOST_NAMED]) + more


TABLE = (
    Check(
        "running-limits",
        Category.LIMITS,
        "no limit on running jobs counts fragments together with other jobs",
        "Slurm preempts for nodes, but never for a limit. If fragments fill a limit, a job that "
        "waits for it waits until ticks have asked the fragments to leave.",
        _running_limits,
    ),
    Check(
        "site-account",
        Category.LIMITS,
        "the account in site.account exists, and users have an association with it",
        "Malleable jobs are charged to this account. Slurm refuses the jobs of users without an "
        "association with it.",
        _site_account,
    ),
)
