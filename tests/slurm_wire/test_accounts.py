"""Accounts and QOS of jobs: an account is free text where there is no accounting."""

from __future__ import annotations

import pytest

from slurm_hooks.slurm.accounts import Charge, charges_command, parse_charges


def row(job: int, account: str, qos: str = "normal") -> str:
    return f"{job}|{account[:64].ljust(64)}|{qos[:64].ljust(64)}|\n"


@pytest.mark.parametrize(
    ("text", "accounts"),
    [
        (row(7, "ml") + row(8, "a.b-c"), {7: "ml", 8: "a.b-c"}),
        (row(7, "ml+x") + row(8, "m l"), {7: "ml+x"}),
        (row(7, "ml") + row(7, "ml"), {7: "ml"}),
        (row(7, "(null)"), {}),
        (row(7, "ml") + row(7, "other"), {}),  # a row that another user forged
        (f"9|{'x'.ljust(64)}\n{row(7, 'ml')}", {7: "ml"}),
        (row(7, "m" * 64), {}),  # cut: its end is unknown
        ("", {}),
        ("slurm_load_jobs error\n", {}),
    ],
)
def test_accounts(text: str, accounts: dict[int, str]) -> None:
    assert {job: charge.account for job, charge in parse_charges(text).items()} == accounts


@pytest.mark.parametrize(
    ("text", "charge"),
    [
        (row(7, "ml"), Charge("ml", "normal")),
        (row(7, "ml", "with a space"), Charge("ml", "with a space")),
        (row(7, "ml", "(null)"), Charge("ml")),
        (row(7, "ml", "N/A"), Charge("ml")),
        (row(7, "ml") + row(7, "ml", "high"), Charge("ml")),  # an operator changed one element's
    ],
)
def test_qos(text: str, charge: Charge) -> None:
    assert parse_charges(text) == {7: charge}


def test_the_question_is_a_single_command_for_some_partitions_or_all() -> None:
    assert "--partition=a,b" in charges_command(("a", "b")).argv
    assert not [word for word in charges_command().argv if word.startswith("--partition")]
