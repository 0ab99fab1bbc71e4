"""Writers that are late, die, or get a wrong answer at any of their system calls."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_hooks.elastic.rendezvous import directory as module
from slurm_hooks.elastic.rendezvous import revisions
from slurm_hooks.elastic.rendezvous.directory import DirectoryError, SharedDirectory
from slurm_hooks.elastic.rendezvous.revisions import (
    KEPT,
    LINEAGE,
    Revision,
    RevisionError,
    find_newest,
)
from slurm_hooks.elastic.rendezvous.state import Member, State, find, join
from waiting import wait_until

from .members import opened

CALLS = ("open", "close", "listdir", "fstat", "fsync", "link", "unlink")
LATE = Member("a" * 16, 1, 0, "1.0", "n1")


class Killed(BaseException):
    """The process has ended."""


class Gate:
    """A gate before and after every system call on files of a thread.

    It calls `step(n, name)` at the n-th of these points.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.victim = 0
        self.count = 0
        self.step: Callable[[int, str], None] = lambda n, name: None
        monkeypatch.setattr(os, "fsync", lambda handle: None)  # the disk's time; no host fails here
        for name in CALLS:
            monkeypatch.setattr(os, name, self._gated(name, getattr(os, name)))

    def _gated(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self.victim:
                return function(*args, **kwargs)
            self._pass(name)
            result = function(*args, **kwargs)
            self._pass(name)
            return result

        return call

    def _pass(self, name: str) -> None:
        self.count += 1
        self.step(self.count, name)

    def run(self, deed: Callable[[], object], step: Callable[[int, str], None]) -> int:
        """Run the deed as the victim. Return the number of points that it passed."""
        self.victim, self.count, self.step = threading.get_ident(), 0, step
        try:
            deed()
        except Killed:
            pass
        finally:
            self.victim = 0
        return self.count


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    # the lock only orders writers: without it all of them meet
    monkeypatch.setattr(module, "await_lock", lambda handle, until: True)
    # old names are free again as early as can be, in the thread that the gate holds up
    monkeypatch.setattr(revisions, "REST_S", -1.0)
    monkeypatch.setattr(module, "TIDY_EACH", 1)
    monkeypatch.setattr(
        module.Aside,
        "do",
        lambda self, deed, wait_s=0.0: self._is_free.acquire(False) and self._do(deed),
    )
    return Gate(monkeypatch)


def one_more(state: State) -> State:
    return replace(state, rounds=state.rounds + 1)


def pairs(path: Path) -> Iterator[tuple[int, SharedDirectory, SharedDirectory]]:
    """Fresh directories for the first, second ... point to disturb, seen by two agents.

    The next update is an update that tidies up.
    """
    for point in range(1, 100):
        one, two = (SharedDirectory(path / str(point), "7") for _ in range(2))
        one.open()
        for _ in range(KEPT - 1):
            two.update(one_more)
        yield point, one, two


def held_up(gate: Gate, point: int, deed: Callable[[], object], others: Callable[[], None]) -> bool:
    """Do `deed`, and `others` when it is at that point. Return False if it ends before."""

    def step(n: int, name: str) -> None:
        if n == point:
            gate.victim, victim = 0, gate.victim
            others()
            gate.victim = victim

    return gate.run(deed, step) >= point


@pytest.mark.parametrize("others", [1, 2, KEPT + 3])
def test_a_writer_that_is_held_up_anywhere_counts_once(
    gate: Gate, tmp_path: Path, others: int
) -> None:
    """This case once lost joins: the writer continues long after its turn.

    With KEPT + 3 others its revision has been tidied away, and the name is free again.
    """
    for point, late, other in pairs(tmp_path):
        seen: list[int] = []

        def meanwhile(other: SharedDirectory = other, seen: list[int] = seen) -> None:
            seen.extend(other.update(one_more).revision for _ in range(others))

        if not held_up(gate, point, lambda late=late: late.update(one_more), meanwhile):
            break
        state = opened(late.path).read()
        assert state.rounds == state.revision == KEPT + others, point
        assert seen == sorted(seen)
        assert other.read() == late.read() == state
    assert point > 20


def test_a_join_is_not_lost_however_late(gate: Gate, tmp_path: Path) -> None:
    """The newest revision has forgotten by then who wrote the late revision, so it joins twice."""
    for point, late, other in pairs(tmp_path):

        def meanwhile(other: SharedDirectory = other) -> None:
            for _ in range(LINEAGE + 2):
                other.update(one_more)

        if not held_up(
            gate, point, lambda late=late: late.update(lambda s: join(s, LATE)), meanwhile
        ):
            break
        state = other.read()
        assert find(state, LATE.token) is not None, point
        assert state.rounds == KEPT - 1 + LINEAGE + 2
    assert point > 20


def test_a_writer_that_dies_anywhere_blocks_no_other_writer(gate: Gate, tmp_path: Path) -> None:
    for point, dying, other in pairs(tmp_path):

        def die(n: int, name: str, point: int = point) -> None:
            if n >= point:
                raise Killed

        if gate.run(lambda dying=dying: dying.update(one_more), die) < point:
            break
        assert other.update(one_more, timeout_s=2.0).rounds in (KEPT, KEPT + 1), point
        before = other.read().rounds
        for _ in range(3 * KEPT):
            other.update(one_more)
        state = opened(dying.path).read()
        assert state.rounds == state.revision == before + 3 * KEPT
        assert not list(dying.path.glob("draft.*"))
        assert len(list(dying.path.glob("state.*"))) <= 2 * KEPT
    assert point > 20


@pytest.mark.parametrize("code", [errno.EEXIST, errno.EIO, errno.ESTALE, errno.ENOENT])
@pytest.mark.parametrize("others", [0, 1, KEPT + 3])
def test_a_link_that_was_made_and_reported_as_failed_counts_once(
    gate: Gate, tmp_path: Path, code: int, others: int
) -> None:
    """NFS repeats a request whose answer was lost, and finds that the name exists."""
    late, other = (SharedDirectory(tmp_path, "7") for _ in range(2))
    late.open()
    wrong = [1]

    def report_failure(n: int, name: str) -> None:
        is_behind = name == "link" and (tmp_path / "state.1").exists()
        if is_behind and wrong:
            wrong.clear()
            gate.victim, victim = 0, gate.victim
            for _ in range(others):
                other.update(one_more)
            gate.victim = victim
            raise OSError(code, os.strerror(code))

    gate.run(lambda: late.update(one_more), report_failure)
    assert not wrong
    assert other.read().rounds == others + 1


def test_an_unpublished_revision_is_an_error(gate: Gate, tmp_path: Path) -> None:
    late = opened(tmp_path)

    def fail(n: int, name: str) -> None:
        if name == "link":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(DirectoryError, match="free some space"):
        gate.run(lambda: late.update(one_more), fail)
    assert late.read() == opened(tmp_path).read() == State(run="7")


JOIN = """
import os, random, sys, time
from pathlib import Path
from slurm_hooks.elastic.rendezvous import directory
from slurm_hooks.elastic.rendezvous.state import Member, join
directory.await_lock = lambda handle, until: True
def late(function):
    def call(*args, **kwargs):
        if random.random() < 0.1:
            time.sleep(random.expovariate(1 / 0.05))
        return function(*args, **kwargs)
    return call
for name in ("open", "listdir", "fsync", "link", "unlink"):
    setattr(os, name, late(getattr(os, name)))
first, last = int(sys.argv[2]), int(sys.argv[3])
shared = directory.SharedDirectory(Path(sys.argv[1]), "7")
shared.open()
newest = 0
for n in range(first, last):
    member = Member(f"{n:016x}", n, 0, "1.0", f"n{n}")
    shared.update(lambda s: join(s, member), timeout_s=100)
    state = shared.read()
    assert state.revision >= newest and any(m.token == member.token for m in state.members)
    newest = state.revision
"""


@pytest.mark.slow
def test_no_join_is_lost_among_processes_that_are_late_by_chance(tmp_path: Path) -> None:
    writers, each = 8, 6
    command = [sys.executable, "-c", JOIN, str(tmp_path / "job")]
    spans = [(n * each, (n + 1) * each) for n in range(writers)]
    processes = [subprocess.Popen([*command, str(a), str(b)]) for a, b in spans]
    assert [p.wait(timeout=150) for p in processes] == [0] * writers
    state = opened(tmp_path / "job").read()
    assert sorted(m.fragment for m in state.members) == list(range(writers * each))
    assert state.revision == writers * each


def test_sixty_four_writers_at_once(gate: Gate, tmp_path: Path) -> None:
    agents = [SharedDirectory(tmp_path, "7") for _ in range(64)]
    agents[0].open()
    backwards: list[int] = []

    def work(agent: SharedDirectory, n: int) -> None:
        random.seed(n)
        agent.update(lambda s: join(s, Member(f"{n:016x}", n, 0, "1.0", f"n{n}")))
        revisions = [agent.read().revision for _ in range(20)]
        if revisions != sorted(revisions):
            backwards.append(n)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(agents, range(64))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    state = opened(tmp_path).read()
    assert (len(state.members), state.revision, backwards) == (64, 64, [])


def test_a_name_that_is_no_plain_file_is_no_revision_and_causes_no_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "state.1")
    with pytest.raises(RevisionError, match="not a plain file"):
        find_newest(tmp_path, Revision())


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SharedDirectory]:
    """A directory whose server waits for a dead node at each removal, while the test runs."""
    until, remove = threading.Event(), os.unlink

    def wait(name: str, **place: Any) -> None:
        if not name.startswith(("draft", "probe")):  # no other node has opened it
            assert threading.current_thread() is not threading.main_thread(), name
            until.wait()
        remove(name, **place)

    shared = opened(tmp_path / "job")
    monkeypatch.setattr(revisions, "REST_S", -1.0)
    monkeypatch.setattr(os, "unlink", wait)
    yield shared
    until.set()


