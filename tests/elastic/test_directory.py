"""The shared directory as a compare-and-set store, with real processes and files."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from pytest_mock import MockerFixture

from slurm_hooks.elastic.rendezvous import directory as module
from slurm_hooks.elastic.rendezvous.codec import encode
from slurm_hooks.elastic.rendezvous.directory import DirectoryError, SharedDirectory
from slurm_hooks.elastic.rendezvous.revisions import MOST
from slurm_hooks.elastic.rendezvous.rounds import Limits, form
from slurm_hooks.elastic.rendezvous.state import Member, State, join
from waiting import wait_until

from .members import opened

HAMMER = """
import sys
from dataclasses import replace
from pathlib import Path
from slurm_hooks.elastic.rendezvous import directory
if sys.argv[3] == "unlocked":
    directory.await_lock = lambda handle, until: True
shared = directory.SharedDirectory(Path(sys.argv[1]), "7")
for _ in range(int(sys.argv[2])):
    shared.update(lambda s: replace(s, rounds=s.rounds + 1), timeout_s=60)
"""


@pytest.mark.parametrize("locks", ["locked", "unlocked"])
def test_no_update_is_lost_among_processes(tmp_path: Path, locks: str) -> None:
    """`unlocked`: as on file systems whose locks only work within a node."""
    shared = opened(tmp_path / "job")
    writers, each = 4, 40
    command = [sys.executable, "-c", HAMMER, str(shared.path), str(each), locks]
    processes = [subprocess.Popen(command) for _ in range(writers)]
    assert [p.wait(timeout=150) for p in processes] == [0] * writers
    state = shared.read()
    assert (state.rounds, state.revision) == (writers * each, writers * each)
    assert len(list(shared.path.glob("state.*"))) <= MOST
    assert not list(shared.path.glob("draft.*"))


def test_private_and_empty_at_first(tmp_path: Path) -> None:
    shared = opened(tmp_path / "a" / "b")
    assert shared.path.stat().st_mode & 0o777 == 0o700
    assert shared.read() == State(run="7")


def test_an_update_without_change_writes_no_file(tmp_path: Path) -> None:
    shared = opened(tmp_path)
    assert shared.update(lambda s: s).revision == 0
    assert not list(tmp_path.glob("state.*"))


def test_readers_see_changes_of_others_at_once(tmp_path: Path) -> None:
    one, two = opened(tmp_path), opened(tmp_path)
    for number in range(1, 30):
        one.update(lambda s: replace(s, rounds=s.rounds + 1))
        assert two.read().rounds == number


def test_a_directory_of_another_job_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).update(lambda s: replace(s, rounds=1))
    with pytest.raises(DirectoryError, match="belongs to the job 7, not to 8"):
        SharedDirectory(tmp_path, "8").read()


def test_damage_is_reported_with_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "state.3").write_text("{torn")
    with pytest.raises(DirectoryError, match="remove that directory"):
        opened(tmp_path).read()


def test_a_file_system_without_hard_links_is_refused(tmp_path: Path, mocker: MockerFixture) -> None:
    mocker.patch("os.link", side_effect=PermissionError(errno.EPERM, "Operation not permitted"))
    with pytest.raises(DirectoryError, match="without hard links"):
        opened(tmp_path / "job")
    assert not list((tmp_path / "job").glob("probe*"))


@pytest.mark.parametrize("name", ["file/dir", "missing\0byte"])
def test_an_unusable_path_is_reported_in_a_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises((DirectoryError, ValueError)) as caught:
        opened(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_an_update_goes_on_without_a_lock_whose_opening_hangs(tmp_path: Path) -> None:
    """As on NFSv4, if a node that has lost its power had read the file. A FIFO hangs too."""
    shared = opened(tmp_path / "job")
    os.mkfifo(shared.path / "lock")
    for number in (1, 2):
        assert shared.update(lambda s: replace(s, rounds=s.rounds + 1)).rounds == number
    reader = os.open(shared.path / "lock", os.O_RDONLY | os.O_NONBLOCK)  # ends the thread
    assert shared.update(lambda s: replace(s, rounds=s.rounds + 1)).rounds == 3
    os.close(reader)


def test_an_update_goes_on_without_a_lock_that_a_lost_node_holds(tmp_path: Path) -> None:
    """An NFSv4 server keeps it for 90 s. An update that waited for its time-out would fail."""
    shared = opened(tmp_path / "job")
    hold = "import fcntl,sys;f=open(sys.argv[1],'w');fcntl.lockf(f,fcntl.LOCK_EX);print(1,flush=1)"
    holder = [sys.executable, "-c", f"{hold};sys.stdin.read()", str(shared.path / "lock")]
    pipe = subprocess.PIPE
    with subprocess.Popen(holder, stdin=pipe, stdout=pipe) as process:
        assert process.stdout
        process.stdout.readline()
        shared.update(lambda s: replace(s, rounds=s.rounds + 1), timeout_s=8)
        process.communicate()
    assert shared.read().rounds == 1


def test_heartbeats(tmp_path: Path) -> None:
    shared = opened(tmp_path)
    assert shared.read_beat("ab") is None
    shared.write_beat("ab", 41)
    assert shared.read_beat("ab") == 41
    (tmp_path / "beats" / "ab").write_text("junk")
    assert shared.read_beat("ab") is None
    shared.remove_beats(["ab"])
    with pytest.raises(DirectoryError, match="refusing"):
        shared.write_beat("../x", 1)


def test_a_beat_that_could_not_be_written_is_an_error_of_the_next(tmp_path: Path) -> None:
    """An agent that cannot write its own heartbeat must not judge the silence of others."""
    shared = opened(tmp_path)
    (tmp_path / "beats" / "ab").mkdir()
    shared.write_beat_aside("ab", 1)

    def is_refused() -> bool:
        try:
            shared.write_beat_aside("ab", 2)
        except DirectoryError as error:
            return "cannot write a heartbeat" in str(error)
        return False

    wait_until(is_refused)
    (tmp_path / "beats" / "ab").rmdir()
    wait_until(lambda: not is_refused())


def test_a_stage_belongs_to_a_single_incarnation(tmp_path: Path) -> None:
    shared = opened(tmp_path)
    assert shared.read_stage("1.0", "9.0") == 1
    shared.write_stage("1.0", "9.0", 2)
    assert shared.read_stage("1.0", "9.0") == 2
    assert shared.read_stage("1.0", "9.1") == 1


def test_round_log_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUND_LOG_BYTES", 100)
    shared = opened(tmp_path)
    for _ in range(50):
        shared.log_round("x" * 20)
    assert (tmp_path / "rounds.jsonl").stat().st_size < 130


def test_five_hundred_agents_fit_and_parse_quickly(tmp_path: Path) -> None:
    def join_all(state: State) -> State:
        for n in range(500):
            state = join(
                state, Member(f"{n:016x}", n, 0, "1234567.0", f"node{n:05}.cluster.example")
            )
        return form(state, Limits(1, 500), "node1", 4000, 1_700_000_000)

    shared = opened(tmp_path)
    shared.update(join_all)
    began = time.process_time()
    state = opened(tmp_path).read()
    assert time.process_time() - began < 2
    assert state.round is not None
    assert len(state.round.order) == len(state.members) == 500
    assert len(encode(state)) < 100_000
