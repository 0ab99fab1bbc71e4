"""A command that an agent runs: a session of processes that is started, watched and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from slurm_hooks.elastic.engines.kin import Kin, adopt, dies_with
from slurm_hooks.elastic.log import say

POLL_S = 0.05
ROUNDS = 20  # of SIGKILL: what forks meanwhile is met by the next
PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class Command:
    """Started when this is made. Raises OSError if it cannot be."""

    def __init__(
        self,
        words: Sequence[str],
        env: Mapping[str, str],
        end_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        self._name = words[0]
        self._end_signal = end_signal
        adopt()
        mortal = dies_with(os.getpid())  # a system call or two, and no lock
        self._process = subprocess.Popen(
            words,
            env=dict(env),
            start_new_session=True,
            preexec_fn=mortal,  # noqa: PLW1509
        )
        self._kin = Kin(self._process.pid)

    def pass_on_signals(self) -> None:
        """From now on what a user sends to the job reaches the command, which is in a process
        group of its own. In the main thread only."""
        for number in PASSED_ON:
            signal.signal(number, lambda found, _frame: self._signal(signal.Signals(found)))

    def exit_code(self) -> int | None:
        """As a shell has it; None while it runs."""
        code = self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    def stop(self, grace_s: float) -> None:
        """End it with all that it has started: its signal, and SIGKILL after so long."""
        self._kin.look()
        self._signal(self._end_signal)
        deadline = time.monotonic() + grace_s
        while self._has_processes() and time.monotonic() < deadline:
            time.sleep(POLL_S)
        if self._has_processes():
            name = self._end_signal.name
            say(f"{self._name} has not ended within {grace_s:g} s of {name}")
        self.end_rest()
        self._process.wait()

    def end_rest(self) -> None:
        """Kill all that is left of it."""
        for _ in range(ROUNDS):
            self._kin.kill()
            if not self._has_processes():
                break
            time.sleep(POLL_S)
        self._kin.forget()

    def _has_processes(self) -> bool:
        self._process.poll()
        with suppress(OSError):  # its own group has ended, which is cheap to know
            os.killpg(self._process.pid, 0)
            return True
        return bool(self._kin.look())

    def _signal(self, number: signal.Signals) -> None:
        with suppress(OSError):  # all have ended
            os.killpg(self._process.pid, number)
