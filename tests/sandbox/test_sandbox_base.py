"""The directory of sandboxes: refused where it is unsafe, and locked by a single process at
a time.
"""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest

from slurm_hooks.errors import RetryLater, UsageError
from slurm_hooks.sandbox import base, list_sandboxes
from slurm_hooks.sandbox.base import free_name, free_ports, locked, make_base


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_base_that_others_may_write_is_refused(tmp_path, mode):
    base = tmp_path / "base"
    base.mkdir()
    base.chmod(mode)
    with pytest.raises(UsageError, match="other users cannot write"):
        make_base(base)


def test_a_sandbox_that_another_removes_meanwhile_is_not_listed(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    monkeypatch.setattr(base, "sandbox_directories", lambda where: [gone])
    assert list_sandboxes(tmp_path) == []
    gone.mkdir()  # a sandbox without a record is a fault
    with pytest.raises(UsageError, match=r"no sandbox\.json there"):
        list_sandboxes(tmp_path)


def test_a_base_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "real").mkdir(mode=0o755)
    (tmp_path / "base").symlink_to(tmp_path / "real")
    with pytest.raises(UsageError):
        make_base(tmp_path / "base")


@pytest.fixture
def open_path(tmp_path):
    """A directory that every user can reach. pytest's own directories are open to their
    user alone.
    """
    path = Path(f"/tmp/sbo-{os.getpid()}")
    path.mkdir(mode=0o755)
    yield path
    shutil.rmtree(path)


def test_a_base_that_others_cannot_reach_is_refused(open_path):
    (open_path / "closed").mkdir(mode=0o700)
    with pytest.raises(UsageError, match="cannot pass"):
        make_base(open_path / "closed" / "base")


def test_the_lock_clears_the_remains_of_a_killed_creator(open_path):
    base = open_path / "base"
    (base / ".new-sb1").mkdir(parents=True)
    base.chmod(0o755)
    with locked(base) as real:
        assert list(real.iterdir()) == []


def test_the_lock_has_a_single_holder(open_path):
    with locked(open_path), pytest.raises(RetryLater, match="lock"):  # noqa: SIM117
        with locked(open_path, limit_s=0.1):
            pass


def test_a_name_that_is_taken_is_not_given_again(tmp_path):
    (tmp_path / "sb1").mkdir()
    assert free_name(tmp_path) == "sb2"


def test_ports_avoid_other_sandboxes_and_listeners():
    start = 31000
    first = free_ports(10, [], start)
    taken = range(first, first + 10)
    other = free_ports(10, [taken], start)
    assert not set(taken) & set(range(other, other + 10))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", first + 3))
        listener.listen()
        other = free_ports(10, [], start)
        assert first + 3 not in range(other, other + 10)


def test_no_ports_left_is_worth_another_try():
    with pytest.raises(RetryLater, match="No 10 free ports"):
        free_ports(10, [range(65536)])
