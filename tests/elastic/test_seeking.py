"""A dead peer is found by whoever waits, with real sockets and files, without torchrun."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slurm_hooks.elastic.directory import SharedDirectory
from slurm_hooks.elastic.door import Door
from slurm_hooks.elastic.lease import Lease
from slurm_hooks.elastic.membership import Membership
from slurm_hooks.elastic.notice import Notice
from slurm_hooks.elastic.options import Options
from slurm_hooks.elastic.pulse import Pulse
from slurm_hooks.elastic.rounds import Limits, form
from slurm_hooks.elastic.session import Session
from slurm_hooks.elastic.state import Member, find, join

BEAT_S = 30.0  # hearts tell nothing in time
PATIENCE_S = 15.0


def options(path: Path) -> Options:
    return Options(
        directory=path,
        run="7",
        limits=Limits(1, 4),
        host="127.0.0.1",
        notice_s=20,
        poll_s=0.2,
        beat_s=BEAT_S,
        keep_alive_s=2 * BEAT_S,
        settle_s=1,
        leave_s=1,
        boundary_s=1,
        wait_s=PATIENCE_S,
    )


@pytest.mark.parametrize("failed", [True, False])
def test_the_dead_are_found_also_by_those_whose_workers_did_not_fail(
    tmp_path: Path, failed: bool
) -> None:
    directory = SharedDirectory(tmp_path, "7")
    directory.open()
    gone = Door("a" * 16)
    dead = Member("a" * 16, 1, 0, "1.0", "127.0.0.1", door=gone.port)
    gone.close()
    directory.update(lambda s: join(s, dead))
    me = replace(dead, token="b" * 16, fragment=2)
    notice = Notice()
    membership = Membership(me, directory, Pulse(directory, me.token, BEAT_S, 2 * BEAT_S))
    session = Session(options(tmp_path), membership, Lease({}, 20.0), notice)
    session.enter()
    formed = directory.update(lambda s: form(s, Limits(1, 4), "127.0.0.1", 1, 1000))
    session.round = formed.round
    membership.rejoin(0, failed)
    try:
        assert session.wait_for_round(lambda: 2).order == (me.token,)
    finally:
        membership.fall_silent(notice)
    assert find(directory.read(), dead.token) is None
