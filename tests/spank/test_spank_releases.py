"""The plugin on an untested release: a real Slurm whose release is not in its list.

An upgrade of Slurm must break no sbatch, and print no line either.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from spank_jobs import PRINT, USER, ours, printed, wait_for

from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.installation import Installation
from slurm_hooks.sandbox.project import project_spec

SOURCE = Path(__file__).resolve().parents[2] / "plugins" / "spank"
NEVER = "9912"  # no Slurm is called 99.12

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(os.geteuid() != 0, reason="submits as another user, which needs root"),
    pytest.mark.skipif(
        not all(map(shutil.which, ("make", "cc"))), reason="make and a C compiler are needed"
    ),
]


@dataclass(frozen=True)
class Ended:
    """The output of sbatch, and the job's log."""

    submission: subprocess.CompletedProcess[str]
    log: str


def run_job(box: Sandbox, name: str, command: str = "sbatch", **env: str) -> Ended:
    """Submits an ordinary job as a user and waits for its end."""
    path = box.work / f"{name}.sh"
    path.write_text(PRINT + "print_env batch\nsrun bash -c 'print_env step'\necho END\n")
    log = path.with_suffix(".out")
    argv = [*command.split(), "--parsable", f"--output={log}", str(path)]
    submission = box.run(argv, user=USER, env=env)
    return Ended(submission, wait_for(log, "\nEND\n"))


@pytest.fixture(scope="module")
def untested(
    installation: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sandbox]:
    """A Slurm with our plugin, for which this release is unknown."""
    build = tmp_path_factory.mktemp("untested")
    argv = ["make", "-s", "-C", str(SOURCE), f"BUILD_DIR={build}", f"TESTED={NEVER}", "all"]
    subprocess.run(argv, check=True, timeout=150)
    spec = project_spec(nodes=2, slurm=installation, spank=build / "malleable.so")
    with Sandbox.up(spec) as box:
        yield box


@pytest.fixture(scope="module")
def ended(untested: Sandbox) -> Ended:
    """A job whose environment has all variables that could switch the plugin on."""
    return run_job(untested, "plain", SLURM_SPANK_MALLEABLE="1-2,unit=1,engine=torchrun")


def test_sbatch_prints_the_same_as_without_the_plugin(ended: Ended) -> None:
    assert ended.submission.stdout.strip().isdecimal()
    assert ended.submission.stderr == ""


def test_the_job_is_left_alone(ended: Ended) -> None:
    for who in ("batch", "step"):
        variables = printed(ended.log, who)
        assert variables["SLURM_JOB_ID"]
        assert not ours(variables)
    assert "malleable:" not in ended.log


@pytest.mark.parametrize("command", ["srun -N1 true", "salloc -N1 true"])
def test_other_commands_are_as_quiet(untested: Sandbox, command: str) -> None:
    done = untested.run(command.split(), user=USER)
    assert "malleable" not in done.stderr + done.stdout
    assert "plugin" not in done.stderr


def test_the_daemons_do_not_complain(untested: Sandbox, ended: Ended) -> None:
    assert ended.log
    for daemon in ("n1", "n2"):
        said = untested.log(daemon).replace(str(untested.dir), "SANDBOX")
        assert "malleable" not in said


def test_the_option_is_not_there(untested: Sandbox) -> None:
    assert "--malleable" not in untested.run(["sbatch", "--help"]).stdout
    done = untested.run(["sbatch", "--malleable=1-2", "--wrap=true"], user=USER, check=False)
    assert done.returncode != 0
    assert "unrecognized option '--malleable=1-2'" in done.stderr


def test_an_administrator_can_still_use_the_plugin(untested: Sandbox) -> None:
    line = untested.dir / "etc" / "plugstack.conf"
    before = line.read_text()
    line.write_text(f"{before.rstrip()} untested=use\n")
    try:
        assert "--malleable=MIN-MAX" in untested.run(["sbatch", "--help"]).stdout
    finally:
        line.write_text(before)


def test_a_release_that_gives_itself_no_number(sandbox: Any, tmp_path: Path) -> None:
    """Slurm skips the plugin, with a line or two to say so, and submits."""
    stub, source = Path(sandbox.work) / "no_number.so", tmp_path / "no_number.c"
    source.write_text("long slurm_api_version(void) { return 0; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", stub, source], check=True, timeout=150)
    ended = run_job(sandbox, "no_number", command=f"env LD_PRELOAD={stub} sbatch")
    assert ended.submission.stdout.strip().isdecimal()
    assert "Incompatible Slurm plugin" in ended.submission.stderr
    assert not ours(printed(ended.log, "batch"))
