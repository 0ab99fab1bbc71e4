"""`malleable completion bash|zsh`: print completions for a shell, made from all parsers."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from slurm_hooks.errors import MissingProgram

SHELLS = ("bash", "zsh")


def add(commands: Any, whole: Callable[[], argparse.ArgumentParser]) -> None:
    """Add this command to the parser. `whole` makes the parser with all commands."""
    text = "print completions for a shell"
    use = 'Use it with: eval "$(malleable completion bash)"'
    parser = commands.add_parser("completion", help=text, description=f"P{text[1:]}. {use}")
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash or zsh")
    parser.set_defaults(command=lambda arguments: _print(whole(), arguments.shell))


def completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for a shell. Raises MissingProgram without shtab."""
    try:
        import shtab  # noqa: PLC0415  (only this needs it)
    except ImportError as error:
        raise MissingProgram(
            "completion needs the Python package shtab: pip install shtab"
        ) from error
    return str(shtab.complete(parser, shell=shell))


def _print(parser: argparse.ArgumentParser, shell: str) -> int:
    print(completion(parser, shell))
    return 0
