"""Ending processes: what may not be signalled is returned, and told to whoever asks for details."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest
from pytest_mock import MockerFixture

from slurm_hooks.sandbox.processes import Process, identify, is_alive, stop


@pytest.fixture
def sleeper() -> Iterator[Process]:
    child = subprocess.Popen(["sleep", "60"])
    found = identify(child.pid)
    assert found is not None
    yield found
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
