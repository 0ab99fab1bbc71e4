"""Only the tick's user can stop the ticks, and missing ticks are reported."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pytest_mock import MockerFixture

from captured_slurm import recorded
from planning.whole_ticks import settings_in
from programs import write_program
from slurm_hooks import cli
from slurm_hooks.errors import NotAllowed, NoTickForLong, RetryLater, SettingsError
from slurm_hooks.settings.values import Settings, Tick
from slurm_hooks.tick.lock import locked, patience_s
from slurm_hooks.tick.reconcile import tick

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")

# Every user who can open the file for reading can do this.
FLOCK = """
import fcntl, os, sys, time
fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(30)
"""
# A tick that hangs.
TICK = """
import sys, time
from slurm_hooks.settings.values import Tick
from slurm_hooks.tick.lock import locked
with locked(Tick(lock=sys.argv[1])):
    print("held", flush=True)
    time.sleep(30)
"""


@contextmanager
def other(program: str, path: str, user: int | None = None) -> Iterator[tuple[int, str]]:
    """Another process that runs `program`: its number, and its first word ("" if it failed)."""
    argv = [sys.executable if user is None else "/usr/bin/python3", "-c", program, path]
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, user=user, cwd="/"
    )
    try:
        assert process.stdout is not None
        yield process.pid, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate(timeout=150)


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A directory that every user can pass, as /run is."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def age(settings: Settings, seconds: float) -> None:
    """Make the last tick seem completed so long ago."""
    moment = time.time() - seconds
    os.utime(f"{settings.tick.lock}.done", (moment, moment))


def test_a_single_tick_at_a_time_and_the_holder_is_named(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with other(TICK, settings.tick.lock) as (pid, word):
        assert word == "held"
        port = recorded("running")
        with pytest.raises(RetryLater, match=f"another tick is running .process {pid} holds"):
            tick(port, settings)
        assert port.asked == []
    tick(recorded("running"), settings)  # the kernel has let go of the lock


def test_ticks_that_do_not_happen_become_a_failure(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    tick(recorded("running"), settings)
    with other(TICK, settings.tick.lock) as (pid, _):
        age(settings, 299)
        with pytest.raises(RetryLater):
            tick(recorded("running"), settings)
        age(settings, 7 * 60)
        with pytest.raises(NoTickForLong, match=rf"no tick .* \(7 min\).*process {pid} holds"):
            tick(recorded("running"), settings)
    began = time.time()
    tick(recorded("running"), settings)
    assert os.stat(f"{settings.tick.lock}.done").st_mtime > began - 1


@pytest.mark.parametrize("seconds", [7 * 60, -7 * 60])
def test_slurm_that_does_not_answer_for_long_is_named(tmp_path: Path, seconds: float) -> None:
    """This holds both ways: a stamp in the future means that the clock was set back."""
    settings = settings_in(tmp_path)
    port = recorded("running")
    port.answers = {**port.answers, "squeue": RetryLater("is slurmctld up?")}
    with pytest.raises(RetryLater):  # the first tick ever: patience begins here
        tick(port, settings)
    age(settings, seconds)
    with pytest.raises(NoTickForLong, match="is slurmctld up"):
        tick(port, settings)
    assert NoTickForLong.exit_code not in (0, RetryLater.exit_code)


@pytest.mark.parametrize(("every_s", "wanted"), [(1, 300), (30, 300), (600, 1800)])
def test_patience_follows_the_pace(every_s: float, wanted: float) -> None:
    assert patience_s(Tick(every_s=every_s)) == wanted


def test_the_command_reports_the_holder_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_program(tmp_path / "squeue", "echo Unable to contact slurmctld >&2\nexit 1")
    settings = settings_in(tmp_path)
    path = tmp_path / "malleable.toml"
    path.write_text(f'[tick]\nlock = "{settings.tick.lock}"\nslurm_bin = "{tmp_path}"\n')
    words = ["reconcile", "--settings", str(path)]
    assert cli.main(words) == 75
    age(settings, 600)
    capsys.readouterr()
    assert cli.main(words) == 69
    said = capsys.readouterr()
    assert said.out == ""
    assert "no tick has been completed since" in said.err
    assert "slurmctld" in said.err


@needs_root
def test_other_users_cannot_take_the_lock(reachable: Path) -> None:
    settings = settings_in(reachable)
    tick(recorded("running"), settings)
    lock = Path(settings.tick.lock)
    assert lock.parent.stat().st_mode & 0o777 == 0o700
    assert lock.stat().st_mode & 0o777 == 0o600
    lock.parent.chmod(0o755)  # an older version's lock, or a shared lock: the file's mode is enough
    with other(FLOCK, settings.tick.lock, NOBODY) as (_, word):
        assert word == ""
        tick(recorded("running"), settings)


@needs_root
def test_an_old_lock_that_others_hold_is_replaced(reachable: Path) -> None:
    settings = settings_in(reachable)
    lock = Path(settings.tick.lock)
    lock.parent.mkdir()
    lock.write_text("")
    lock.chmod(0o644)
    with other(FLOCK, settings.tick.lock, NOBODY) as (_, word):
        assert word == "held"
        tick(recorded("running"), settings)
    assert lock.stat().st_mode & 0o777 == 0o600


def test_a_lock_that_cannot_be_is_a_settings_fault(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(SettingsError, match=r"tick\.lock"):
        tick(recorded("running"), settings_in(tmp_path))


def test_links_are_not_followed(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    target = tmp_path / "target"
    (tmp_path / "run").mkdir()
    Path(settings.tick.lock).symlink_to(target)
    with pytest.raises(SettingsError, match="cannot be used"):
        tick(recorded("running"), settings)
    assert not target.exists()
    Path(settings.tick.lock).unlink()
    (tmp_path / "run").rename(tmp_path / "real")
    (tmp_path / "run").symlink_to(tmp_path / "real")
    with pytest.raises(SettingsError, match="not a directory"):
        tick(recorded("running"), settings)


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_a_directory_that_others_write_is_refused_and_left_alone(tmp_path: Path, mode: int) -> None:
    settings = settings_in(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(mode)
    with pytest.raises(SettingsError, match="others can write"):
        tick(recorded("running"), settings)
    assert (tmp_path / "run").stat().st_mode & 0o7777 == mode


@needs_root
def test_another_user_s_directory_and_file_are_refused(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    tick(recorded("running"), settings)
    os.chown(settings.tick.lock, NOBODY, NOBODY)
    with pytest.raises(
        NotAllowed, match=r"only the tick's user .* as user .*owner of .*tick\.lock "
    ):
        tick(recorded("running"), settings)
    os.chown(tmp_path / "run", NOBODY, NOBODY)
    with pytest.raises(NotAllowed, match=r"owner of .*run "):
        tick(recorded("running"), settings)


def test_after_a_reboot_the_packages_directory_has_a_command(mocker: MockerFixture) -> None:
    mocker.patch.object(Path, "mkdir", side_effect=PermissionError)
    advice = r"does not exist.*as root, run `systemd-tmpfiles --create slurm-malleable.conf`"
    for lock, said in ((Tick().lock, advice), ("/run/other/tick.lock", r"cannot make it\)")):
        with pytest.raises(NotAllowed, match=said), locked(Tick(lock=lock)):
            pytest.fail("the lock was taken without its directory")


def test_a_full_disk_is_reported_with_the_setting(tmp_path: Path, mocker: MockerFixture) -> None:
    settings = settings_in(tmp_path)
    mocker.patch("os.open", side_effect=OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(SettingsError, match=r"tick\.lock = .*cannot be used: .*No space left"):
        tick(recorded("running"), settings)


def test_a_full_disk_costs_only_the_holder_s_number(tmp_path: Path, mocker: MockerFixture) -> None:
    """Files exist, as after any tick. Only the blocks for a number are missing."""
    chosen = Tick(lock=str(tmp_path / "tick.lock"))
    with locked(chosen):
        pass
    full = OSError(errno.ENOSPC, "No space left on device")
    mocker.patch("slurm_hooks.tick.lock.os.pwrite", side_effect=full)
    with locked(chosen), pytest.raises(RetryLater, match="unknown"), locked(chosen):
        pass


def test_descriptors_are_given_back(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with locked(settings.tick):
            pass
    Path(settings.tick.lock).unlink()
    Path(settings.tick.lock).symlink_to("nowhere")
    with pytest.raises(SettingsError), locked(settings.tick):
        pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_tick_that_did_not_do_its_work_does_not_count(tmp_path: Path) -> None:
    lock = tmp_path / "own" / "tick.lock"
    with locked(Tick(lock=str(lock))) as outcome:
        outcome.is_completed = False
    done = lock.with_name("tick.lock.done")
    os.utime(done, (1, 1))
    with locked(Tick(lock=str(lock))) as outcome:
        outcome.is_completed = False
    assert done.stat().st_mtime == 1
    with locked(Tick(lock=str(lock))):
        pass
    assert done.stat().st_mtime > 1
