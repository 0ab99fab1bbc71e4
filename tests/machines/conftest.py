"""Machines with our packages, for all tests of a run, and the table at its end."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from machines.course import Site, Training
from machines.guest import guests
from machines.root import KEPT, TREE, USUAL, missing, root_disk, torch_disk

BUILD_LIMIT_S = 1200
HEADS = ("fault", "event", "seconds", "promised")
_rows: list[tuple[str, str, float, float]] = []


@pytest.fixture(scope="session")
def debs() -> list[Path]:
    """The packages of this tree, but for the sandbox."""
    if os.geteuid() != 0 or missing() or not Path("/dev/net/tun").exists():
        pytest.skip(f"needs root, /dev/net/tun, {' '.join(missing())}: make test-machines")
    target = KEPT / "debs"
    for old in target.glob("*.deb"):
        old.unlink()
    done = subprocess.run(
        [str(TREE / "packaging" / "build-deb.sh"), str(target)], capture_output=True, text=True,
        env={**os.environ, "FAST": "1"}, timeout=BUILD_LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return [path for path in sorted(target.glob("*.deb")) if "-sandbox_" not in path.name]


@pytest.fixture(scope="session")
def site(debs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Four machines on which an administrator has done what the pages say."""
    root_disk(), torch_disk()
    began = time.monotonic()
    with guests(tmp_path_factory.mktemp("machines")) as machines:
        site = Site(machines, _rows)
        usual = [machines[name] for name in USUAL]
        for guest in usual:
            guest.await_up()
        site.note("none", "four machines are up", time.monotonic() - began)
        site.install(debs)
        yield site


@pytest.fixture(scope="session")
def rows() -> list[tuple[str, str, float, float]]:
    """The rows of the table at the end."""
    return _rows


@pytest.fixture
def training(site: Site) -> Training:
    """A training on all nodes. Tests share it as long as it lives."""
    return site.lasting()


def pytest_unconfigure() -> None:
    """Print the table after pytest's own summary."""
    if not _rows:
        return
    cells = [
        HEADS,
        *((fault, event, f"{s:.1f}", f"{b:g}" if b else "") for fault, event, s, b in _rows),
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEADS))]
    for row in cells:
        print("  ".join(map(str.ljust, row, widths)).rstrip())
