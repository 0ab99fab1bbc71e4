"""Each contract of import-linter can fail: a forbidden import breaks it.

The contracts come from pyproject.toml. The package has the same names and empty modules, so each
reported fault comes from the planted import. `make lint` checks the real package.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_hooks.protocol import jobpath

ROOT = Path(__file__).resolve().parents[2]
STANDARD = getattr(sys, "stdlib_module_names", ())  # from 3.10 on
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"

# (contract, module, forbidden import). Each contract has at least one row.
PLANTED = (
    ("A row uses rows below it, never above", "slurm_hooks.model", "slurm_hooks.planning.plan"),
    ("A row uses rows below it, never above", "slurm_hooks.elastic.signals", "slurm_hooks.errors"),
    (
        "Solvers stand on the problem and its value; only the choice of a solver knows them",
        "slurm_hooks.allocation.value",
        "slurm_hooks.allocation.solvers.greedy",
    ),
    (
        "Decisions and settings read no clock, file, process, environment or randomness",
        "slurm_hooks.learning.reports",
        "random",
    ),
    (
        "A plan grows out of each job's situation, which grows out of what is known of all jobs",
        "slurm_hooks.planning.holes",
        "slurm_hooks.planning.situation",
    ),
    (
        "Nothing else of the package imports what runs in a user's job",
        "slurm_hooks.slurm.jobs",
        "slurm_hooks.elastic.batch.job_comment",
    ),
    (
        "In a job: engines on the agent, the agent on rounds, all of it on signals and the log",
        "slurm_hooks.elastic.rendezvous.rounds",
        "slurm_hooks.elastic.agent.session",
    ),
    (
        "Engines know nothing of each other",
        "slurm_hooks.elastic.engines.torchrun.handler",
        "slurm_hooks.elastic.engines.torchft.keeper",
    ),
    (
        "A row uses rows below it, never above",
        "slurm_hooks.elastic.batch.expected",
        "slurm_hooks.model.moments",
    ),
    ("A row uses rows below it, never above", "slurm_hooks.protocol.engines", "slurm_hooks.errors"),
    (
        "What runs in a user's job uses the standard library and torch",
        "slurm_hooks.elastic.rendezvous.codec",
        "numpy",
    ),
    (
        "Decisions and settings read no clock, file, process, environment or randomness",
        "slurm_hooks.planning.plan",
        "time",
    ),
    (
        "Decisions and settings read no clock, file, process, environment or randomness",
        "slurm_hooks.settings.values",
        "pathlib",
    ),
    (
        "Decisions and settings read no clock, file, process, environment or randomness",
        "slurm_hooks.planning.holes",
        "slurm_hooks.slurm.live",
    ),
    (
        "Decisions and settings read no clock, file, process, environment or randomness",
        "slurm_hooks.doctor.checks.job",
        "slurm_hooks.slurm.gateway",
    ),
    (
        "PuLP is known to the linear programme alone",
        "slurm_hooks.allocation.solvers.prices",
        "pulp",
    ),
    ("Processes are started in named places", "slurm_hooks.slurm.mark", "subprocess"),
    ("Only what prints and draws knows the libraries for it", "slurm_hooks.slurm.live", "rich"),
    (
        "Lists of hosts and ranges of elements are folded where Slurm's text is read and written",
        "slurm_hooks.report.text",
        "ClusterShell.NodeSet",
    ),
    (
        "Slurm's questions and answers are pure; what runs them stands above",
        "slurm_hooks.slurm.jobs",
        "slurm_hooks.slurm.live",
    ),
    (
        "Decisions and settings read no clock, file, process, environment or randomness",
        "slurm_hooks.doctor.checks.tick",
        "time",
    ),
    (
        "Doctor: what is said of a site, from checks, on facts that are gathered apart",
        "slurm_hooks.doctor.finding",
        "slurm_hooks.doctor.catalogue",
    ),
    (
        "libslurm is known to a program that runs apart, and to nothing else",
        "slurm_hooks.slurm.live",
        "pyslurm",
    ),
    ("Locks are held in named places", "slurm_hooks.tick.reconcile", "filelock"),
    (
        "Only what prints and draws knows the libraries for it",
        "slurm_hooks.tick.switch",
        "textual.app",
    ),
    (
        "Only what keeps books knows the libraries for it",
        "slurm_hooks.report.text",
        "prometheus_client",
    ),
    (
        "Only what prints and draws knows the libraries for it",
        "slurm_hooks.planning.plan",
        "matplotlib.pyplot",
    ),
    ("Only what keeps books knows the libraries for it", "slurm_hooks.tick.bookkeeping", "sqlite3"),
)
ALLOWED = (
    ("slurm_hooks.model.snapshot.file", "pathlib"),
    ("slurm_hooks.cli", "slurm_hooks.model"),
    ("slurm_hooks.allocation.solvers.milp", "pulp"),
    ("slurm_hooks.slurm.live", "subprocess"),
    ("slurm_hooks.slurm.text", "ClusterShell.NodeSet"),
    ("slurm_hooks.report.text", "rich.table"),
    ("slurm_hooks.tick.lock", "filelock"),
    ("slurm_hooks.report.top.app", "textual.app"),
    ("slurm_hooks.history.database", "sqlite3"),
    ("slurm_hooks.report.drawing", "matplotlib"),
    ("slurm_hooks.history.metrics", "prometheus_client"),
    ("slurm_hooks.slurm.library_jobs", "pyslurm"),
)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with pyproject.toml and the package without its code."""
    root = tmp_path_factory.mktemp("contracts")
    (root / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    for module in (ROOT / "slurm_hooks").rglob("*.py"):
        path = root / module.relative_to(ROOT)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for importer, imported in ALLOWED:
        file_of(root, importer).write_text(f"import {imported}\n")
    return root


def file_of(root: Path, module: str) -> Path:
    path = root.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def lint(root: Path) -> str:
    """The output of import-linter for the package in this directory."""
    done = subprocess.run(
        [sys.executable, "-c", LINT, "--no-cache", "--no-logo"],
        cwd=root,
        env={**os.environ, "COLUMNS": "300", "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def verdicts(said: str) -> dict[str, str]:
    """KEPT or BROKEN for each contract."""
    return dict(re.findall(r"^(.+) (KEPT|BROKEN)(?: .*)?$", said, re.MULTILINE))


def reports(said: str) -> dict[str, str]:
    """The report on each broken contract, below its name and a line of dashes."""
    parts = re.split(r"^(.+)\n-+\n", said, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def named(module: str) -> str:
    """A module as a report names it: for other packages only the name."""
    return module if module.startswith("slurm_hooks.") else module.partition(".")[0]


def test_every_contract_has_a_planted_import_and_holds_without_it(package: Path) -> None:
    assert verdicts(lint(package)) == {contract: "KEPT" for contract, _, _ in PLANTED}


def test_each_forbidden_import_breaks_its_contract(package: Path) -> None:
    before = {file_of(package, importer): "" for _, importer, _ in PLANTED}
    for file in before:
        before[file] = file.read_text()
    try:
        for _, importer, imported in PLANTED:
            with file_of(package, importer).open("a") as planted:
                planted.write(f"import {imported}\n")
        reported = reports(lint(package))
    finally:
        for file, text in before.items():
            file.write_text(text)
    missed = [
        (contract, importer, imported)
        for contract, importer, imported in PLANTED
        if f"{importer} -> {named(imported)} " not in reported.get(contract, "")
    ]
    assert missed == []


@pytest.mark.skipif(not STANDARD, reason="this Python does not list its library")
def test_modules_that_run_in_a_job_use_the_standard_library_and_torch() -> None:
    allowed = {*STANDARD, "slurm_hooks", "torch", "__future__"}
    used = {
        (path.name, name.partition(".")[0])
        for name in jobpath.PACKAGES
        for path in (ROOT / "slurm_hooks" / name).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in _imported(node)
    }
    assert {(path, name) for path, name in used if name not in allowed} == {
        ("lighthouse.py", "torchft")
    }


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def test_a_new_module_must_be_given_a_row(package: Path) -> None:
    rooms = ("", "allocation", "doctor", "elastic", "planning", "slurm")
    new = [package / "slurm_hooks" / room / "new.py" for room in rooms]
    try:
        for module in new:
            module.touch()
        by_contract = verdicts(lint(package))
    finally:
        for module in new:
            module.unlink()
    assert list(by_contract.values()).count("BROKEN") == len(rooms)


def test_a_clock_or_a_process_behind_an_allowed_import_is_banned() -> None:
    calls = (
        "datetime.datetime.now()",
        "datetime.date.today()",
        "os.system('')",
        "os.posix_spawn()",
    )
    words = [
        "ruff",
        "check",
        "--output-format=concise",
        "--stdin-filename=slurm_hooks/planning/x.py",
    ]
    done = subprocess.run(
        [sys.executable, "-m", *words, "-"],
        cwd=ROOT,
        input="\n".join(["import datetime", "import os", "", "print(datetime, os)", *calls, ""]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.findall(r":(\d+):\d+: TID251", done.stdout) == ["5", "6", "7", "8"]
