"""Daemons of an MPI that its leader starts on this node through this agent, as it would by ssh.

A daemon lives as long as the connection over which it was asked for. The launcher at the other end
is a child of mpirun.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress

from slurm_hooks.elastic.engines.command import Command
from slurm_hooks.elastic.engines.gang.channel import Request, send_line
from slurm_hooks.elastic.polling import readable

LAUNCH = "launch"
LOOK_S = 0.1
BEGIN_S = 10.0  # for this agent to be in the round too
REFUSED = 255
END_S = 2.0  # from SIGTERM to SIGKILL, for a daemon that its leader has left


class Daemons:
    """The daemons of this agent. It may be asked for them in its current round."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._round = 0  # outside of a round
        self._env: Mapping[str, str] = {}
        self._running: list[Command] = []

    def begin_round(self, number: int, env: Mapping[str, str]) -> None:
        """Accept requests for daemons from now on. They get `env` as their environment."""
        with self._changed:
            self._round, self._env = number, env
            self._changed.notify_all()

    def end_round(self, grace_s: float) -> None:
        """End the running daemons, and start no more."""
        with self._changed:
            self._round, running = 0, list(self._running)
        for daemon in running:
            daemon.stop(grace_s)

    def handle(self, request: Request, end: socket.socket) -> None:
        """Run a daemon until it ends or its leader has gone. Raises OSError, ValueError."""
        daemon = self._start(int(request["round"]), str(request["line"]))
        if daemon is None:
            send_line(end, REFUSED)
            return
        try:
            while daemon.exit_code() is None and not readable([end.fileno()], LOOK_S):
                pass
        finally:
            code = daemon.exit_code()
            daemon.stop(END_S)
            with self._changed:
                self._running.remove(daemon)
        with suppress(OSError):
            send_line(end, code or 0)

    def _start(self, number: int, line: str) -> Command | None:
        """Start a line for the shell, as ssh takes it. Return `None` if this agent does not come
        into that round. The leader may be faster than this agent.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._round == number, BEGIN_S):
                return None
            daemon = Command(["/bin/sh", "-c", line], self._env)
            self._running.append(daemon)
            return daemon
