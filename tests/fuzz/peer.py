"""A parser that is no Python: a process that answers text by text."""

from __future__ import annotations

import atexit
import subprocess


class RefusedError(Exception):
    """The parser has refused the text."""


def start(*argv: str) -> subprocess.Popen[bytes]:
    """Start the process. It must end by itself after the last text."""
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(_end, process)
    return process


def ask(process: subprocess.Popen[bytes], text: bytes) -> None:
    """Send a text. The caller reads the answer from its stdout."""
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.communicate(timeout=30)
