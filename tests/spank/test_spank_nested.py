"""Submissions from inside a malleable job, which must not inherit it.

The job shows whether job_submit saw the option: with the option it is an array with an
AdminComment, without the option it has neither.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spank_jobs import (
    SHELL_USER,
    USER,
    ours,
    printed,
    release,
    run_fragment,
    script,
    shared_dir,
    show,
    wait_for,
)

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
def nested(sandbox: Any) -> tuple[str, dict[str, str]]:
    """The parent's log, and the ids of jobs that its script submitted, by name."""
    inner = script(sandbox, "inner", "print_env inner", head="#SBATCH --malleable=1-3\n")
    plain = script(sandbox, "inner_plain", "print_env inner")
    output = f"{sandbox.work}/spank_inner_%x.out"
    calls = [
        f"--job-name={name} --output={output} {options} {path}"
        for name, options, path in (
            ("all", "--hold", plain),
            ("none", "--hold --export=NONE", plain),
            ("some", "--hold --export=ALL,X=1", plain),
            ("own", "--malleable=1-2", plain),
            ("directive", "", inner),
        )
    ]
    body = "\n".join(
        [
            "export PET_MAX_RESTARTS=9",
            *(f"echo submitted $(sbatch --parsable {call}) {call.split()[0]}" for call in calls),
            "srun --malleable=3-4 true",
            "step='srun bash -c \"print_env sallocstep\"'",
            'salloc -N1 -p malleable bash -c "print_env salloc; $step"',
            "env -u SLURM_JOB_ID -u SLURM_JOBID srun -N1 -p malleable bash -c 'print_env srun'",
        ]
    )
    path = script(sandbox, "parent", body)
    mine = {"PYTHONPATH": "/mine", "PET_RDZV_ID": "abc"}
    log = run_fragment(sandbox, path, "--malleable=2-4", user=SHELL_USER, **mine)[1]
    pairs = re.findall(r"^submitted (\d+) --job-name=(\w+)$", log, flags=re.MULTILINE)
    jobs = {name: job for job, name in pairs}
    # Held so far: in a higher tier they would preempt the parent.
    for name in ("all", "none", "some"):
        sandbox.run(["scontrol", "release", jobs[name]])
    return log, jobs


@pytest.mark.parametrize("name", ["all", "none", "some"])
def test_a_nested_submission_does_not_inherit_the_request(
    sandbox: Any, nested: tuple[str, dict[str, str]], name: str
) -> None:
    seen = show(sandbox, nested[1][name])
    assert "ArrayTaskId" not in seen
    assert "malleable{" not in seen.get("AdminComment", "")
    log = wait_for(Path(sandbox.work) / f"spank_inner_{name}.out", "\nEND\n")
    variables = printed(log, "inner")
    assert variables
    assert "malleable:" not in log
    assert not [variable for variable in variables if "SPANK" in variable]
    kept = {} if name == "none" else {"PET_MAX_RESTARTS": "9", "PET_RDZV_ID": "abc"}
    assert {variable: variables[variable] for variable in ours(variables)} == kept
    assert variables.get("PYTHONPATH") == (None if name == "none" else "/mine")
    assert "jobpath" not in variables["PATH"]


@pytest.mark.parametrize(("name", "most"), [("own", "2"), ("directive", "3")])
def test_nested_submission_with_its_own_option(
    sandbox: Any, nested: tuple[str, dict[str, str]], name: str, most: str
) -> None:
    comment = show(sandbox, nested[1][name])["AdminComment"]
    assert comment.startswith(f"malleable{{min=1,max={most},unit=1,")


def test_nested_malleable_job_has_its_own_values(
    sandbox: Any, nested: tuple[str, dict[str, str]]
) -> None:
    job = nested[1]["own"]
    release(sandbox, f"{job}_0")
    log = wait_for(Path(sandbox.work) / "spank_inner_own.out", "\nEND\n")
    variables = printed(log, "inner")
    assert variables["PET_NNODES"] == "1:2"
    assert variables["MALLEABLE_JOB_ID"] == job
    assert variables["MALLEABLE_NOTICE_S"] == "20"
    assert variables["MALLEABLE_FAREWELL_S"] == "2"
    assert variables["MALLEABLE_DIR"] == shared_dir(sandbox, job, SHELL_USER)
    assert variables["MALLEABLE_KEPT"] == "PET_RDZV_ID,PET_MAX_RESTARTS"
    assert variables["PYTHONPATH"] == f"{variables['MALLEABLE_PYTHONPATH']}:/mine"
    assert variables["PATH"].startswith(f"{variables['MALLEABLE_PYTHONPATH']}/bin:")
    assert variables["PATH"].count("jobpath") == 1


@pytest.mark.parametrize("who", ["salloc", "sallocstep", "srun"])
def test_new_allocations_inside_start_clean(nested: tuple[str, dict[str, str]], who: str) -> None:
    variables = printed(nested[0], who)
    assert ours(variables) == {"PET_MAX_RESTARTS", "PET_RDZV_ID"}
    assert variables["PYTHONPATH"] == "/mine"
    assert "jobpath" not in variables["PATH"]
    assert not [variable for variable in variables if "SPANK" in variable]


def test_another_wish_of_a_step_is_refused(nested: tuple[str, dict[str, str]]) -> None:
    assert "malleable: srun cannot take --malleable" in nested[0]
