"""The search for a dead peer, with real sockets and files, without torchrun."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_hooks.elastic.agent.actions import Enter, Form, Wait
from slurm_hooks.elastic.agent.membership import Membership
from slurm_hooks.elastic.agent.options import Options
from slurm_hooks.elastic.agent.session import Session
from slurm_hooks.elastic.batch.lease import Lease
from slurm_hooks.elastic.liveness.heartbeat import Heartbeat
from slurm_hooks.elastic.liveness.ping import PingListener
from slurm_hooks.elastic.rendezvous.directory import SharedDirectory
from slurm_hooks.elastic.rendezvous.rounds import Limits, expected, form
from slurm_hooks.elastic.rendezvous.state import Member, Phase, Round, find, join, succeed
from slurm_hooks.elastic.signals import SignalListener
from waiting import wait_until

BEAT_S = 30.0  # heartbeats show no death in time
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


def next_round(session: Session) -> Round:
    while True:
        action = session.next_action()
        if isinstance(action, Enter):
            return action.round
        if isinstance(action, Form):
            session.form(action.queue, 2)
        else:
            assert isinstance(action, Wait)
            time.sleep(action.pause_s)


@pytest.mark.parametrize("failed", [1, 0])
def test_dead_agents_are_detected_also_by_agents_whose_workers_did_not_fail(
    tmp_path: Path, failed: int
) -> None:
    directory = SharedDirectory(tmp_path, "7")
    directory.open()
    gone = PingListener("a" * 16)
    dead = Member("a" * 16, 1, 0, "1.0", "127.0.0.1", ping_port=gone.port)
    gone.close()
    directory.update(lambda s: join(s, dead))
    me = replace(dead, token="b" * 16, fragment=2)
    signals = SignalListener()
    membership = Membership(
        me, directory, Heartbeat(directory, me.token, BEAT_S, 2 * BEAT_S), signals
    )
    session = Session(options(tmp_path), membership, Lease({}, 20.0), signals)
    assert isinstance(session.next_action(), Wait)
    formed = directory.update(lambda s: form(s, Limits(1, 4), "127.0.0.1", 1, 1000))
    session.round = formed.round
    membership.rejoin(0, failed)
    try:
        assert next_round(session).order == (me.token,)
    finally:
        membership.fall_silent()
    assert find(directory.read(), dead.token) is None


def test_a_late_agent_forms_no_second_round_over_the_first(tmp_path: Path) -> None:
    """It decided by an older state, and an agent with a longer lease was faster."""
    directory = SharedDirectory(tmp_path, "7")
    directory.open()
    signals = SignalListener()
    me = Member("b" * 16, 2, 0, "1.0", "127.0.0.1")
    membership = Membership(
        me, directory, Heartbeat(directory, me.token, BEAT_S, 2 * BEAT_S), signals
    )
    session = Session(options(tmp_path), membership, Lease({}, 20.0), signals)
    assert isinstance(session.next_action(), Wait)
    try:
        first = replace(me, token="a" * 16, fragment=1, ends=9000)
        seen = directory.update(lambda s: join(s, first))
        formed = directory.update(lambda s: form(s, Limits(1, 4), "127.0.0.1", 1, 1000))
        session.form(expected(seen), 2)
        assert directory.read_fresh().round == formed.round
    finally:
        membership.fall_silent()


@pytest.mark.parametrize("is_done", [False, True])
def test_an_unfinished_agent_whose_connection_closes_is_dead_at_once(
    tmp_path: Path, is_done: bool
) -> None:
    directory = SharedDirectory(tmp_path, "7")
    directory.open()
    listener, heartbeat = (
        PingListener("a" * 16),
        Heartbeat(directory, "b" * 16, BEAT_S, 2 * BEAT_S),
    )
    peer = Member("a" * 16, 1, 0, "1.0", "127.0.0.1", ping_port=listener.port)
    me = replace(peer, token="b" * 16, fragment=2, ping_port=heartbeat.listener.port)
    directory.update(lambda s: form(join(join(s, peer), me), Limits(1, 4), "h", 1, 1000))
    signals = SignalListener()
    heartbeat.start(signals)
    try:
        wait_until(heartbeat._connections.filenos)
        if is_done:
            directory.update(lambda s: succeed(s, peer.token, 1000))
        listener.close()
        if is_done:
            time.sleep(1.0)
            member = find(directory.read(), peer.token)
            assert member is not None
            assert member.phase is Phase.DONE
        else:
            wait_until(lambda: find(directory.read(), peer.token) is None)
    finally:
        heartbeat.stop(signals)
