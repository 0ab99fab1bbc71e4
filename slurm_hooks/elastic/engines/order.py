"""The arguments of `malleable run`: a command, and how it is asked to end."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from slurm_hooks.elastic.agent.options import OptionError, knob

NOTICE_S = 20.0  # unless the environment says otherwise
SPARE_S = 5.0  # of the notice, to give the fragment back
USAGE = (
    "usage: malleable run [--signal=TERM] [--grace=SECONDS] [--wish-file=FILE] -- COMMAND [ARG...]"
)


@dataclass(frozen=True)
class Order:
    """A command to run, the signal that asks it to end, and its time to end. In the `wish_file` the
    command writes how many nodes its job wants.
    """

    command: tuple[str, ...]
    signal: signal.Signals = signal.SIGTERM
    grace_s: float = NOTICE_S - SPARE_S
    wish_file: Optional[Path] = None


def read_order(argv: Sequence[str], env: Mapping[str, str]) -> Order:
    """Read the arguments behind `run`, and the notice in the environment. Raises OptionError."""
    words, number, wish_file = list(argv), signal.SIGTERM, None
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
        elif flag == "--wish-file" and value:
            wish_file = Path(value)
        else:
            raise OptionError(f"{flag}={value} is no option; {USAGE}")
    if not words:
        raise OptionError(f"a command is missing; {USAGE}")
    return Order(tuple(words), number, grace_s, wish_file)
