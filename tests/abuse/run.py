"""`make abuse`: runs the tests beside this file, and prints a table.

The last line is a JSON object. Arguments are pytest's.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Row:
    """An abuse. `seconds` is the time of the test itself."""

    abuse: str
    tried: str
    happened: str
    verdict: str
    seconds: float


@dataclass
class Rows:
    """Takes the rows from the reports of tests, as a plugin of pytest."""

    rows: list[Row] = field(default_factory=list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Make a row for each test, and a row for a fixture that fails or skips."""
        if report.when != "call" and report.passed:
            return
        properties = {str(name): str(value) for name, value in report.user_properties}
        verdict = {"passed": "held", "failed": "FELL", "skipped": "not run"}[report.outcome]
        if hasattr(report, "wasxfail"):
            verdict = "not ours"
        name = report.nodeid.rpartition("::test_")[2].replace("[", ": ").strip("]")
        name = name.replace("_", " ")
        happened = properties.get("happened") or _reason(report)
        self.rows.append(
            Row(name, properties.get("tried", ""), happened, verdict, round(report.duration, 1))
        )


def _reason(report: pytest.TestReport) -> str:
    """The last line of the reason for its failure or skip."""
    lines = str(report.longrepr or "").strip().splitlines()
    return lines[-1][:200] if lines else ""


def main(arguments: list[str]) -> int:
    """The exit code of pytest."""
    plugin = Rows()
    code = pytest.main(["-q", "-p", "no:cacheprovider", str(HERE), *arguments], plugins=[plugin])
    table = Table("abuse", "tried", "happened", "verdict", "s")
    for each in plugin.rows:
        table.add_row(each.abuse, each.tried, each.happened, each.verdict, f"{each.seconds:g}")
    Console(width=200).print(table)
    fell = sum(each.verdict == "FELL" for each in plugin.rows)
    summary = {
        "rows": [asdict(each) for each in plugin.rows],
        "count": len(plugin.rows),
        "fell": fell,
    }
    print(json.dumps({"benchmark": "abuse", **summary}))
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
