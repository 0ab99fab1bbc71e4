"""`malleable doctor` from the command line: its output, the place of it, and its exit code."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from slurm_hooks import cli
from slurm_hooks.doctor import catalogue, manual
from slurm_hooks.doctor.catalogue import CHECKS
from slurm_hooks.doctor.finding import Category, Check, note
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

TREE = Path(__file__).resolve().parents[2]
Output = pytest.CaptureFixture[str]
BAD_SCRIPT = """#!/bin/bash
#SBATCH --malleable=1-1
export PYTHONPATH=/nowhere
echo 'ModuleNotFoundError: no module called x' >&2
torchrun train.py | cat
"""


def test_the_list(capsys: Output) -> None:
    assert cli.main(["doctor", "--list"]) == 0
    assert "  kill-wait            KillWait is at most 60 s" in capsys.readouterr().out
    assert cli.main(["doctor", "--list", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["checks"]) >= len(catalogue.CHECKS)


def test_a_check_explains_itself(capsys: Output) -> None:
    assert cli.main(["doctor", "--explain", "kill-wait", "lease-margin"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("lease-margin (how jobs end)\n         fine if lease.margin_s covers")
    assert (
        "kill-wait (how jobs end)\n         fine if KillWait is at most 60 s\n         why  "
        in said
    )
    assert f"         see  {manual.place()}#kill-wait\n" in said
    assert cli.main(["doctor", "--explain", "kill-wait", "--json"]) == 0
    (check,) = json.loads(capsys.readouterr().out)["checks"]
    assert check["see"] == f"{manual.place()}#kill-wait"
    assert cli.main(["doctor", "--explain", "7"]) == 64
    assert "there is no check 7" in capsys.readouterr().err


def test_the_check_of_clocks_claims_no_more_than_it_sees(capsys: Output) -> None:
    """Slurm tells no node's time: a slurmd that started in the future is all that shows."""
    assert cli.main(["doctor", "--explain", "clocks"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "fine if the clocks of slurmctld and this host agree, and no node is seen ahead" in said
    assert "`malleable doctor --node clocks` compares its clock" in said


def test_without_a_name_every_check_explains_itself(capsys: Output) -> None:
    assert cli.main(["doctor", "--explain", "--json"]) == 0
    ids = [check["id"] for check in json.loads(capsys.readouterr().out)["checks"]]
    assert ids[: len(CHECKS)] == [check.id for check in CHECKS]


def test_a_name_that_does_not_exist(capsys: Output) -> None:
    assert cli.main(["doctor", "KillWait"]) == 64
    said = capsys.readouterr().err
    assert "there is no check KillWait; did you mean kill-wait? (`malleable doctor --list`" in said


def test_doctor_reports_without_slurm_and_with_bad_settings(capsys: Output, tmp_path: Path) -> None:
    settings = tmp_path / "malleable.toml"
    settings.write_text("[lease]\na = 1\n[tick]\nslurm_bin = 3\n")
    words = ["settings", "slurm-answers", "kill-wait", "--settings", str(settings), "--json"]
    code = cli.main(["doctor", *words])
    report = json.loads(capsys.readouterr().out)
    assert code == 2
    results = {check["id"]: check["result"] for check in report["checks"]}
    assert results["settings"] == "error"
    faults = [finding["seen"] for finding in report["checks"][0]["findings"]]
    assert len(faults) == 2


def test_bad_settings_are_reported_with_any_option(capsys: Output, tmp_path: Path) -> None:
    """The answer is for the defaults, so "all is well" may be wrong."""
    settings = tmp_path / "malleable.toml"
    settings.write_text("[lease]\na = 1\n")
    code = cli.main(["doctor", "kill-wait", "--settings", str(settings), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert code == 2
    results = {check["id"]: check["result"] for check in report["checks"]}
    assert results["settings"] == "error"


class Entry:
    """An entry point of a package that a site has installed."""

    name, value = "site-own", "our_site:OWN"

    def __init__(self, loaded: object) -> None:
        self._loaded = loaded

    def load(self) -> object:
        if isinstance(self._loaded, BaseException):
            raise self._loaded
        return self._loaded


@pytest.mark.parametrize("is_list", [False, True])
def test_a_site_adds_checks(capsys: Output, monkeypatch: pytest.MonkeyPatch, is_list: bool) -> None:
    check = Check("site-own", Category.LIMITS, "all is ours", "because", lambda _: [note("mine")])
    entry = Entry([check] if is_list else check)
    monkeypatch.setattr(catalogue, "entries", lambda group: [entry])
    assert cli.main(["doctor", "site-own"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("checks of this site\nnote     site-own: mine\n")


def test_a_check_of_a_site_is_on_no_page_of_ours(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Check("site-own", Category.SITE, "all is ours", "because", lambda _: [note("mine")])
    monkeypatch.setattr(catalogue, "entries", lambda group: [Entry(check)])
    assert cli.main(["doctor", "site-own"]) == 0
    assert "why  because" in (said := capsys.readouterr().out)
    assert "see " not in said
    for words in (["doctor", "--json", "site-own"], ["doctor", "--json", "--list"]):
        cli.main(words)
        report = json.loads(capsys.readouterr().out)
        (own,) = (check for check in report["checks"] if check["id"] == "site-own")
        assert own["see"] == ""


@pytest.mark.parametrize(
    ("fault", "name"), [(ValueError("odd"), "ValueError: odd"), (SystemExit(0), "SystemExit: 0")]
)
def test_a_check_of_a_site_that_fails_names_its_package(
    capsys: Output, monkeypatch: pytest.MonkeyPatch, fault: BaseException, name: str
) -> None:
    def look(_facts: object) -> NoReturn:
        raise fault

    check = Check("site-own", Category.SITE, "all is ours", "because", look)
    monkeypatch.setattr(catalogue, "entries", lambda group: [Entry(check)])
    assert cli.main(["doctor", "site-own"]) == 1
    said = capsys.readouterr().out
    assert f"this check failed: {name}" in said
    assert "do   correct the package that has our_site:OWN, or remove it" in said
    assert "malleable bundle" not in said


def test_a_check_of_a_site_cannot_have_the_id_of_a_check_of_ours(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Check("settings", Category.SITE, "all is ours", "because", lambda _: [note("mine")])
    monkeypatch.setattr(catalogue, "entries", lambda group: [Entry(check)])
    assert cli.main(["doctor", "site-own"]) == 2
    said = capsys.readouterr().out
    assert "'settings' is the id of a check of doctor: begin it with your site's name" in said
    assert "mine" not in said


@pytest.mark.parametrize("loaded", [ValueError("odd"), SystemExit(0), 7, [7]])
def test_a_check_of_a_site_that_cannot_be_loaded(
    capsys: Output, monkeypatch: pytest.MonkeyPatch, loaded: object
) -> None:
    monkeypatch.setattr(catalogue, "entries", lambda group: [Entry(loaded)])
    assert cli.main(["doctor", "site-own"]) == 2
    assert "cannot be loaded" in capsys.readouterr().out


def doctor(box: Sandbox, *words: str, user: str | None = None) -> tuple[int, str]:
    argv = [sys.executable, "-m", "slurm_hooks.cli", "doctor", *words]
    env = {"PYTHONPATH": str(TREE), "COLUMNS": "300", "PYTHONDONTWRITEBYTECODE": "1"}
    done = box.run(argv, user=user, check=False, env=env, timeout_s=90)
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.slurm
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_node_and_a_job_as_their_user_sees_them(sandbox: Sandbox) -> None:
    home = sandbox.work / "home"
    home.mkdir(mode=0o755)
    os.chown(home, 65534, 65534)
    code, said = doctor(sandbox, "--directory", str(home), user="nobody")
    assert "ok       hard-links" in said
    assert code in (0, 1)  # the file system of the sandbox is this host's own
    assert not list(home.iterdir())
    code, said = doctor(sandbox, "--directory", str(home))
    text = " ".join(said.split())
    assert "skipped locks, hard-links, shared-directory, nodes-meet: " in text
    assert "try it as the user" in text
    script = home / "train.sh"
    script.write_text(BAD_SCRIPT)
    argv = ["sbatch", "--parsable", "--output", str(home / "log"), str(script)]
    job = sandbox.run(argv, user="nobody").stdout.strip()
    tick = [sys.executable, "-m", "slurm_hooks.cli", "reconcile"]
    sandbox.run(tick, env={"PYTHONPATH": str(TREE)})
    log = home / "log"
    wait_until(lambda: log.exists() and "ModuleNotFound" in log.read_text())
    code, said = doctor(sandbox, "--job", job, user="nobody")
    assert code == 2
    assert "error    job-script: the script overwrites PYTHONPATH" in said
    assert "warning  job-script: the script pipes torchrun's output" in said
    assert "a module is missing" in said
    code, said = doctor(sandbox, "--job", job)
    assert "skipped  job-log: a job's log is read only as its own user" in said
    code, said = doctor(sandbox, "--job", "4711")
    assert (code, "Slurm has no job 4711" in said) == (2, True)


@pytest.mark.slurm
@pytest.mark.parametrize(("where", "result"), [("one", "ok"), ("$SLURM_PROCID", "error")])
def test_nodes_search_for_each_other(sandbox: Sandbox, where: str, result: str) -> None:
    for name in ("one", "0", "1"):
        (sandbox.work / "meet").mkdir(exist_ok=True)
        (sandbox.work / "meet" / name).mkdir(exist_ok=True)
    argv = f"{sys.executable} -m slurm_hooks.cli doctor nodes-meet --json --directory "
    script = f"{argv} {sandbox.work}/meet/{where} >{sandbox.work}/said.$SLURM_PROCID"
    env = {"PYTHONPATH": str(TREE)}
    sandbox.run(["srun", "-N2", "sh", "-c", script], check=False, env=env, timeout_s=90)
    for task in "01":
        report = json.loads((sandbox.work / f"said.{task}").read_text())
        assert report["checks"][0]["result"] == result, report
    left = [str(path) for path in (sandbox.work / "meet").rglob(".malleable-doctor-*")]
    assert left == []


@pytest.mark.slurm
def test_an_ordinary_job(sandbox: Sandbox) -> None:
    job = sandbox.run(["sbatch", "--parsable", "--hold", "--wrap=true"]).stdout.strip()
    code, said = doctor(sandbox, "--job", job, "--json")
    sandbox.run(["scancel", job])
    (known, *_rest) = json.loads(said)["checks"]
    assert code == 2
    assert known["findings"][0]["seen"] == f"job {job} is an ordinary job in partition main"
    assert "\x1b" not in doctor(sandbox)[1]


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("COLUMNS", "300")
