"""Runs a failed test once more, in a fresh process, and reports it as flaky if it passes there.

A fault fails twice. A test that is late on a busy host, or that met the remains of another test,
passes. It is then named at the end of the run and does not fail the run. `--again` asks for this.
A test with the mark `in_order` is run after those before it in its file, with the same parameter.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

FLAKY = "flaky"
OUTCOMES = ("passed", "failed", "error", "skipped")
BEGUN = ("setup", "call")  # no module skipped as a whole, no worker that died
MOST = 10  # more failures than this have a common cause
LIMIT_S = 1200


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--again", action="store_true", help="run failed tests once more")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Repeat the failed tests, after the last worker has ended and before the summary."""
    config = session.config
    if hasattr(config, "workerinput") or not config.getoption("again"):
        return
    if session.exitstatus != pytest.ExitCode.TESTS_FAILED:
        return
    stats = config.pluginmanager.getplugin("terminalreporter").stats
    failures = [*stats.get("failed", ()), *stats.get("error", ())]
    names = sorted({report.nodeid for report in failures})
    if any("::" not in name for name in names) or not 0 < len(names) <= MOST:
        return  # a module that cannot be imported is no test
    passed = {name for name in names if _passes(config, [*_before(stats, name), name])}
    for kind in ("failed", "error"):
        stats[kind] = [report for report in stats.get(kind, ()) if report.nodeid not in passed]
        if not stats[kind]:
            del stats[kind]
    if passed:
        flaky = {report.nodeid: report for report in failures if report.nodeid in passed}
        stats[FLAKY] = [flaky[name] for name in sorted(flaky)]
    if passed == set(names):
        session.exitstatus = pytest.ExitCode.OK


def _before(stats: dict[str, list[Any]], name: str) -> list[str]:
    """The tests that a test in an order needs, as this run had them."""
    reports = [each for kind in OUTCOMES for each in stats.get(kind, ()) if each.when in BEGUN]
    begun = {each.nodeid: each.start for each in reports}
    if not any("in_order" in each.keywords for each in reports if each.nodeid == name):
        return []
    file, parameter = name.partition("::")[0], name.partition("[")[2]
    earlier = [each for each in begun if begun[each] < begun[name]]
    return [
        each
        for each in sorted(earlier, key=begun.__getitem__)
        if each.partition("::")[0] == file and each.partition("[")[2] == parameter
    ]


def _passes(config: pytest.Config, names: list[str]) -> bool:
    """Tell whether the last of the tests passes, and none before it fails."""
    alone = "alone" if len(names) == 1 else f"after {len(names) - 1} before it"
    print(f"\nonce more, {alone}: {names[-1]}", flush=True)
    argv = [sys.executable, "-m", "pytest", "-q", "-rp", "-p", "no:cacheprovider", *names]
    try:
        done = subprocess.run(
            argv,
            cwd=config.rootpath,
            timeout=LIMIT_S,
            check=False,
            stdout=subprocess.PIPE,
            text=True,
        )
    except subprocess.TimeoutExpired:
        return False
    print(done.stdout, flush=True)
    is_passed = f"PASSED {names[-1]}" in done.stdout.splitlines()  # a skipped test proves nothing
    return done.returncode == 0 and is_passed


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name the flaky tests, each with its first failure."""
    for report in terminalreporter.stats.get(FLAKY, ()):
        terminalreporter.section(f"FLAKY {report.nodeid}")
        terminalreporter.line(report.longreprtext)
    for report in terminalreporter.stats.get(FLAKY, ()):
        terminalreporter.line(f"FLAKY {report.nodeid}")
