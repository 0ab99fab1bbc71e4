"""Tests that need a GPU, for a site to run unattended: `make test-gpu`.

Rows of figures travel with the tests' reports, and the last line of the run is a JSON object with
all of them.

`--stand-in` runs the same code on the CPU with gloo. That shows that the suite itself works, but no
property of a GPU.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elastic.processes import end_all
from slurm_hooks.protocol.jobpath import write_job_path

from .bench import STAND_IN, Bench, Device, found_device

ROW = "measured"
_rows: list[dict[str, Any]] = []
_counts = {"passed": 0, "failed": 0, "skipped": 0}
_failed: list[str] = []
_skipped: set[str] = set()

Measured = Callable[..., None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--stand-in", action="store_true", help="on the CPU, with gloo")


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> Device:
    """The GPUs of this host, or a stand-in for them."""
    if request.config.getoption("--stand-in", default=False):
        return STAND_IN
    gpus = found_device()
    if gpus is None:
        pytest.skip("no GPU that torch can use: --stand-in tries the suite itself on the CPU")
    return gpus


@pytest.fixture
def two_devices(device: Device) -> Device:
    """NCCL takes a process for each GPU."""
    if device.count < 2:
        pytest.skip("a second fragment needs a second GPU")
    return device


@pytest.fixture
def bench(two_devices: Device, tmp_path: Path, job_path: Path) -> Iterator[Bench]:
    bench = Bench(two_devices, job_path, tmp_path)
    yield bench
    bench.stop()
    end_all()


@pytest.fixture(scope="session")
def job_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_job_path(tmp_path_factory.mktemp("jobpath"))


@pytest.fixture
def measured(request: pytest.FixtureRequest, device: Device) -> Measured:
    """A function that records figures under a name."""

    def add(case: str, **figures: object) -> None:
        row = {"case": case, "device": device.name, **figures}
        request.node.user_properties.append((ROW, row))

    return add


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "/gpu/" not in report.nodeid:
        return
    if report.outcome != "passed" or report.when == "call":
        _counts[report.outcome] += 1
    if report.failed:
        _failed.append(report.nodeid)
    if report.skipped and isinstance(report.longrepr, tuple):
        _skipped.add(report.longrepr[2].removeprefix("Skipped: "))
    if report.when == "teardown":
        _rows.extend(row for key, row in report.user_properties if key == ROW)


def pytest_unconfigure(config: pytest.Config) -> None:
    """After pytest's own summary, so that the object is the last line."""
    if hasattr(config, "workerinput") or not (_rows or _failed or _skipped):
        return
    left_out = sorted(_skipped)
    summary = {"gpu": _rows, **_counts, "broken": _failed, "left_out": left_out}
    lines = (f"left out: {why}" for why in left_out)
    print("", *lines, json.dumps(summary), sep="\n", flush=True)
