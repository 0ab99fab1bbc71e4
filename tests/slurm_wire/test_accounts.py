"""Accounts of jobs: free text where there is no accounting."""

from __future__ import annotations

import pytest

from slurm_hooks.slurm.accounts import accounts_command, parse_accounts


def cell(text: str) -> str:
    return text[:64].ljust(64)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"7|{cell('ml')}|\n8|{cell('a.b-c')}|\n", {7: "ml", 8: "a.b-c"}),
        (f"7|{cell('ml+x')}|\n8|{cell('m l')}|\n", {7: "ml+x"}),
        (f"7|{cell('ml')}|\n7|{cell('ml')}|\n", {7: "ml"}),
        (f"7|{cell('(null)')}|\n", {}),
        (f"7|{cell('ml')}|\n7|{cell('other')}|\n", {}),  # somebody's forged row
        (f"9|{cell('x')}\n7|{cell('ml')}|\n", {7: "ml"}),
        (f"7|{'m' * 64}|\n", {}),  # cut: nobody knows how it goes on
        ("", {}),
        ("slurm_load_jobs error\n", {}),
    ],
)
def test_what_is_read(text: str, found: dict[int, str]) -> None:
    assert parse_accounts(text) == found


def test_the_question_is_one_command() -> None:
    assert "--partition=a,b" in accounts_command(("a", "b")).argv
