"""SBATCH_MALLEABLE=2-16: a job is malleable without a word on the command line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spank_jobs import SHELL_USER, USER, ours, printed, run_fragment, script, show, submit, wait_for

from kept_sandbox import cancel_jobs_of

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(os.geteuid() != 0, reason="submits as another user, which needs root"),
]


@pytest.fixture(autouse=True, scope="module")
def _tidy(sandbox: Any) -> Iterator[None]:
    yield
    cancel_jobs_of(sandbox, USER, SHELL_USER)


@pytest.fixture(scope="module")
def plain(sandbox: Any) -> Path:
    return script(sandbox, "variable", "print_env batch; srun bash -c 'print_env step'")


def run_ordinary(sandbox: Any, path: Path, **env: str) -> tuple[str, str]:
    """Run a job that is not released. Return its id and its log."""
    log = path.with_suffix(".log")
    log.unlink(missing_ok=True)
    job = submit(sandbox, path, "-p", "main", f"--output={log}", env=env)
    return job, wait_for(log, "\nEND\n")


def size(sandbox: Any, job: str) -> str:
    """The indices of the job's array, or "" if it is an ordinary job."""
    seen = show(sandbox, job)
    sandbox.run(["scancel", job])
    return seen.get("ArrayTaskId", "")


def test_the_job_is_malleable(sandbox: Any, plain: Path) -> None:
    job, log = run_fragment(sandbox, plain, SBATCH_MALLEABLE="1-3")
    for who in ("batch", "step"):
        seen = printed(log, who)
        assert seen["PET_NNODES"] == "1:3"
        assert seen["MALLEABLE_JOB_ID"] == job


@pytest.mark.parametrize("export", ["NONE", "HOME,PATH"])
def test_the_variable_works_with_any_export(sandbox: Any, plain: Path, export: str) -> None:
    log = run_fragment(
        sandbox, plain, f"--export={export}", user=SHELL_USER, SBATCH_MALLEABLE="1-3"
    )[1]
    assert printed(log, "batch")["PET_NNODES"] == "1:3"


def test_the_command_line_wins(sandbox: Any, plain: Path) -> None:
    job = submit(sandbox, plain, "--malleable=1-2", env={"SBATCH_MALLEABLE": "1-3"})
    assert size(sandbox, job) == "0-1"


def test_the_variable_wins_over_the_script(sandbox: Any) -> None:
    """Slurm's own SBATCH_ variables win too."""
    path = script(sandbox, "variable_directive", "", head="#SBATCH --malleable=1-2\n")
    assert size(sandbox, submit(sandbox, path, env={"SBATCH_MALLEABLE": "1-4"})) == "0-3"


def test_an_empty_variable_has_no_effect(sandbox: Any, plain: Path) -> None:
    assert size(sandbox, submit(sandbox, plain, "--hold", env={"SBATCH_MALLEABLE": ""})) == ""


def test_a_wrong_variable_is_named(sandbox: Any, plain: Path) -> None:
    done = sandbox.run(
        ["sbatch", str(plain)], user=USER, env={"SBATCH_MALLEABLE": "4"}, check=False
    )
    assert done.returncode != 0
    assert "write --malleable=1-4 for up to 4 nodes" in done.stderr
    assert "the environment variable SBATCH_MALLEABLE has this value" in done.stderr


@pytest.mark.parametrize("value", ["1", "2-4", "yes"])
def test_variables_of_other_programs_have_no_effect(sandbox: Any, plain: Path, value: str) -> None:
    job, log = run_ordinary(sandbox, plain, MALLEABLE=value)
    assert size(sandbox, job) == ""
    seen = printed(log, "batch")
    assert seen["MALLEABLE"] == value
    assert not ours(seen)


def test_a_refusal_of_the_controller_names_the_variable(sandbox: Any, plain: Path) -> None:
    argv = ["sbatch", "--array=1-3", str(plain)]
    done = sandbox.run(argv, user=USER, env={"SBATCH_MALLEABLE": "1-4"}, check=False)
    assert done.returncode != 0
    assert "the environment variable SBATCH_MALLEABLE is set" in done.stderr


@pytest.mark.parametrize("command", ["srun -N1 -p main true", "salloc -N1 -p main true"])
def test_other_commands_ignore_the_variable(sandbox: Any, command: str) -> None:
    done = sandbox.run(command.split(), user=USER, env={"SBATCH_MALLEABLE": "1-3"})
    assert "malleable" not in done.stderr


def test_jobs_that_the_job_submits_are_ordinary(sandbox: Any) -> None:
    """The rule holds for jobs of that job in turn."""
    last = script(sandbox, "variable_last", "print_env last")
    between = script(sandbox, "variable_between", f"sbatch --parsable --hold {last}; print_env it")
    log_between = between.with_suffix(".out")
    body = f"sbatch --parsable -p main -o {log_between} {between}\nsleep 2"
    log = run_fragment(
        sandbox, script(sandbox, "variable_first", body), user=SHELL_USER, SBATCH_MALLEABLE="1-3"
    )[1]
    inner = log.splitlines()[0]
    said = wait_for(log_between, "\nEND\n")
    assert "SBATCH_MALLEABLE" not in printed(said, "it")
    assert size(sandbox, inner) == ""
    assert size(sandbox, said.splitlines()[0]) == ""


def test_without_the_plugin_on_the_submit_host(sandbox: Any, plain: Path) -> None:
    """For example, a portal's host: job_submit reads the variable, the plugin on the node
    does the rest.
    """
    conf = sandbox.dir / "etc" / "slurm.conf"
    portal = sandbox.dir / "portal"
    portal.mkdir()
    portal.chmod(0o755)
    (portal / "plugstack.conf").write_text("")
    (portal / "slurm.conf").write_text(conf.read_text())
    with_portal = {"SLURM_CONF": str(portal / "slurm.conf")}
    help_text = sandbox.run(["sbatch", "--help"], env=with_portal).stdout
    assert "--malleable" not in help_text
    log = run_fragment(sandbox, plain, SBATCH_MALLEABLE="1-3", **with_portal)[1]
    for who in ("batch", "step"):
        assert printed(log, who)["PET_NNODES"] == "1:3"
