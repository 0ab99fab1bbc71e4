"""The first impressions of users: help, options before the command, tables that fit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from programs import write_program
from slurm_hooks import cli
from slurm_hooks.commands.console import out
from slurm_hooks.slurm.remarks import parse_names
from unit.calls import Output, job_id, run


def ask(site: Path, test: str, answer: str) -> None:
    """Make squeue give this answer where its words match."""
    path = site / "bin" / "squeue"
    path.write_text(f"#!/bin/sh\ncase $* in {test}) {answer};; esac\n" + path.read_text())


@pytest.mark.parametrize("words", [["help"], ["help", "status"], ["-V"]])
def test_first_attempts_of_users(capsys: Output, words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 0
    assert "malleable" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("--settings f status --json", "status --settings f --json"),
        ("--settings=f --json pool --max=1 -- x", "pool --settings=f --json --max=1 -- x"),
        ("--json --settings f render lua --check", "render lua --json --settings f --check"),
        ("--json sandbox --base d status", "sandbox --json --base d status"),
        ("help status", "status --help"),
        ("status help", "status help"),
        ("--version", "--version"),
        ("--settings", "--settings"),
    ],
)
def test_options_may_stand_before_the_command(line: str, wanted: str) -> None:
    assert cli.ordered(line.split()) == wanted.split()


def test_settings_before_the_command_count(capsys: Output, tmp_path: Path) -> None:
    code, _, err = run(capsys, "--settings", str(tmp_path / "none.toml"), "status")
    assert code == 78
    assert "none.toml" in err


def test_status_names_the_job_and_says_why_in_80_columns(
    capsys: Output, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = json.loads(run(capsys, "status", "--json")[1])["jobs"][0]
    assert job["why"].startswith("the next tick takes it to ")
    ask(site, "*Name:40*", f'printf "%s|%-40s|\\n" {job["job_id"]} "my [red]search"; exit 0')
    assert job["why"] in run(capsys, "status")[1], "only a terminal cuts lines"
    monkeypatch.setattr(out, "_force_terminal", True)
    monkeypatch.setattr(out, "_width", 80)
    head, row = run(capsys, "status")[1].splitlines()
    assert head.split()[:4] == ["JOBID", "NAME", "USER", "STATE"]
    assert head.split()[-1] == "WHY"
    assert "my [red]search" in row
    assert max(len(head), len(row)) <= 80
    assert job["why"][:10] in row


def test_status_of_another_user_is_empty(capsys: Output, site: Path) -> None:
    assert run(capsys, "status", "--user", "somebody")[:2] == (0, "no malleable jobs\n")


def test_status_leaves_ended_jobs_out(capsys: Output, site: Path) -> None:
    answer = site / "held.squeue.txt"
    ended = answer.read_text().replace("|PENDING|", "|COMPLETED|")
    assert ended != answer.read_text()
    answer.write_text(ended)
    code, shown, err = run(capsys, "status")
    assert (code, shown) == (0, "no malleable jobs\n")
    assert "1 ended job left out: --all shows them" in err
    assert "ended" in run(capsys, "status", "--all")[1]


def test_a_name_is_shown_as_a_single_line_of_text() -> None:
    listing = f"7|{'a':40}|\n7|{'forged':40}|\n8|{'x' * 60}|\nodd\n9|{'b' + chr(27) + 'c':40}|\n"
    assert parse_names(listing) == {7: "a", 9: "b?c"}


def test_plan_shows_the_changes(capsys: Output, site: Path) -> None:
    word = job_id(capsys)
    assert f"job {word}: 0 -> " in run(capsys, "plan")[1]
    run(capsys, "off")
    assert run(capsys, "plan")[1].splitlines()[0] == "no job changes its size"
    assert f"job {word}: 0 -> 0 nodes" in run(capsys, "plan", "--all")[1]


@pytest.mark.parametrize("command", ["status", "explain", "release", "doctor job-known"])
def test_a_job_is_a_word_or_an_option(capsys: Output, site: Path, command: str) -> None:
    word = str(json.loads(run(capsys, "status", "--json")[1])["jobs"][0]["job_id"])
    plain = run(capsys, *command.split(), word)
    assert word in plain[1]
    assert run(capsys, *command.split(), "--job", word) == plain


def test_a_wish_of_two_numbers_is_for_that_job() -> None:
    assert cli.is_for_a_job(["wish", "3"])
    assert not cli.is_for_a_job(["wish", "83", "3"])
    assert not cli.is_for_a_job(["wish", "3", "--job", "83"])


def test_a_single_option_names_the_file(capsys: Output, site: Path, tmp_path: Path) -> None:
    assert run(capsys, "plan", "-o", str(tmp_path / "seen"))[0] == 0
    assert json.loads((tmp_path / "seen").read_text())


def test_no_columns_are_as_eighty(capsys: Output, site: Path) -> None:
    for columns in ("0", "80"):
        done = subprocess.run(
            [sys.executable, "-m", "slurm_hooks.cli", "status"],
            env={**os.environ, "COLUMNS": columns},
            capture_output=True,
            text=True,
            check=True,
        )
        head, row = done.stdout.splitlines()
        assert head.startswith("JOBID")
        assert 60 < len(row) <= 80


def test_a_check_names_no_file_that_it_did_not_write(
    capsys: Output, site: Path, tmp_path: Path
) -> None:
    words = ("render", "lua", "--json", "-o", str(tmp_path / "policy.lua"))
    assert json.loads(run(capsys, *words, "--check")[1])["file"] is None
    assert not (tmp_path / "policy.lua").exists()
    assert json.loads(run(capsys, *words)[1])["file"] == str(tmp_path / "policy.lua")


@pytest.mark.parametrize("nodes", ["0", "1025", "x"])
def test_a_sandbox_of_no_nodes(capsys: Output, nodes: str) -> None:
    code, _, err = run(capsys, "sandbox", "up", "--nodes", nodes)
    assert code == 64
    assert f"argument --nodes: must be from 1 to 1024, not '{nodes}'" in err


@pytest.mark.parametrize(
    ("options", "name"), [([], "worker.py"), (["--job-name=mine"], "mine"), (["-J", "b"], "b")]
)
def test_a_pool_is_named_after_its_command(
    capsys: Output, site: Path, options: list[str], name: str
) -> None:
    write_program(site / "bin" / "sbatch", f'echo "$@" >{site}/words\necho 17')
    assert run(capsys, "pool", "--max=2", "--detach", *options, "--", "/opt/worker.py", "x")[0] == 0
    words = (site / "words").read_text().split()
    assert [word for word in words if name in word]
    assert any("worker.py" in word for word in words) is (name == "worker.py")


def test_a_single_view_needs_no_terminal(capsys: Output, site: Path) -> None:
    code, shown, err = run(capsys, "top", "--once")
    assert (code, err) == (0, "")
    assert "malleable job" in shown.splitlines()[1]
    assert {"jobs", "holes", "next tick"} <= set(shown.splitlines())
