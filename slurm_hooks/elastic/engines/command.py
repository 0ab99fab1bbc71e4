"""A command that an agent runs: a session of processes that is started, watched and ended. And
programs that a command needs.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from slurm_hooks.elastic.engines.kin import Kin, adopt, dies_with, starting
from slurm_hooks.elastic.log import say

WRITE_S = 60.0
LOOK_S, LOOK_MOST_S = 0.02, 0.5  # between two looks at processes, first and longest
COLLECT_S = 10.0  # between two looks while it runs
ROUNDS = 20  # of SIGKILL: a process that was forked during one is killed by the next
PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class Command:
    """Starts the command when it is made. Raises OSError if that fails."""

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
        with starting:
            self._process = subprocess.Popen(
                words,
                env=dict(env),
                start_new_session=True,
                preexec_fn=mortal,  # noqa: PLW1509
            )
            self._kin = Kin(self._process.pid)
        self._next_look = time.monotonic() + COLLECT_S
        self._passes_on = False

    def pass_on_signals(self) -> None:
        """Pass signals on to this command, as pass_on_signals below."""
        self._passes_on = True
        pass_on_signals([self])

    def pass_on(self, number: signal.Signals) -> None:
        """Send this signal to its process group. After its end the number of the group may belong
        to another group, so the signal is dropped.
        """
        if self._process.returncode is None:
            self._signal(number)

    def exit_code(self) -> int | None:
        """Return the exit code as a shell has it, or `None` while the command runs.

        Call it again and again: it collects the processes that the command has left to this
        process, which would stay zombies otherwise.
        """
        if time.monotonic() >= self._next_look:
            self._kin.look()
            self._next_look = time.monotonic() + COLLECT_S
        code = self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    def stop(self, grace_s: float) -> None:
        """End it with all that it has started: send its signal, and SIGKILL after `grace_s`."""
        self.ask()
        self.await_end(time.monotonic() + grace_s, grace_s)
        self.end_rest()

    def ask(self) -> None:
        """Send the signal that asks it to end."""
        self._kin.look()
        self._signal(self._end_signal)

    def await_end(self, until: float, grace_s: float) -> None:
        """Wait until `until` (monotonic) for all that it has started. It was asked to end `grace_s`
        before.
        """
        if not self._has_ended(until - time.monotonic()):
            name = self._end_signal.name
            say(f"{self._name} did not end within {grace_s:g} s of {name}; sending SIGKILL")

    def end_rest(self) -> None:
        """Kill all that is left of it."""
        for _ in range(ROUNDS):
            self._kin.kill()
            if self._has_ended(LOOK_MOST_S):
                break
        self._kin.forget()
        if self._passes_on:
            pass_on_no_more()
        self._process.wait()

    def _has_ended(self, patience_s: float) -> bool:
        """Tell whether all of it has ended within `patience_s`. A look at all processes of a node
        takes milliseconds, so the looks become rarer.
        """
        deadline, pause_s = time.monotonic() + patience_s, LOOK_S
        while True:
            self._process.poll()
            if not self._kin.look():
                return True
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            time.sleep(min(pause_s, left_s))
            pause_s = min(1.5 * pause_s, LOOK_MOST_S)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(OSError):  # all have ended
            os.killpg(self._process.pid, number)


def write_program(path: Path, text: str) -> None:
    """Write a file that can be executed at once. Raises OSError.

    Another process writes it. If this process had it open, so would a process that another thread
    starts meanwhile, and no file is executed that is open for writing ("Text file busy").
    """
    words = ["dd", "status=none", f"of={path}"]
    try:
        subprocess.run(words, input=text, text=True, check=True, timeout=WRITE_S)
    except subprocess.SubprocessError as error:
        raise OSError(errno.EIO, f"it could not be written: {error}", str(path)) from error
    path.chmod(0o700)


def pass_on_signals(commands: Sequence[Command]) -> None:
    """Pass the signals that a user sends to the job on to these commands, each in its own process
    group. Signals that come after the end of the commands are dropped. In the main thread only.
    """

    def pass_on(number: int, _frame: object) -> None:
        for command in commands:
            command.pass_on(signal.Signals(number))

    for number in PASSED_ON:
        signal.signal(number, pass_on)


def pass_on_no_more() -> None:
    """Ignore the signals again: a handler in Python does not live as long as the interpreter."""
    for number in PASSED_ON:
        signal.signal(number, signal.SIG_IGN)
