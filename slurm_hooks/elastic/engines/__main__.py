"""An agent without torchrun: runs a command as the worker of this fragment.

    python -m slurm_hooks.elastic.engines [--signal=NAME] [--grace=SECONDS] COMMAND [ARG...]

It tells Slurm that there is an agent. The notice and the end of the lease reach the command as a
signal (SIGTERM unless said otherwise); after SECONDS at most (the notice less 5) the fragment is
put back. If the command ends with 0 without having been asked to, the row of the job's engine says
what that means. No rounds; that the command has outlived a whole lease counts as progress.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from slurm_hooks.elastic.agent.options import OptionError, knob
from slurm_hooks.elastic.batch.lease import Lease
from slurm_hooks.elastic.batch.own_element import OwnElement
from slurm_hooks.elastic.batch.standing import Standing
from slurm_hooks.elastic.engines.table import ENGINES
from slurm_hooks.elastic.log import say
from slurm_hooks.elastic.signals import SignalListener

POLL_S = 0.2
NOTICE_S = 20.0  # unless the environment says otherwise
SPARE_S = 5.0  # of the notice, to put the fragment back
TERMINATED = 128 + signal.SIGTERM
USAGE = "usage: python -m slurm_hooks.elastic.engines [--signal=TERM] [--grace=15] COMMAND [ARG...]"


@dataclass(frozen=True)
class Order:
    """What is to be run, the signal that asks it to end, and how long it may take to."""

    command: tuple[str, ...]
    signal: signal.Signals = signal.SIGTERM
    grace_s: float = NOTICE_S - SPARE_S


def read_order(argv: Sequence[str], env: Mapping[str, str]) -> Order:
    """From the words behind the module's name, and the notice in the environment. Raises
    OptionError."""
    words, number = list(argv), signal.SIGTERM
    grace_s = max(0.0, knob(env, "notice_s", NOTICE_S) - SPARE_S)
    while words and words[0].startswith("--"):
        flag, _, value = words.pop(0).partition("=")
        if flag == "--":
            break
        if flag == "--help":
            raise OptionError(USAGE)
        if flag == "--signal" and f"SIG{value}" in signal.Signals.__members__:
            number = signal.Signals[f"SIG{value}"]
        elif flag == "--grace":
            grace_s = knob({}, "grace", grace_s, value)
        else:
            raise OptionError(f"{flag}={value} is not understood; {USAGE}")
    if not words:
        raise OptionError(f"a command is missing; {USAGE}")
    return Order(tuple(words), number, grace_s)


def run(order: Order, env: Mapping[str, str]) -> int:
    """Run the command as the worker of the fragment with this environment; returns what its
    batch script is to go on with. Raises OptionError, OSError."""
    signals = SignalListener()
    signals.silence()  # what is to be done at SIGTERM is done here
    own_element = OwnElement(env, signals)
    own_element.report_started()
    lease = Lease(env, knob(env, "notice_s", NOTICE_S))
    child = subprocess.Popen(order.command)
    own_element.report(Standing.JOINED)
    runs, first_end = True, lease.ends
    while runs:
        runs = _runs(child, POLL_S)
        if 0 < first_end < time.time():
            own_element.report_trained()
        if not runs:
            time.sleep(POLL_S)  # Slurm's signals reach the command and this process in any order
        if signals.is_terminated:
            _end(child, order)
            return TERMINATED
        if signals.has_notice or (runs and lease.is_over(time.time())):
            say(f"fragment leaves: {order.signal.name} to {order.command[0]}")
            own_element.report(Standing.LEAVING)
            _end(child, order)
            return _put_back(own_element, signals)
    if child.returncode:
        return child.returncode if child.returncode > 0 else 128 - child.returncode
    row = ENGINES.get(env.get("MALLEABLE_ENGINE", ""))
    if row and row.is_pool:
        return _put_back(own_element, signals)
    own_element.report_finished()
    return 0


def _runs(child: subprocess.Popen[bytes], wait_s: float) -> bool:
    with suppress(subprocess.TimeoutExpired):
        child.wait(wait_s)
    return child.returncode is None


def _end(child: subprocess.Popen[bytes], order: Order) -> None:
    child.send_signal(order.signal)
    if _runs(child, order.grace_s):
        say(f"{order.command[0]} has not ended within {order.grace_s:g} s of {order.signal.name}")
        child.kill()
        child.wait()


def _put_back(own_element: OwnElement, signals: SignalListener) -> int:
    own_element.put_back()
    return TERMINATED if signals.is_terminated else 0


def main(argv: Sequence[str]) -> int:
    """The exit code; 2 for words that cannot be understood, 127 for no such command."""
    try:
        return run(read_order(argv, os.environ), os.environ)
    except OptionError as error:
        say(str(error))
        return 2
    except OSError as error:
        say(f"cannot run {error.filename or 'the command'}: {error.strerror}")
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
