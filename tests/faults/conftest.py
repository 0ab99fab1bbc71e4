"""The table of all cases: rows travel with the tests' reports, also between processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from faults.course import Course, NewCourse, Row
from faults.table import object_line, table
from promises.bench import Bench
from slurm_hooks.sandbox import Sandbox

ROW = "fault"
_rows: list[dict[str, Any]] = []
_broken: list[str] = []
_known: dict[str, str] = {}  # test -> the fault of ours that it shows


@pytest.fixture
def bench(sandbox: Sandbox) -> Iterator[Bench]:
    bench = Bench(sandbox).patient()
    yield bench
    bench.cancel_all()


@pytest.fixture
def new_course(request: pytest.FixtureRequest) -> Iterator[NewCourse]:
    """Called with a bench and the name of a fault."""
    rows: list[Row] = []
    yield lambda bench, fault: Course(bench, fault, rows)
    request.node.user_properties.extend((ROW, row.data()) for row in rows)


@pytest.fixture
def course(request: pytest.FixtureRequest, bench: Bench, new_course: NewCourse) -> Course:
    """A case on the module's sandbox, named as its test is."""
    return new_course(bench, request.node.name.removeprefix("test_").replace("_", " "))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _broken.append(report.nodeid)
    if hasattr(report, "wasxfail"):
        _known[report.nodeid] = report.wasxfail
    if report.when == "teardown":
        known = _known.get(report.nodeid, "")
        rows = (row for key, row in report.user_properties if key == ROW)
        _rows.extend({**row, "known": known} for row in rows)


def pytest_unconfigure(config: pytest.Config) -> None:
    """After pytest's own summary, so that the object is the last line."""
    if hasattr(config, "workerinput") or not _rows:
        return
    print("", *table(_rows), object_line(_rows, _broken), sep="\n", flush=True)
