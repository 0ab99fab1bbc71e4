"""Commands called in this process, and their output."""

from __future__ import annotations

import json

import pytest

from slurm_hooks import cli

Output = pytest.CaptureFixture[str]


def run(capsys: Output, *words: str) -> tuple[int, str, str]:
    """Return the exit code, and the command's output on stdout and stderr."""
    code = cli.main(words)
    said = capsys.readouterr()
    return code, said.out, said.err


def job_id(capsys: Output) -> str:
    """The only job of the made-up site."""
    return str(json.loads(run(capsys, "status", "--json")[1])["jobs"][0]["job_id"])
