"""Ending processes: processes that may not be signalled are returned, and named in the
debug log.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_mock import MockerFixture

from slurm_hooks.sandbox.processes import (
    Process,
    find_processes,
    identify,
    is_alive,
    stop,
)
from waiting import wait_until


@pytest.fixture
def sleeper() -> Iterator[Process]:
    child = subprocess.Popen(["sleep", "60"])
    process = identify(child.pid)
    assert process is not None
    yield process
    child.kill()
    child.wait(timeout=10)


def test_a_process_is_ended(sleeper: Process) -> None:
    assert stop([sleeper], grace_s=5.0) == []
    assert not is_alive(sleeper)


def test_a_process_that_may_not_be_signalled_is_left(
    sleeper: Process, mocker: MockerFixture, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "slurm_hooks.sandbox.processes")
    mocker.patch("os.kill", side_effect=PermissionError(1, "Operation not permitted"))
    assert stop([sleeper], grace_s=0.05, kill_s=0.05) == [sleeper]
    assert f"signal 15 to process {sleeper.pid}: [Errno 1]" in caplog.text
    mocker.stopall()


def test_a_number_used_again_is_not_ours():
    me = identify(os.getpid())
    assert me is not None
    assert is_alive(me)
    assert not is_alive(Process(me.pid, me.started - 1))


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a mount namespace, which needs root")
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_sandbox_in_a_container_is_not_the_sandbox_of_that_name_here(
    tmp_path: Path, elsewhere: bool
) -> None:
    program = (
        tmp_path / "slurm_sleep"
    )  # by its name a daemon, by its command line of that directory
    shutil.copy("/bin/sleep", program)
    argv = ["unshare", "--mount"] if elsewhere else []
    with subprocess.Popen([*argv, str(program), "60"]) as child:
        try:
            # Not its exe link: the kernel sets that some moments before its command line.
            cmdline = Path(f"/proc/{child.pid}/cmdline")
            wait_until(lambda: cmdline.read_bytes().startswith(bytes(program)))
            pids = [process.pid for process in find_processes(tmp_path, tmp_path / "slurm.conf")]
        finally:
            child.kill()
    assert pids == ([] if elsewhere else [child.pid])