def test_a_removal_that_hangs_delays_no_update_and_no_beat(served: SharedDirectory) -> None:
    for _ in range(4 * KEPT):
        served.update(one_more, timeout_s=1.0)
    served.write_beat("ab", 1)
    served.remove_beats(["ab"])
    assert served.read_beat("ab") == 1  # the removal hangs
    served.write_beat_aside("ab", 2)
    wait_until(lambda: served.read_beat("ab") == 2, 60, lambda: "no beat")


def test_a_revision_rests_before_its_removal(tmp_path: Path) -> None:
    """A dead node may have it in use, as far as the file server knows."""
    shared = opened(tmp_path)
    for _ in range(4 * KEPT):
        shared.update(one_more)
    revisions.tidy(tmp_path)
    assert len(list(tmp_path.glob("state.*"))) == 4 * KEPT
    read_last = os.stat(tmp_path / "state.4").st_mtime
    for number in range(1, 5):
        os.utime(tmp_path / f"state.{number}", (0, read_last - revisions.REST_S - 9))
    (tmp_path / "draft.2.0123abcd").write_text("of a dead writer")
    revisions.tidy(tmp_path)
    left = sorted(int(path.suffix[1:]) for path in tmp_path.glob("state.*"))
    assert left == list(range(4, 4 * KEPT + 1)), "the fourth was the newest until a moment ago"
    assert not list(tmp_path.glob("draft.*"))


def test_the_number_of_revisions_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revisions, "MOST", 3 * KEPT)
    shared = opened(tmp_path)
    for _ in range(5 * KEPT):
        shared.update(one_more)
    revisions.tidy(tmp_path)
    assert len(list(tmp_path.glob("state.*"))) == 3 * KEPT


def test_no_agent_opens_the_lock_for_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS would delegate it to a node, whose death then stops all others for 90 s."""
    flags, open_ = [], os.open

    def noted(name: Any, how: int, *more: Any, **place: Any) -> int:
        flags.extend([how] if name == "lock" else [])
        return open_(name, how, *more, **place)

    monkeypatch.setattr(os, "open", noted)
    opened(tmp_path).update(one_more)
    assert [how & os.O_ACCMODE for how in flags] == [os.O_WRONLY]
