"""A pool in a real Slurm, and the other engines without torchrun.

The tests check accepted and refused requests, and the variables of the processes.
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
    WITHOUT_TORCHRUN,
    ours,
    printed,
    release,
    run_fragment,
    script,
    shared_dir,
    show,
    submit,
    wait_for,
)

from kept_sandbox import cancel_jobs_of

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(os.geteuid() != 0, reason="submits as another user, which needs root"),
]
BODY = """print_env batch
echo "found $(command -v malleable)"
srun bash -c 'print_env step'
srun --export=NONE /usr/bin/env | sed 's/^/bare /'
echo "nested $(sbatch --parsable --hold --output={inner}.out {inner}.sh)"
export PATH=/usr/bin:/bin
srun bash -c 'print_env reset'
"""


@pytest.fixture(autouse=True, scope="module")
def _tidy(sandbox: Any) -> Iterator[None]:
    yield
    cancel_jobs_of(sandbox, USER, SHELL_USER)


@pytest.fixture(scope="module")
def pool(sandbox: Any) -> tuple[str, str]:
    """The id of a pool and the log of its first worker."""
    inner = script(sandbox, "pool_inner", "print_env inner").with_suffix("")
    path = script(sandbox, "pool", BODY.format(inner=inner))
    return run_fragment(sandbox, path, "--malleable=0-4,engine=pool")


def test_a_pool_may_have_no_nodes(sandbox: Any) -> None:
    path = script(sandbox, "pool_mark", "")
    job = submit(sandbox, path, "--malleable=0-4,engine=pool")
    seen = show(sandbox, job)
    sandbox.run(["scancel", job])
    assert seen["ArrayTaskId"] == "0-3"
    assert seen["AdminComment"].startswith("malleable{min=0,max=4,unit=1,engine=pool,frags=4,")


def test_a_worker_has_its_request_and_its_place(sandbox: Any, pool: tuple[str, str]) -> None:
    job, log = pool
    seen = printed(log, "batch")
    assert ours(seen) == WITHOUT_TORCHRUN | {"MALLEABLE_SET", "MALLEABLE_PYTHONPATH"}
    assert (seen["MALLEABLE_MIN"], seen["MALLEABLE_MAX"]) == ("0", "4")
    assert (seen["MALLEABLE_UNIT"], seen["MALLEABLE_ENGINE"]) == ("1", "pool")
    assert (seen["MALLEABLE_JOB_ID"], seen["MALLEABLE_FRAGMENT"]) == (job, "0")
    assert seen["MALLEABLE_ADDR"] == "127.0.0.1"
    assert seen["MALLEABLE_DIR"] == shared_dir(sandbox, job)
    assert not [name for name in seen if name.startswith("PET_")]


def test_a_step_has_the_same_variables(pool: tuple[str, str]) -> None:
    batch, step, bare = (printed(pool[1], who) for who in ("batch", "step", "bare"))
    assert {name: step[name] for name in ours(step)} == {name: batch[name] for name in ours(batch)}
    assert step["PATH"] == batch["PATH"]
    assert {name: bare[name] for name in WITHOUT_TORCHRUN} == {
        name: batch[name] for name in WITHOUT_TORCHRUN
    }


def test_the_command_is_in_the_path(sandbox: Any, pool: tuple[str, str]) -> None:
    seen = printed(pool[1], "batch")
    program = f"{seen['MALLEABLE_PYTHONPATH']}/bin/malleable"
    assert f"\nfound {program}\n" in pool[1]
    sandbox.run(["test", "-x", program], user=USER)
    path = printed(pool[1], "reset")["PATH"]  # by the script, say with `module purge`: it is back
    assert path == f"{Path(program).parent}:/usr/bin:/bin"


def test_an_ordinary_job_submitted_by_a_worker_does_not_inherit_the_request(
    sandbox: Any, pool: tuple[str, str]
) -> None:
    (job,) = re.findall(r"^nested (\d+)$", pool[1], flags=re.MULTILINE)
    sandbox.run(["scontrol", "release", job])
    log = wait_for(Path(sandbox.work) / "spank_pool_inner.out", "\nEND\n")
    variables = printed(log, "inner")
    assert variables["PATH"] != ""
    assert "jobpath" not in variables["PATH"] + variables.get("PYTHONPATH", "")
    assert ours(variables) == set()
    assert not [name for name in variables if "SPANK" in name]


def test_without_the_users_environment_the_command_is_found(sandbox: Any) -> None:
    path = script(sandbox, "pool_export", 'print_env batch\necho "found $(command -v malleable)"')
    options = ("--malleable=0-2,engine=pool", "--export=NONE")
    log = run_fragment(sandbox, path, *options, user=SHELL_USER)[1]
    assert f"\nfound {printed(log, 'batch')['MALLEABLE_PYTHONPATH']}/bin/malleable\n" in log


@pytest.mark.parametrize("engine", ["mpi", "tensorflow", "command"])
def test_gangs_without_torchrun_get_the_same(sandbox: Any, engine: str) -> None:
    path = script(sandbox, f"pool_{engine}", "print_env batch")
    log = run_fragment(sandbox, path, f"--malleable=1-2,engine={engine}")[1]
    seen = printed(log, "batch")
    assert ours(seen) == WITHOUT_TORCHRUN | {"MALLEABLE_SET", "MALLEABLE_PYTHONPATH"}
    assert (seen["MALLEABLE_ENGINE"], seen["MALLEABLE_ADDR"]) == (engine, "127.0.0.1")


def test_a_pool_may_start_its_workers_with_srun(sandbox: Any) -> None:
    path = script(sandbox, "pool_srun", "srun bash -c 'print_env $SLURM_PROCID'")
    job = submit(sandbox, path, "--malleable=0-4,unit=2,engine=pool,launch=srun")
    release(sandbox, f"{job}_0")
    log = wait_for(path.with_suffix(".0.out"), "\nEND\n")
    sandbox.run(["scancel", job])
    for rank in ("0", "1"):
        assert printed(log, rank)["MALLEABLE_FRAGMENT"] == "0"
        assert ours(printed(log, rank)) >= WITHOUT_TORCHRUN


REFUSED = {
    "0-4": r"only pools \(engine=pool\) may have MIN 0; with engine=torchrun write --malleable=1-4",
    "0-9,engine=pool": r"needs 9 fragments, and a job may have 8 here \(max_workers\); "
    "write --malleable=0-8,engine=pool",
    "0-16,unit=2,engine=pool": r"may have 4 here \(max_fragments\)",
    "1-2,engine=mpi": "engine mpi is not offered here; write engine=pool or engine=torchrun",
    "1-2,engine=tensorflow": "engine tensorflow is not offered here",
    "1-2,engine=command": "engine command is not offered here",
    "1-2,engine=dask": "engine dask is not offered here",
}


def test_an_engine_that_a_site_does_not_offer_is_refused(fresh_sandbox: Any) -> None:
    limits = '[request]\nengines = ["torchrun", "pool"]\nmax_workers = 8\nmax_fragments = 4\n'
    box = fresh_sandbox(nodes=1, settings_text=limits)
    for value, said in REFUSED.items():
        argv = ["sbatch", f"--malleable={value}", "--wrap=true"]
        done = box.run(argv, user=USER, check=False)
        assert done.returncode != 0, value
        assert re.search(said, done.stderr), (value, done.stderr)
    done = box.run(
        ["sbatch", "--parsable", "--malleable=0-8,engine=pool", "--wrap=true"], user=USER
    )
    assert show(box, done.stdout.strip())["ArrayTaskId"] == "0-7"


def test_a_site_without_pools_says_so(fresh_sandbox: Any) -> None:
    box = fresh_sandbox(nodes=1, settings_text='[request]\nengines = ["torchrun"]\n')
    argv = ["sbatch", "--malleable=0-4,engine=pool", "--wrap=true"]
    done = box.run(argv, user=USER, check=False)
    assert done.returncode != 0
    assert "engine pool is not offered here; write engine=torchrun" in done.stderr
