"""Check that the ceilings in [mode] have their meaning."""

from __future__ import annotations

from collections.abc import Iterator

from slurm_hooks.doctor.facts import Facts, known
from slurm_hooks.doctor.finding import Category, Check, Finding, warning


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
        "account-ceiling",
        Category.TICK,
        "a database defines the accounts that have a ceiling (mode.max_nodes_per_account)",
        "Otherwise a user passes the ceiling with another word for the account.",
        _account_ceiling,
        is_ours=True,
    ),
)
