"""Prolog and Epilog as slurmd runs them, with their scratch in a temporary place."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_hooks.hooks import EPILOG, PROLOG

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changing owners needs root")


@pytest.fixture
def hooks(tmp_path: Path) -> Path:
    """A directory with copies of the hooks and a hooks.conf."""
    for script in (PROLOG, EPILOG):
        shutil.copy(script, tmp_path)
        (tmp_path / script.name).chmod(0o755)
    (tmp_path / "hooks.conf").write_text(f"scratch_root={tmp_path}/scratch\n")
    return tmp_path


def run(hooks: Path, script: Path, **values: str) -> str:
    """Run one as slurmd does, with next to no environment; it always ends with 0."""
    environment = {
        "SPANK_MALLEABLE": "1-6,unit=1,engine=torchrun",
        "SLURM_JOB_ID": "42",
        "SLURM_JOB_UID": str(os.geteuid()),
        "SLURMD_NODENAME": "n1",
        "SLURM_CLUSTER_NAME": "test",
        "SLURM_SCRIPT_CONTEXT": f"{script.stem}_slurmd",
        **values,
    }
    done = subprocess.run(
        [str(hooks / script.name)],
        env={key: value for key, value in environment.items() if value},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0
    return done.stdout + done.stderr


@pytest.mark.parametrize("script", [PROLOG, EPILOG])
def test_scripts_are_clean(script: Path) -> None:
    checker = shutil.which("shellcheck")
    if checker is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run([checker, str(script)], capture_output=True, text=True, check=False)
    assert done.stdout == ""


@pytest.mark.parametrize("script", [PROLOG, EPILOG])
def test_scripts_can_be_run(script: Path) -> None:
    assert os.access(script, os.X_OK)


@pytest.mark.parametrize("script", [PROLOG, EPILOG])
def test_other_people_s_jobs_leave_at_once(hooks: Path, script: Path) -> None:
    began = time.monotonic()
    assert run(hooks, script, SPANK_MALLEABLE="") == ""
    assert time.monotonic() - began < 1
    assert not (hooks / "scratch").exists()


def test_scratch_comes_and_goes(hooks: Path) -> None:
    assert run(hooks, PROLOG) == ""
    made = hooks / "scratch" / "n1.42"
    assert made.stat().st_mode & 0o777 == 0o700
    assert made.parent.stat().st_mode & 0o777 == 0o711
    (made / "inside").mkdir()
    (made / "inside" / "file").write_text("x")
    assert run(hooks, PROLOG) == ""  # a requeued job comes again
    assert (made / "inside" / "file").exists()
    assert run(hooks, EPILOG) == ""
    assert not made.exists()
    assert run(hooks, EPILOG) == ""


@needs_root
def test_scratch_belongs_to_the_job_s_user(hooks: Path) -> None:
    run(hooks, PROLOG, SLURM_JOB_UID=str(NOBODY))
    assert (hooks / "scratch" / "n1.42").stat().st_uid == NOBODY


@pytest.mark.parametrize("script", [PROLOG, EPILOG])
def test_a_link_is_not_followed(hooks: Path, script: Path) -> None:
    target = hooks / "target"
    target.mkdir()
    (target / "file").write_text("x")
    (hooks / "scratch").mkdir()
    (hooks / "scratch" / "n1.42").symlink_to(target)
    owner = target.stat().st_uid
    run(hooks, script, SLURM_JOB_UID=str(NOBODY))
    assert (target / "file").exists()
    assert target.stat().st_uid == owner


def test_a_link_inside_is_not_followed(hooks: Path) -> None:
    run(hooks, PROLOG)
    target = hooks / "target"
    target.mkdir()
    (target / "file").write_text("x")
    (hooks / "scratch" / "n1.42" / "link").symlink_to(target)
    run(hooks, EPILOG)
    assert (target / "file").exists()


@pytest.mark.parametrize("job", ["", "../../etc", "42;id", "4 2", "-42", "42\n43", "$(id)"])
@pytest.mark.parametrize("script", [PROLOG, EPILOG])
def test_odd_job_ids_are_ignored(hooks: Path, script: Path, job: str) -> None:
    assert run(hooks, script, SLURM_JOB_ID=job) == ""
    assert not (hooks / "scratch").exists()


@pytest.mark.parametrize("user", ["", "root", "-1", "1 2"])
def test_odd_users_get_nothing(hooks: Path, user: str) -> None:
    run(hooks, PROLOG, SLURM_JOB_UID=user)
    assert not (hooks / "scratch").exists()


@pytest.mark.parametrize("script", [PROLOG, EPILOG])
def test_a_place_that_cannot_be_used_drains_no_node(hooks: Path, script: Path) -> None:
    (hooks / "scratch").write_text("a file")
    run(hooks, script)


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for process in found:
        process.kill()
        process.wait(timeout=10)


@needs_root
def test_what_a_fragment_left_behind_is_ended(
    hooks: Path, sleepers: list[subprocess.Popen[bytes]]
) -> None:
    base = {"SLURM_JOB_ID": "42", "SLURMD_NODENAME": "n1", "SLURM_CLUSTER_NAME": "test"}
    for user, values in (
        (NOBODY, base),
        (NOBODY, {**base, "SLURM_JOB_ID": "421"}),
        (NOBODY, {**base, "SLURMD_NODENAME": "n11"}),
        (NOBODY, {**base, "SLURM_CLUSTER_NAME": "other"}),
        (NOBODY, {"X": "a SLURM_JOB_ID=42"}),
        (0, base),
    ):
        sleepers.append(subprocess.Popen(["/bin/sleep", "30"], env=values, user=user, cwd="/"))
    time.sleep(0.1)
    run(hooks, EPILOG, SLURM_JOB_UID=str(NOBODY))
    time.sleep(0.1)
    assert [process.poll() for process in sleepers] == [-9, None, None, None, None, None]


@needs_root
def test_processes_of_root_are_never_touched(
    hooks: Path, sleepers: list[subprocess.Popen[bytes]]
) -> None:
    values = {"SLURM_JOB_ID": "42", "SLURMD_NODENAME": "n1", "SLURM_CLUSTER_NAME": "test"}
    sleepers.append(subprocess.Popen(["/bin/sleep", "30"], env=values))
    run(hooks, EPILOG, SLURM_JOB_UID="0")
    assert sleepers[0].poll() is None
