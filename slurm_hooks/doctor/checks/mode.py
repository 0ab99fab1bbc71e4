"""Check that the names in [mode] exist, and that its ceilings have their meaning."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from slurm_hooks.doctor.checks.limits import here
from slurm_hooks.doctor.facts import Facts, known
from slurm_hooks.doctor.finding import Category, Check, Finding, error, warning

MOST_NAMED = 5


def _some(names: Collection[str]) -> str:
    """The first few names."""
    rest = len(names) - MOST_NAMED
    return ", ".join(sorted(names)[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _correct(facts: Facts, key: str) -> str:
    return f"correct mode.{key} in {facts.settings_path or 'malleable.toml'}"


def _users(facts: Facts) -> Iterator[Finding]:
    if facts.settings.mode.users and known(facts.strange_users):
        names = _some(known(facts.strange_users))
        yield warning(f"mode.users: this host has no user {names}", advice=_correct(facts, "users"))


def _accounts(facts: Facts) -> Iterator[Finding]:
    wanted = {name.lower() for name in facts.settings.mode.accounts}  # as Slurm keeps them
    if not wanted:
        return
    there = {words.get("Account", "") for words in here(facts)}
    if wanted - there:
        yield warning(
            f"mode.accounts: there is no account {_some(wanted - there)} on this cluster",
            advice=_correct(facts, "accounts"),
        )


def _nodes(facts: Facts) -> Iterator[Finding]:
    wanted = set(facts.settings.mode.nodes)
    if not wanted:
        return
    slurm = known(facts.slurm)
    there = {words["NodeName"] for words in slurm.nodes}
    finding = warning if wanted & slurm.our_nodes else error  # else no usable node is left
    for names, fault in (
        (wanted - there, "Slurm has no node"),
        (wanted & there - slurm.our_nodes, "in no partition of site.partitions:"),
    ):
        if names:
            yield finding(f"mode.nodes: {fault} {_some(names)}", advice=_correct(facts, "nodes"))


def _account_ceiling(facts: Facts) -> Iterator[Finding]:
    key, account = "mode.max_nodes_per_account", facts.settings.site.account
    if not facts.settings.mode.max_nodes_per_account:
        return
    if account:
        yield warning(
            f"{key}: all malleable jobs are charged to {account} (site.account), so the ceiling "
            "applies to all of them together",
            advice=f"set {key} = 0, and mode.max_nodes or mode.max_nodes_per_user instead",
        )
    elif known(facts.slurm).value("AccountingStorageType") != "accounting_storage/slurmdbd":
        yield warning(
            f"{key}: without an accounting database users may write any word into --account",
            advice=f"set {key} = 0, and mode.max_nodes_per_user instead",
        )


TABLE = (
    Check(
        "canary-users",
        Category.TICK,
        "the users in mode.users exist",
        "If a name has a typing error, the jobs of that user wait forever.",
        _users,
        is_ours=True,
    ),
    Check(
        "canary-accounts",
        Category.TICK,
        "the accounts in mode.accounts exist",
        "If a name has a typing error, the jobs of that account wait forever.",
        _accounts,
        is_ours=True,
    ),
    Check(
        "canary-nodes",
        Category.TICK,
        "the nodes in mode.nodes exist, in partitions of malleable jobs",
        "Malleable jobs use only these nodes, and every fragment elsewhere is asked to leave.",
        _nodes,
        is_ours=True,
    ),
    Check(
        "account-ceiling",
        Category.TICK,
        "a database defines the accounts that have a ceiling (mode.max_nodes_per_account)",
        "Otherwise a user passes the ceiling with another word for the account.",
        _account_ceiling,
        is_ours=True,
    ),
)
