"""Code that `malleable pool` and `malleable map` share: options, following a job, and the end."""

from __future__ import annotations

import argparse
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from slurm_hooks.commands.arguments import Parser
from slurm_hooks.commands.console import add_settings, err, out
from slurm_hooks.errors import CommandRefused, Exit, RetryLater, UsageError
from slurm_hooks.report.tables import print_lines
from slurm_hooks.settings.values import Settings
from slurm_hooks.slurm.live import Live, Port
from slurm_hooks.slurm.pools import RUNNING, Pool, count, read_id, shown, states, submit
from slurm_hooks.slurm.text import Command
from slurm_hooks.tick.last_tick import steady_silence

ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_interrupts: list[int] = []  # the signals that have come


def parser_of(name: str, text: str) -> argparse.ArgumentParser:
    """A parser with the options of both commands. It leaves unknown options to sbatch."""
    parser = Parser(
        has_others=True,
        prog=f"malleable {name}",
        description=text,
        epilog="All other options go to sbatch, such as --time=2:00:00 or --mem=8G.",
    )
    parser.add_argument(
        "--unit",
        choices=("gpu", "task"),
        default="",
        help="start a worker on each GPU, or on the CPUs of a task (default: on each node)",
    )
    parser.add_argument("--detach", action="store_true", help="submit, print the id, and return")
    parser.add_argument(
        "--cancel-on-exit", action="store_true", help="cancel the job when this command is ended"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object instead of text")
    add_settings(parser)
    return parser


def size(text: str) -> int:
    """A whole number, for argparse. Raises ArgumentTypeError."""
    if not (text.isascii() and text.isdigit()) or len(text) > 5:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is not a number from 0 to 99999")
    return int(text)


def most(text: str) -> int:
    """A number of workers above 0, for argparse. Raises ArgumentTypeError."""
    if not (workers := size(text)):
        raise argparse.ArgumentTypeError("must be at least 1")
    return workers


def submitted(port: Port, pool: Pool) -> int:
    """Submit a pool, and return the job's id. Raises CommandRefused with sbatch's own text."""
    try:
        return read_id(port.ask(submit(pool)))
    except CommandRefused as refusal:
        raise type(refusal)(refusal.said) from refusal


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words for us and sbatch, and the command behind `--`."""
    if "--" not in words:
        return list(words), []
    at = list(words).index("--")
    return list(words[:at]), list(words[at + 1 :])


def check_options(options: Sequence[str]) -> None:
    """Raises UsageError for options of sbatch that this command sets."""
    for word in options:
        if word.split("=", 1)[0] in ("--malleable", "--array", "-a", "--wrap", "--parsable"):
            raise UsageError(f"{word}: this command sets that option itself; leave it out")


def reach(settings: Settings) -> Port:
    """Slurm, by the settings. Signals to this command's group do not reach its own commands."""
    tick = settings.tick
    return Live(tick.command_timeout_s, tick.slurm_bin, is_detached=True)


def is_terminal() -> bool:
    """True if a line on standard output can be replaced. Rich's own test is also true with
    FORCE_COLOR in the environment, which notebooks set."""
    return out.file.isatty()


def sizes(settings: Settings, states: Mapping[str, int]) -> str:
    """The numbers of running and waiting workers, and a warning if no tick comes."""
    silent = "" if states.keys() & set(RUNNING) else steady_silence(settings)
    return f"{shown(states)}; {silent}" if silent else shown(states)


def count_elements(port: Port, job_id: int) -> Mapping[str, int] | None:
    """The number of elements in each state, empty after the job has ended, None if Slurm does not
    answer now."""
    try:
        return count(port.ask(states(job_id)))
    except CommandRefused:  # it has forgotten the job
        return {}
    except RetryLater:
        return None


def listen(arguments: argparse.Namespace) -> None:
    """With --cancel-on-exit, let SIGTERM and SIGHUP act as Ctrl-C: notebooks and terminals send
    them at their end. Jupyter sends eight signals in three seconds. Only the first signal counts,
    so that the others do not interrupt scancel."""
    for number in ENDS if arguments.cancel_on_exit else ENDS[:1]:
        signal.signal(number, _interrupt_once)


def sleep(seconds: float) -> None:
    """Sleep. Raises KeyboardInterrupt, also if Python dropped it because of a destructor."""
    time.sleep(seconds)
    if _interrupts:
        raise KeyboardInterrupt


@contextmanager
def undisturbed() -> Iterator[None]:
    """Delay signals that would end this command until the end of the block. So the command always
    prints the id of a submitted job."""
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda signum, _frame: came.append(signum)) for number in ENDS
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


def _interrupt_once(number: int, frame: FrameType | None) -> None:
    for other in ENDS:
        signal.signal(other, signal.SIG_IGN)
    _interrupts.append(number)
    raise KeyboardInterrupt


def stopped(port: Port, job_id: int, is_cancelled: bool) -> int:
    """Print the fate of the job after an interrupt of this command. Return the exit code."""
    if is_cancelled:
        port.ask(Command(("scancel", f"{job_id}")))
        print_lines(err, [f"job {job_id}: cancelled"])
    else:
        print_lines(err, [f"job {job_id} continues; to end it: scancel {job_id}"])
    return Exit.INTERRUPTED
