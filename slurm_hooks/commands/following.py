"""What `malleable pool` and `malleable map` share: options, a job that is followed, the way out."""

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
    """A parser that leaves what it does not know to sbatch, and with what both take."""
    parser = Parser(
        has_others=True,
        prog=f"malleable {name}",
        description=text,
        epilog="All other options go to sbatch: --time=2:00:00, --cpus-per-task=4, --mem=8G ...",
    )
    parser.add_argument(
        "--unit",
        choices=("gpu", "task"),
        default="",
        help="a worker on each GPU, or each task of --cpus-per-task, instead of each node",
    )
    parser.add_argument("--detach", action="store_true", help="submit, print the id, and return")
    parser.add_argument(
        "--cancel-on-exit", action="store_true", help="cancel the job when this command is ended"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    add_settings(parser)
    return parser


def size(text: str) -> int:
    """A whole number, for argparse. Raises ArgumentTypeError."""
    if not (text.isascii() and text.isdigit()) or len(text) > 5:
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is not a number from 0 to 99999")
    return int(text)


def most(text: str) -> int:
    """A number of workers that is not 0, for argparse. Raises ArgumentTypeError."""
    if not (found := size(text)):
        raise argparse.ArgumentTypeError("give at least 1")
    return found


def submitted(port: Port, pool: Pool) -> int:
    """Submit it; the id of the job. Raises CommandRefused with sbatch's own text."""
    try:
        return read_id(port.ask(submit(pool)))
    except CommandRefused as refusal:
        raise type(refusal)(refusal.said) from refusal


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Ours and sbatch's words, and the command behind `--`."""
    if "--" not in words:
        return list(words), []
    at = list(words).index("--")
    return list(words[:at]), list(words[at + 1 :])


def check_options(options: Sequence[str]) -> None:
    """Raises UsageError for what is ours to say to sbatch."""
    for word in options:
        if word.split("=", 1)[0] in ("--malleable", "--array", "-a", "--wrap", "--parsable"):
            raise UsageError(f"{word}: this command says that to sbatch itself; leave it out")


def reach(settings: Settings) -> Port:
    """Slurm, as the settings say, by commands that the signals to this one's group do not reach."""
    tick = settings.tick
    return Live(tick.command_timeout_s, tick.slurm_bin, is_detached=True)


def is_terminal() -> bool:
    """Whether a line on standard output can be written anew. Rich says so of all that has
    FORCE_COLOR in its environment, as what a notebook starts has."""
    return out.file.isatty()


def sizes(settings: Settings, found: Mapping[str, int]) -> str:
    """How many workers run and wait, and why none starts if no tick comes."""
    silent = "" if found.keys() & set(RUNNING) else steady_silence(settings)
    return f"{shown(found)}; {silent}" if silent else shown(found)


def look(port: Port, job_id: int) -> Mapping[str, int] | None:
    """How many elements are in which state, none once the job is over; None if Slurm does not
    answer now."""
    try:
        return count(port.ask(states(job_id)))
    except CommandRefused:  # it has forgotten the job
        return {}
    except RetryLater:
        return None


def listen(arguments: argparse.Namespace) -> None:
    """Have SIGTERM and SIGHUP, which notebooks and terminals send at their end, do as Ctrl-C where
    the job is to be cancelled then. Jupyter sends eight signals in three seconds: the first one
    counts, the others do not keep scancel from its work."""
    for number in ENDS if arguments.cancel_on_exit else ENDS[:1]:
        signal.signal(number, _interrupt_once)


def pause(seconds: float) -> None:
    """Sleep. Raises KeyboardInterrupt also for one that Python has dropped, as it does with those
    that meet a destructor."""
    time.sleep(seconds)
    if _interrupts:
        raise KeyboardInterrupt


@contextmanager
def undisturbed() -> Iterator[None]:
    """Signals that would end this command wait until the end of the block: a job that has been
    submitted is not left behind without its id."""
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda found, _frame: came.append(found)) for number in ENDS
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
    """Somebody has interrupted this command: says what becomes of the job. The exit code."""
    if is_cancelled:
        port.ask(Command(("scancel", f"{job_id}")))
        print_lines(err, [f"job {job_id}: cancelled"])
    else:
        print_lines(err, [f"job {job_id} goes on; to end it: scancel {job_id}"])
    return Exit.INTERRUPTED
