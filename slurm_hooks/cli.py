"""The program `malleable`: it chooses a command and returns the command's exit code."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Callable, Optional

from slurm_hooks import __version__
from slurm_hooks.commands.arguments import Parser
from slurm_hooks.commands.console import debug_lines, failed
from slurm_hooks.errors import Exit, MalleableError, MissingProgram

FAMILIES = {
    "inspect": ("status", "explain", "plan"),
    "top": ("top",),
    "reconcile": ("reconcile",),
    "hold": ("hold", "release"),
    "wish": ("wish",),
    "switch": ("off", "on"),
    "doctor": ("doctor",),
    "test": ("test",),
    "report": ("report",),
    "metrics": ("metrics",),
    "bundle": ("bundle",),
    "render": ("render",),
}
"""The commands of each module in `commands`. Only the module of the command that runs is imported,
because all of them together take most of a short command's time."""
OWN_PARSERS = {
    "pool": ("pool", "submit a pool of workers, and follow it"),
    "map": ("mapping", "run a program over many inputs, with a pool"),
    "replay": ("replay", "simulate malleable jobs on a recorded machine"),
    "sandbox": ("sandbox", "run a throwaway real Slurm on this host"),
}
"""Commands with a parser of their own: the module, and the line for the help."""
ALONE = {
    "submit": "submit a malleable job where nothing is installed",
    "wait": "wait for the end of a malleable job",
}
"""Commands of the program that needs only Python, with the line for the help."""


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run a command. The exit code is a value of `Exit`."""
    words, is_verbose = take_verbose(sys.argv[1:] if argv is None else argv)
    is_json = "--json" in words[: words.index("--") if "--" in words else None]
    try:
        with debug_lines(is_verbose):
            code = _run(words)
        sys.stdout.flush()  # a failed write is reported like any other error
        return code
    except MalleableError as error:
        return failed(error.exit_code, str(error), is_json)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.DONE
    except OSError as error:
        where = error.filename or "this host"
        return failed(Exit.FILE, f"{where}: {error.strerror}", is_json)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except Exception as error:  # a bug: print its trace, and return the exit code for bugs
        traceback.print_exc()
        return failed(Exit.BUG, f"a bug: {type(error).__name__}: {error}", is_json)


def take_verbose(argv: Sequence[str]) -> tuple[list[str], bool]:
    """Return the words without --verbose, and True if they contained it.

    Words after a `--` are left alone: they may be a command to run in a sandbox.
    """
    end = argv.index("--") if "--" in argv else len(argv)
    ours = [word for word in argv[:end] if word != "--verbose"]
    return [*ours, *argv[end:]], len(ours) < end


def ordered(words: Sequence[str]) -> list[str]:
    """Move options from before the command's name to behind it, and turn `help` into an option. A
    name with `render` has two words."""
    front, rest = [], list(words)
    while rest and rest[0].startswith(("--settings", "--json")):
        front.append(rest.pop(0))
        if front[-1] == "--settings" and rest:
            front.append(rest.pop(0))
    if rest[:1] == ["help"]:
        rest = [*rest[1:], "--help"]
    end = 2 if rest[:1] == ["render"] else 1
    return [*rest[:end], *front, *rest[end:]] if rest else front


def _run(words: list[str]) -> int:
    words = ordered(words)
    if is_for_a_job(words):
        os.execv(sys.executable, [sys.executable, "-m", "slurm_hooks.elastic", *words])
    name = words[0] if words else ""
    if name in OWN_PARSERS:
        return int(_module(OWN_PARSERS[name][0]).main(words[1:]))
    arguments = make_parser(name).parse_args(words)
    command: Callable[[argparse.Namespace], int] = arguments.command
    return command(arguments)


def is_for_a_job(words: Sequence[str]) -> bool:
    """True if the words are for the program of the same name that needs only Python. In a job, an
    environment that a script activates may put this program before it in PATH."""
    has_options = any(word.startswith("--") for word in words)
    is_own_wish = words[:1] == ["wish"] and not has_options and len(words) < 3
    return words[:1] in (["run"], ["finish"], *([name] for name in ALONE)) or is_own_wish


def _module(name: str) -> ModuleType:
    """Import a module of commands. Raises MissingProgram for the sandbox, a separate package."""
    try:
        return import_module(f"slurm_hooks.commands.{name}")
    except ModuleNotFoundError as error:
        if name != "sandbox":
            raise
        raise MissingProgram(
            "the sandbox is not installed here: install the package slurm-malleable-sandbox"
        ) from error


def make_parser(name: str = "") -> argparse.ArgumentParser:
    """The command line of `malleable`, or only its part with the command `name`.

    It has all commands if there is no command of that name. The commands in OWN_PARSERS are only
    listed.
    """
    parser = Parser(
        prog="malleable",
        description="Run deep-learning jobs on the idle nodes of a Slurm cluster.",
        epilog="Submit a job with: sbatch --malleable=MIN-MAX train.sh",
    )
    parser.add_argument("-V", "--version", action="version", version=f"malleable {__version__}")
    parser.add_argument(
        "--verbose", action="store_true", help="print debug lines on standard error"
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    chosen = [family for family, names in FAMILIES.items() if name in names]
    for family in chosen or FAMILIES:
        _module(family).add(commands)
    if not chosen:
        _module("completion").add(commands, whole_parser)
        listed = {**{name: text for name, (_, text) in OWN_PARSERS.items()}, **ALONE}
        for own, text in listed.items():
            commands.add_parser(own, help=text, add_help=False)
    return parser


def whole_parser() -> argparse.ArgumentParser:
    """The command line with the commands of OWN_PARSERS, for completion."""
    parser = make_parser()
    action = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    for name, (module, _) in OWN_PARSERS.items():
        with contextlib.suppress(MissingProgram):
            action.choices[name] = _module(module).make_parser()
    return parser


if __name__ == "__main__":
    sys.exit(main())
