"""The plugin's parsers, in C and under sanitizers."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

from fuzz.peer import RefusedError, ask, start

SOURCE = Path(__file__).resolve().parents[2] / "plugins" / "spank"
BUILD = tempfile.TemporaryDirectory()


@functools.cache
def _driver() -> subprocess.Popen[bytes]:
    target = f"{BUILD.name}/fuzz_driver"
    words = ["make", "-s", "-C", str(SOURCE), f"BUILD_DIR={BUILD.name}", target]
    subprocess.run(words, check=True, timeout=120)
    return start(target)


def read(text: str) -> None:
    """Every text must be answered. Raises RefusedError for a text that is no request."""
    process = _driver()
    ask(process, text.replace("\0", "").encode("utf-8", "surrogateescape") + b"\0")
    assert process.stdout is not None
    answer = process.stdout.read(1)
    if not answer:
        _driver.cache_clear()
        raise AssertionError(f"the plugin ended with {process.wait(30)}")
    if answer == b"r":
        raise RefusedError
