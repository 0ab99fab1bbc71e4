"""The command line: exit codes, and a single line instead of a stack trace."""

from __future__ import annotations

import argparse
import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pytest_mock import MockerFixture

from captured_slurm import CAPTURED
from slurm_hooks import cli
from unit.calls import Output, job_id, run


def test_a_missing_settings_file(capsys: Output, tmp_path: Path) -> None:
    code, _, err = run(capsys, "plan", "--settings", str(tmp_path / "none.toml"))
    assert code == 78
    assert err.count("\n") == 1
    assert "none.toml" in err


def test_five_mistakes_are_five_lines(capsys: Output, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("[lease]\na = 1\nb = 2\nlength_s = 1\nmargin_s = -1\nnotice_s = 0\n")
    code, out, err = run(capsys, "reconcile", "--settings", str(path))
    assert (code, out) == (78, "")
    assert len(err.splitlines()) == 5
    assert all(line.startswith("malleable: ") for line in err.splitlines())


def test_slurm_is_not_there(capsys: Output, site: Path) -> None:
    (site / "bin" / "squeue").unlink()
    code, _, err = run(capsys, "status")
    assert code == 69
    assert "squeue is not on this host" in err


def test_slurm_prints_something_else(capsys: Output, site: Path) -> None:
    (site / "bin" / "scontrol").write_text("#!/bin/sh\necho hello\n")
    assert run(capsys, "status")[0] == 76


@pytest.mark.parametrize("word", ["999999", "999999_3"])
def test_an_unknown_job(capsys: Output, site: Path, word: str) -> None:
    for command in ("status", "explain"):
        code, _, err = run(capsys, command, word)
        assert code == 64
        assert f"no malleable job {word}" in err


# The last two show a bug: str.isdigit() is true of digits that int() refuses.
@pytest.mark.parametrize("word", ["abc", "", "-1x", "²", "1²"])
def test_words_that_are_no_job_id(capsys: Output, site: Path, word: str) -> None:
    code, _, err = run(capsys, "explain", "--", word)
    assert code == 64
    assert "is not a job id" in err


def test_json_of_a_single_job(capsys: Output, site: Path) -> None:
    word = job_id(capsys)
    assert str(json.loads(run(capsys, "status", word, "--json")[1])["job_id"]) == word
    assert json.loads(run(capsys, "explain", word, "--json")[1])["lines"]


def comment(site: Path, text: str) -> None:
    """The output of squeue for a question about comments."""
    path = site / "bin" / "squeue"
    answering = f"#!/bin/sh\ncase $* in *%2000k*) {text};; esac\n"
    path.write_text(answering + path.read_text())


def test_the_remarks_of_a_job(capsys: Output, site: Path) -> None:
    word = job_id(capsys)
    comment(site, "echo 'mine;remark{your flag wins}'; exit 0")
    assert 'the job reports: "your flag wins"' in run(capsys, "explain", word)[1]
    explained = json.loads(run(capsys, "explain", word, "--json")[1])
    assert (explained["remarks"], explained["hints"]) == (["your flag wins"], [])
    before = run(capsys, "plan")[1]
    assert "flag" not in before


def test_a_job_is_explained_although_its_words_are_unreadable(capsys: Output, site: Path) -> None:
    word = job_id(capsys)
    comment(site, "echo Invalid job id specified >&2; exit 1")
    code, out, err = run(capsys, "explain", word)
    assert (code, err) == (0, "")
    assert "waiting" in out


def test_text_for_people(capsys: Output, site: Path) -> None:
    word = job_id(capsys)
    assert word in run(capsys, "status")[1]
    assert f"{word}_5" in run(capsys, "status", f"{word}_[0-5]")[1]
    assert "waiting" in run(capsys, "explain", word)[1]
    assert f"job {word}: 0 ->" in run(capsys, "plan")[1]


def test_a_dry_run_prints_commands_and_writes_none(capsys: Output, site: Path) -> None:
    code, out, _ = run(capsys, "reconcile", "--dry-run")
    assert code == 0
    assert "would grow" in out
    assert not (site / "told").exists()
    assert not (site / "tick.lock").exists()


def test_a_tick_without_rights_is_a_failure(capsys: Output, site: Path) -> None:
    path = site / "bin" / "scontrol"
    refusal = "echo 7_0: Access/permission denied >&2; exit 1;"
    path.write_text(path.read_text().replace("*) echo", f"*) {refusal} echo"))
    code, out, err = run(capsys, "reconcile")
    assert code == 77
    assert "refused by Slurm" in out
    assert "run the tick as root, as SlurmUser, or as an Administrator" in err


def test_a_tick_writes(capsys: Output, site: Path) -> None:
    assert run(capsys, "reconcile")[0] == 0
    assert "release " in (site / "told").read_text()


def test_the_policy(capsys: Output, site: Path) -> None:
    code, out, err = run(capsys, "render", "lua")
    assert (code, err) == (0, "")
    assert "partitions = {" in out
    assert run(capsys, "render", "lua", "--check")[:2] == (0, "no problems found\n")
    target = site / "policy.lua"
    assert run(capsys, "render", "lua", "-o", str(target))[0] == 0
    assert target.read_text() == out


def test_a_policy_that_cannot_be_written(capsys: Output, site: Path) -> None:
    code, _, err = run(capsys, "render", "lua", "-o", str(site / "no" / "policy.lua"))
    assert code == 64
    assert f"there is no directory {site}/no: make it, or name another file" in err


def test_a_policy_takes_the_place_of_no_device_and_no_link(capsys: Output, site: Path) -> None:
    """As /dev/null and /dev/stdout are, where root renders."""
    pipe, link, target = site / "pipe", site / "link", site / "target"
    os.mkfifo(pipe)
    link.symlink_to(target)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        for name in (pipe, link):
            assert run(capsys, "render", "lua", "-o", str(name))[0] == 0
        text = os.read(reader, 65536).decode()
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert link.readlink() == target
    assert text == target.read_text() == run(capsys, "render", "lua")[1]


def test_a_policy_cannot_be_a_directory(capsys: Output, site: Path) -> None:
    before = set(site.iterdir())
    code, _, err = run(capsys, "render", "lua", "-o", str(site))
    assert (code, err) == (74, f"malleable: {site}: Is a directory\n")
    assert set(site.iterdir()) == before


def test_a_full_disk_leaves_the_policy_that_is_there(
    capsys: Output, site: Path, mocker: MockerFixture
) -> None:
    target = site / "policy.lua"
    target.write_text("return {}\n")
    full = OSError(errno.ENOSPC, "No space left on device", str(target))
    mocker.patch.object(Path, "write_text", side_effect=full)
    code, _, err = run(capsys, "render", "lua", "-o", str(target))
    assert (code, err) == (74, f"malleable: {target}: No space left on device\n")
    assert target.read_text() == "return {}\n"


def test_an_unfit_partition_fails_the_check(capsys: Output, site: Path) -> None:
    path = site / "malleable.toml"
    more = '[site]\npartitions = ["main", "nowhere"]\n'
    path.write_text(path.read_text().replace("[site]\n", more))
    code, _, err = run(capsys, "render", "lua", "--check")
    assert code == 1
    assert "PartitionName=main PreemptMode=OFF: Slurm preempts no job there" in err
    assert "PartitionName=nowhere: Slurm has no such partition" in err


def test_an_unknown_operator_is_reported(capsys: Output, site: Path) -> None:
    path = site / "malleable.toml"
    path.write_text(path.read_text().replace('"root"', '"root", "nobody-of-that-name"'))
    code, out, err = run(capsys, "render", "lua")
    assert code == 0
    assert "operators = {[0] = true}" in out
    assert err.startswith("malleable: nobody-of-that-name is not a user of this host")
    assert run(capsys, "render", "lua", "--check")[0] == 1


def test_faults_of_slurm_conf_are_shown_to_users(capsys: Output, site: Path) -> None:
    path = site / "bin" / "scontrol"
    path.write_text(path.read_text().replace("cat " + str(CAPTURED), "sed 's/ 5 sec/ 99 sec/' "
                                             + str(CAPTURED)))  # fmt: skip
    code, out, err = run(capsys, "render", "lua", "--check")
    assert (code, out) == (1, "")
    assert err.startswith("malleable: KillWait=99: ")
    assert run(capsys, "render", "lua")[::2] == (0, "")


@pytest.mark.parametrize("words", [["--verbose", "reconcile"], ["reconcile", "--verbose"]])
def test_verbose_prints_questions_and_changes_no_other_output(
    capsys: Output, site: Path, words: list[str]
) -> None:
    code, out, err = run(capsys, *words)
    lines = err.splitlines()
    assert code == 0
    assert "tick at" in out
    assert all(line.startswith("slurm_hooks.") for line in lines)
    asked = [line for line in lines if re.search(r"`scontrol.*`: 4 RPCs, \d\.\d+ s$", line)]
    assert len(asked) == 2
    assert any("lock: locked" in line for line in lines)
    assert run(capsys, "reconcile")[2] == ""


def test_suppressed_errors_leave_a_debug_line(capsys: Output, site: Path) -> None:
    word = job_id(capsys)
    comment(site, r"printf 'Invalid \033 job\nid' >&2; exit 1")
    _, _, err = run(capsys, "explain", word, "--verbose")
    assert f"job {word}: its remarks were not read" in err
    assert r"Invalid \x1b job\nid" in err


@pytest.mark.parametrize(
    ("argv", "left", "is_verbose"),
    [
        ("--verbose sandbox up", "sandbox up", True),
        ("sandbox up --verbose", "sandbox up", True),
        ("sandbox run -- make --verbose", "sandbox run -- make --verbose", False),
    ],
)
def test_verbose_is_not_taken_from_a_command_in_a_sandbox(
    argv: str, left: str, is_verbose: bool
) -> None:
    assert cli.take_verbose(argv.split()) == (left.split(), is_verbose)


def test_a_command_is_in_the_family_that_adds_it() -> None:
    names = [name for family in cli.FAMILIES.values() for name in family]
    for family in cli.FAMILIES:
        parser = cli.make_parser(cli.FAMILIES[family][0])
        action = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
        assert tuple(action.choices) == cli.FAMILIES[family]
    assert len(set(names)) == len(names)


def test_a_command_imports_neither_other_commands_nor_a_solver() -> None:
    text = "import sys; from slurm_hooks.cli import main; main(sys.argv[1:]); print(*sys.modules)"
    argv = [sys.executable, "-c", text, "status", "--settings", "/nowhere"]
    modules = subprocess.run(argv, text=True, capture_output=True, check=True).stdout.split()
    assert "slurm_hooks.commands.inspect" in modules
    assert not {"slurm_hooks.commands.doctor", "slurm_hooks.replay", "pulp"} & set(modules)
