"""Commands called in this process, and what they print."""

from __future__ import annotations

import json

import pytest

from slurm_hooks import cli

Output = pytest.CaptureFixture[str]


def run(capsys: Output, *words: str) -> tuple[int, str, str]:
    """The exit code, and what the command has written to stdout and stderr."""
    code = cli.main(words)
    said = capsys.readouterr()
    return code, said.out, said.err


def job_id(capsys: Output) -> str:
    """The only job of the made-up site."""
    return str(json.loads(run(capsys, "status", "--json")[1])["jobs"][0]["job_id"])
