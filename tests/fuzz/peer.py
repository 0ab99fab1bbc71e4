"""A parser that is no Python: a process that answers text by text."""

from __future__ import annotations

import atexit
import subprocess


class RefusedError(Exception):
    """The parser has refused the text."""


def start(*argv: str) -> subprocess.Popen[bytes]:
    """It must end by itself once there are no more texts."""
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(_end, process)
    return process


def ask(process: subprocess.Popen[bytes], text: bytes) -> None:
    """The answer is read from its stdout by the caller."""
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.communicate(timeout=30)
