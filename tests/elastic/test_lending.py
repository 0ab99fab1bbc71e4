"""Workers that cannot see their agent in /proc share its memory. No other process gets it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from slurm_hooks.elastic import lending
from slurm_hooks.elastic.mailbox import (
    LENT,
    MAILBOX,
    SLOTS,
    Mailbox,
    MailboxReader,
    PlannedChange,
    find_files,
)
from waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
NOT_SEEN = {MAILBOX: "999999999:3", SLOTS: "999999999:4:5"}
NOBODY = 65534
ASK = """
import sys
from slurm_hooks.elastic import lending
try:
    print(len(lending.borrow(sys.argv[1])))
except (OSError, ValueError) as error:
    print(error)
"""


def asked_in_a_process(name: str, user: int | None = None) -> str:
    argv = [sys.executable, "-c", ASK, name]
    done = subprocess.run(
        argv, cwd=ROOT, user=user, capture_output=True, text=True, timeout=150, check=True
    )
    return done.stdout.strip()


def test_a_worker_that_does_not_see_its_agent_hears_of_changes() -> None:
    mailbox = Mailbox()
    reader = MailboxReader({**mailbox.lend(), **NOT_SEEN})
    reader.listen()
    assert mailbox.is_awaited()
    mailbox.post(PlannedChange("leave", 9.0))
    assert reader.read() == PlannedChange("leave", 9.0)


def test_a_borrower_has_the_same_memory_in_the_same_order() -> None:
    mailbox = Mailbox()
    seen = find_files(mailbox.environment(), SLOTS)
    lent = find_files({**mailbox.lend(), **NOT_SEEN}, SLOTS)
    assert [os.fstat(handle).st_ino for handle in lent] == [
        os.fstat(handle).st_ino for handle in seen
    ]


def test_no_handle_is_left_open() -> None:
    mailbox = Mailbox()
    env = {**mailbox.lend(), **NOT_SEEN}
    before = len(os.listdir("/proc/self/fd"))
    for name in (MAILBOX, SLOTS):
        for handle in find_files(env, name):
            os.close(handle)
    # the lending thread closes its end when it gets to it
    wait_until(lambda: len(os.listdir("/proc/self/fd")) == before, 20.0)


def test_memory_is_lent_to_many_processes() -> None:
    name = next(iter(Mailbox().lend().values()))
    assert [asked_in_a_process(name) for _ in range(3)] == ["3"] * 3


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as somebody else")
def test_no_other_process_is_given_the_memory() -> None:
    name = next(iter(Mailbox().lend().values()))
    assert "another user's process listens" in asked_in_a_process(name, NOBODY)
    client = (
        "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.settimeout(10)\n"
        "s.connect('\\0' + sys.argv[1])\nprint(len(socket.recv_fds(s, 1, 8)[1]))"
    )
    argv = [sys.executable, "-c", client, name]
    done = subprocess.run(
        argv, user=NOBODY, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.stdout.strip() in ("0", ""), done.stderr


def test_a_lender_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lending, "LIMIT_S", 0.3)
    listener = socket.socket(socket.AF_UNIX)
    name = f"malleable-silent-{os.getpid()}"  # of this host, not of this test alone
    listener.bind(f"\0{name}")
    listener.listen()
    with listener, pytest.raises(OSError, match="timed out"):
        lending.borrow(name)


@pytest.mark.parametrize("name", ["", "other", "malleable-nobody"])
def test_without_a_lender_there_is_no_memory(name: str) -> None:
    with pytest.raises((OSError, ValueError)):
        lending.borrow(name)
    reader = MailboxReader({**NOT_SEEN, "MALLEABLE_LENT": name})
    assert reader.read() is None


ASK_TWICE = """
import os
from slurm_hooks.elastic.mailbox import MailboxReader
for _ in range(2):
    MailboxReader(os.environ).listen()
"""


@pytest.mark.parametrize(
    ("extra", "lines"),
    [
        ({**NOT_SEEN, "MALLEABLE_LENT": "malleable-nobody"}, 1),
        ({**NOT_SEEN, "LOCAL_RANK": "0"}, 1),
        ({**NOT_SEEN, "LOCAL_RANK": "1"}, 0),  # a single process of a node is enough
        ({}, 0),  # no agent
    ],
)
def test_a_worker_that_cannot_reach_its_agent_says_so_once(
    extra: dict[str, str], lines: int
) -> None:
    env = {n: v for n, v in os.environ.items() if n not in (MAILBOX, SLOTS, LENT, "LOCAL_RANK")}
    argv = [sys.executable, "-c", ASK_TWICE]
    done = subprocess.run(
        argv, cwd=ROOT, env=env | extra, capture_output=True, text=True, timeout=150, check=True
    )
    assert done.stderr.count("this process cannot reach its agent") == lines
    assert len(done.stderr.splitlines()) == lines


def test_a_host_without_such_sockets_has_workers_that_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    mailbox = Mailbox()
    assert mailbox.lend() == {}
    MailboxReader({**mailbox.environment(), **mailbox.lend()}).listen()
    assert mailbox.is_listened_to()
