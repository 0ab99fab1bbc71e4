"""The Epilog as slurmd runs it, with next to no environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

import pytest

from slurm_hooks.hooks import EPILOG
from waiting import wait_until

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changing users needs root")
# Of a fragment's process, as Slurm makes them.
OURS = {"SLURM_JOB_ID": "42", "SLURMD_NODENAME": "n1", "SLURM_CLUSTER_NAME": "test"}


@pytest.fixture(scope="module")
def script() -> Iterator[Path]:
    """The script where every user can reach it, as after `make install`."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(shutil.copy(EPILOG, made))


def run(script: Path, user: Optional[int] = None, **values: str) -> str:
    """Run it as slurmd does. It always ends with 0."""
    environment = {
        **OURS,
        "SPANK_MALLEABLE": "1-6,unit=1,engine=torchrun",
        "SLURM_JOB_UID": str(NOBODY),
        "SLURM_JOB_GID": str(NOBODY),
        "SLURM_SCRIPT_CONTEXT": "epilog_slurmd",
        **values,
    }
    done = subprocess.run(
        [str(script)],
        env={key: value for key, value in environment.items() if value},
        user=user,
        group=user,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0
    return done.stdout + done.stderr


def test_the_script_is_clean() -> None:
    checker = shutil.which("shellcheck")
    if checker is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run([checker, str(EPILOG)], capture_output=True, text=True, check=False)
    assert done.stdout == ""


def test_the_script_can_be_run() -> None:
    assert os.access(EPILOG, os.X_OK)


class Sleepers:
    """Processes as a job may leave them behind, which end with the test."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(
        self,
        values: dict[str, str],
        user: int = NOBODY,
        group: int = NOBODY,
        argv: Sequence[str] = ("/bin/sleep", "30"),
    ) -> None:
        more: dict[str, Any] = {"user": user, "group": group, "extra_groups": []}
        self.processes.append(subprocess.Popen(argv, env=values, cwd="/", **more))

    def codes(self) -> list[Optional[int]]:
        """The state of each process: None while it is alive, or the signal that ended it."""
        time.sleep(0.2)
        return [process.poll() for process in self.processes]

    def end(self) -> None:
        for process in self.processes:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait(timeout=150)


@pytest.fixture
def sleepers() -> Iterator[Sleepers]:
    made = Sleepers()
    yield made
    made.end()


OF_ONE_ARRAY = {"SLURM_ARRAY_JOB_ID": "42", "MALLEABLE_JOB_ID": "42", "PET_RDZV_ID": "42"}


@needs_root
def test_remaining_processes_of_a_fragment_are_ended(sleepers: Sleepers, script: Path) -> None:
    for values in (
        OURS,
        {**OURS, "SLURM_JOB_ID": "421"},
        {**OURS, "SLURMD_NODENAME": "n11"},
        {**OURS, "SLURM_CLUSTER_NAME": "other"},
        {"X": "a SLURM_JOB_ID=42", "SLURMD_NODENAME": "n1", "SLURM_CLUSTER_NAME": "test"},
        {**OURS, "SLURM_JOB_ID": "43", **OF_ONE_ARRAY},  # another fragment on the same node
    ):
        sleepers.start(values)
    sleepers.start(OURS, user=0, group=0)
    sleepers.start(OURS, user=NOBODY - 1)
    sleepers.start({**OURS, "SLURM_CLUSTER_NAME": "(null)"})  # a batch script of Slurm 23.11.4
    assert run(script) == ""
    assert sleepers.codes() == [-9, None, None, None, None, None, None, None, -9]


@needs_root
def test_a_process_that_follows_an_ended_one_is_ended_too(sleepers: Sleepers, script: Path) -> None:
    job = " ".join(f"{name}={value}" for name, value in OURS.items())
    argv = ["/bin/sh", "-c", f"env {job} sleep 30 & wait; exec env {job} sleep 30"]
    sleepers.start({"PATH": os.environ["PATH"]}, argv=argv)
    shell = sleepers.processes[0].pid

    def sleeps() -> bool:
        children = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
        return [Path(f"/proc/{child}/comm").read_text() for child in children] == ["sleep\n"]

    wait_until(sleeps)
    assert run(script) == ""
    assert sleepers.codes() == [-9]


@needs_root
def test_the_hook_has_only_the_rights_of_the_job_s_user(sleepers: Sleepers, script: Path) -> None:
    """Only root could read this environment: another group is a barrier to /proc/PID/environ."""
    sleepers.start(OURS, group=NOBODY - 1)
    run(script)
    assert sleepers.codes() == [None]
    run(script, SLURM_JOB_GID=str(NOBODY - 1))
    assert sleepers.codes() == [-9]


@needs_root
def test_without_setpriv_no_process_is_ended(sleepers: Sleepers, script: Path) -> None:
    lame = script.with_name("lame.sh")
    lame.write_text(script.read_text().replace("setpriv --reuid", "/nowhere/setpriv --reuid"))
    lame.chmod(0o755)
    sleepers.start(OURS)
    assert run(lame) == ""
    assert sleepers.codes() == [None]


@needs_root
def test_where_slurmd_runs_as_the_user_of_the_job(sleepers: Sleepers, script: Path) -> None:
    """In this case the script is a process of that user, and must not end itself."""
    sleepers.start(OURS)
    sleepers.start({**OURS, "SLURM_SCRIPT_CONTEXT": "epilog_slurmd"})
    assert run(script, user=NOBODY) == ""
    assert sleepers.codes() == [-9, None]


ODD = (
    {"SPANK_MALLEABLE": ""},
    *({"SLURM_JOB_ID": job} for job in ("", "../../etc", "42;id", "4 2", "-42", "$(id)")),
    *({"SLURM_JOB_UID": user} for user in ("", "0", "root", "-1", "1 2")),
    *({"SLURM_JOB_GID": group} for group in ("", "nogroup", "-1", "1 2")),
)


@needs_root
def test_other_people_s_jobs_and_odd_values_are_left_alone(
    sleepers: Sleepers, script: Path
) -> None:
    sleepers.start(OURS, user=0, group=0)
    for values in ODD:
        sleepers.start({**OURS, **values})
        assert run(script, **values) == "", values
    codes = dict(zip([None, *map(str, ODD)], sleepers.codes()))
    assert not [values for values, code in codes.items() if code is not None]


def test_files_of_older_versions_are_left_alone(script: Path) -> None:
    """Their hooks.conf named a directory in which this script removed files. Now it reads
    no such name.
    """
    made = script.parent / "scratch" / "n1.42"
    made.mkdir(parents=True)
    script.with_name("hooks.conf").write_text(f"scratch_root={script.parent}/scratch\n")
    run(script)
    assert made.is_dir()
