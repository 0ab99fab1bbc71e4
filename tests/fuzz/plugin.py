"""The plugin's parsers, in C and under sanitizers, as a process that answers text by text."""

from __future__ import annotations

import atexit
import functools
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "plugins" / "spank"
BUILD = tempfile.TemporaryDirectory()


class RefusedError(Exception):
    """The text is no request."""


@functools.cache
def _driver() -> subprocess.Popen[bytes]:
    target = f"{BUILD.name}/fuzz_driver"
    words = ["make", "-s", "-C", str(SOURCE), f"BUILD_DIR={BUILD.name}", target]
    subprocess.run(words, check=True, timeout=120)
    process = subprocess.Popen([target], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(_end, process)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.communicate(timeout=30)  # without more texts it ends by itself


def read(text: str) -> None:
    """Whatever it is, it must be answered. Raises RefusedError for what is no request."""
    process = _driver()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(text.replace("\0", "").encode("utf-8", "surrogateescape") + b"\0")
    process.stdin.flush()
    answer = process.stdout.read(1)
    if not answer:
        _driver.cache_clear()
        raise AssertionError(f"the plugin ended with {process.wait(30)}")
    if answer == b"r":
        raise RefusedError
