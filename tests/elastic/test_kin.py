"""A command is ended with all its processes, and does not outlive its agent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from slurm_hooks.elastic.engines.command import Command
from slurm_hooks.elastic.engines.kin import Kin, find
from waiting import wait_until

# Three that no signal to the command's group reaches, deaf to SIGTERM: in a group of its own, in a
# session of its own, and in a group of its own without a parent, as ranks of an MPI may be.
FAMILY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def child(name, prepare):
    if os.fork() == 0:
        prepare()
        with open(os.path.join(sys.argv[1], name + ".new"), "w") as file:
            file.write(str(os.getpid()))
        os.rename(file.name, os.path.join(sys.argv[1], name))
        time.sleep(120)
def orphan():
    os.setpgid(0, 0)
    if os.fork():
        os._exit(0)
child("group", lambda: os.setpgid(0, 0))
child("session", os.setsid)
child("orphan", orphan)
if sys.argv[2] == "stays":
    time.sleep(120)
"""
NAMES = ("group", "session", "orphan")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for name in NAMES:
        with suppress(OSError, ValueError):
            os.kill(int((tmp_path / name).read_text()), signal.SIGKILL)


def words(place: Path, manner: str = "stays") -> list[str]:
    return [sys.executable, "-c", FAMILY, str(place), manner]


def alive(place: Path, name: str) -> bool:
    try:
        stat = Path(f"/proc/{(place / name).read_text()}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def all_there(place: Path) -> bool:
    return all((place / name).exists() for name in NAMES)


def test_a_command_is_ended_with_all_that_it_has_started(place: Path) -> None:
    command = Command(words(place), os.environ)
    wait_until(lambda: all_there(place))
    command.stop(0.2)
    assert not [name for name in NAMES if alive(place, name)]
    assert command.exit_code() == 128 + signal.SIGKILL


def test_remains_of_a_command_in_its_session_are_ended_too(place: Path) -> None:
    command = Command(words(place, "goes"), os.environ)
    wait_until(lambda: all_there(place) and command.exit_code() is not None)
    command.end_rest()
    assert not [name for name in NAMES if alive(place, name)]


def test_other_children_of_this_process_are_left_alone(place: Path) -> None:
    command, other = Command(words(place), os.environ), Command(["sleep", "60"], os.environ)
    wait_until(lambda: all_there(place))
    with subprocess.Popen(["sleep", "60"]) as mine:
        command.stop(0.1)
        assert mine.poll() is None
        mine.kill()
    assert other.exit_code() is None
    other.stop(5.0)
    assert other.exit_code() == 128 + signal.SIGTERM


def test_a_command_that_starts_while_another_is_ended_is_left_alone(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent ends the daemons of a round in their threads, and starts those of the next."""
    old = Command(words(place), os.environ)
    wait_until(lambda: all_there(place))
    with ThreadPoolExecutor() as threads:
        ending = threads.submit(old.stop, 0.3)
        # a busy host: the child exists for long before this process knows its number
        monkeypatch.setattr("slurm_hooks.elastic.engines.command.dies_with", lambda _: _delay)
        new = Command(["sleep", "60"], os.environ)
        ending.result()
    assert new.exit_code() is None
    new.stop(5.0)


def _delay() -> None:
    time.sleep(0.5)


def test_an_older_child_in_a_session_of_its_own_is_left_alone(place: Path) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as older:
        before = find(older.pid)
        assert before
        ticks = os.sysconf("SC_CLK_TCK")  # births are counted in ticks
        wait_until(lambda: time.clock_gettime(time.CLOCK_BOOTTIME) * ticks > before.born + 2)
        command = Command(words(place), os.environ)
        wait_until(lambda: all_there(place))
        command.stop(0.1)
        assert older.poll() is None
        older.kill()


def test_a_command_has_its_grace_after_its_first_process_has_ended(place: Path) -> None:
    command = Command(words(place, "goes"), os.environ)
    wait_until(lambda: all_there(place) and command.exit_code() is not None)
    began = time.monotonic()
    command.stop(1.0)
    assert time.monotonic() - began >= 1.0
    assert not alive(place, "group")


def test_an_ended_orphan_causes_no_wait(tmp_path: Path) -> None:
    """This process has to collect the orphan."""
    command = Command(["sh", "-c", "sleep 0.2 & exit 0"], os.environ)
    wait_until(lambda: command.exit_code() == 0)
    time.sleep(0.4)
    command.stop(900.0)


def test_orphans_of_a_command_are_collected_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks of a worker that runs for days may leave thousands."""
    monkeypatch.setattr("slurm_hooks.elastic.engines.command.COLLECT_S", 0.2)
    line = f"(sleep 0.1 & echo $! >{tmp_path}/left) & wait; sleep 60"
    command = Command(["sh", "-c", line], os.environ)
    wait_until(lambda: (tmp_path / "left").exists() and (tmp_path / "left").read_text().strip())
    left = Path("/proc", (tmp_path / "left").read_text().strip())
    wait_until(lambda: command.exit_code() is None and not left.exists())
    command.stop(5.0)


def test_a_command_ends_with_a_killed_agent(tmp_path: Path) -> None:
    agent = (
        "import sys, time\n"
        "from slurm_hooks.elastic.engines.command import Command\n"
        "command = Command(sys.argv[1:], {})\n"
        "print(command._process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    argv = [sys.executable, "-c", agent, "/bin/sleep", "60"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        (tmp_path / "sleep").write_text(process.stdout.readline().strip())
        assert alive(tmp_path, "sleep")
        process.kill()
    wait_until(lambda: not alive(tmp_path, "sleep"))


def test_a_reused_number_is_another_process(tmp_path: Path) -> None:
    def write(pid: int, parent: int, session: int, born: int) -> None:
        (tmp_path / str(pid)).mkdir(exist_ok=True)
        rest = " ".join(["0"] * 15)
        text = f"{pid} (a ) b) S {parent} 1 {session} {rest} {born} 0\n"
        (tmp_path / str(pid) / "stat").write_text(text)

    write(10, 1, 10, 500)
    write(11, 10, 11, 501)
    write(12, 1, 1, 3)
    family = Kin(10, tmp_path)
    assert {process.pid for process in family.look()} == {10, 11}
    write(11, 1, 1, 900)
    assert {process.pid for process in family.look()} == {10}
