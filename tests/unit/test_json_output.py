"""Every command with --json prints a JSON object of the same form, also when it fails."""

from __future__ import annotations

import argparse
import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from programs import write_programs
from slurm_hooks import cli
from slurm_hooks.errors import Exit

Output = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[2]
JOB = "JOBID"
# A line that runs on the made-up site, and a line that fails. {site} is its directory.
LINES = {
    "status": ("status", "status 999999"),
    "explain": (f"explain {JOB}", "explain 999999"),
    "plan": ("plan", "plan --snapshot /nowhere/seen"),
    "reconcile": ("reconcile --dry-run", "reconcile --for 5"),
    "hold": ("", "hold x"),
    "release": (f"release {JOB}", "release x"),
    "wish": ("", "wish 3"),
    "off": ("off", "off --state-dir {site}/malleable.toml"),
    "on": ("on", "on --state-dir {site}/malleable.toml"),
    "doctor": ("doctor settings", "doctor nosuchcheck"),
    "test": ("", "test --nodes x"),
    "report": ("", "report --since soon"),
    "bundle": ("bundle -o {site}/new.tar.gz", "bundle -o {site}/malleable.toml"),
    "pool": ("pool --max=2 --detach -- true", "pool --max=0 -- true"),
    "map": ("map --max=2 --detach --dir={site}/map -- true ::: a", "map --max=0 -- true ::: a"),
    "replay": ("", "replay"),
    "top": ("top", "top --every x"),
    "metrics": ("", "metrics"),
    "render lua": ("render lua --check", "render lua -o {site}/none/policy.lua"),
    "render job-path": ("render job-path {site}/path", "render job-path {site}/malleable.toml/x"),
    "sandbox": ("sandbox --base {site} status", "sandbox --base {site} down"),
    "sandbox down": ("", "sandbox --base {site} down"),
    "sandbox shell": ("", "sandbox --base {site} shell"),
    "sandbox run": ("", "sandbox --base {site} run -- true"),
    "sandbox up": ("", "sandbox up --nodes 0"),
    "sandbox status": ("sandbox --base {site} status", "sandbox status x"),
}
RIGHT = [name for name, (line, _) in LINES.items() if line]


@pytest.fixture
def busy_site(site: Path) -> Path:
    """A busy site that takes jobs too."""
    write_programs(site / "bin", {"sbatch": "echo 17", "sdiag": ":", "sinfo": ":"})
    return site


def with_json(parser: argparse.ArgumentParser, below: Any, path: str = "") -> Iterator[str]:
    if any("--json" in action.option_strings for action in parser._actions):
        yield path
    for name, child in below(parser).items():
        yield from with_json(child, below, f"{path} {name}".strip())


def test_the_table_has_every_command_that_takes_json() -> None:
    reference = runpy.run_path(str(ROOT / "packaging" / "reference.py"))
    parser = reference["whole_parser"]()
    assert sorted(with_json(parser, reference["subcommands"])) == sorted(LINES)


def run(capsys: Output, site: Path, line: str) -> tuple[int, Any, str]:
    words = line.format(site=site).split()
    if JOB in words:
        cli.main(["status", "--json"])
        job = str(json.loads(capsys.readouterr().out)["jobs"][0]["job_id"])
        words = [job if word == JOB else word for word in words]
    end = words.index("--") if "--" in words else len(words)
    code = cli.main([*words[:end], "--json", *words[end:]])
    said = capsys.readouterr()
    assert said.out.count("\n") == 1 or words[0] == "doctor"
    return code, json.loads(said.out), said.err


def walk(data: Any) -> Iterator[tuple[str, Any]]:
    """All keys with their values."""
    rows = enumerate(data) if isinstance(data, list) else ()
    for key, value in data.items() if isinstance(data, dict) else rows:
        yield str(key), value
        yield from walk(value)


@pytest.mark.parametrize("name", RIGHT)
def test_the_output_of_every_command_has_the_same_form(
    capsys: Output, busy_site: Path, name: str
) -> None:
    code, data, _ = run(capsys, busy_site, LINES[name][0])
    assert code in (Exit.DONE, Exit.FOUND, Exit.ERRORS)
    assert data["version"] == 1
    assert "error" not in data
    for key, value in walk(data):
        assert key not in ("lease", "shortest_hole", "limit", "hit"), f"{key}: no unit"
        assert not (isinstance(value, str) and "\0" in value), f"{key}: {value!r}"
        if key in ("at", "since") or key.endswith("_at"):
            assert value is None or re.fullmatch(r"\d{4}-.*T.*\+00:00", value), f"{key}: {value}"


@pytest.mark.parametrize("name", LINES)
def test_every_failure_has_the_same_form(capsys: Output, busy_site: Path, name: str) -> None:
    code, data, err = run(capsys, busy_site, LINES[name][1])
    assert code >= Exit.USAGE
    assert data == {"version": 1, "error": {"exit_code": code, "lines": data["error"]["lines"]}}
    assert err.splitlines() == [f"malleable: {line}" for line in data["error"]["lines"]]
