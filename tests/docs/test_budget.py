"""The budget of lines and files: what exceeds it is named."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
faults = runpy.run_path(str(ROOT / "packaging" / "budget.py"))["faults"]


def tree(at: Path, *rows: str) -> Path:
    """A project with two rooms, of five lines in two files and of one line."""
    for name, lines in (("tick/__init__", 2), ("tick/lock", 3), ("slurm/__init__", 1)):
        path = at / "slurm_hooks" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n" * lines)
    (at / "pyproject.toml").write_text("\n".join(("[tool.budget]", *rows)))
    return at


def test_a_project_within_its_budget_has_no_fault(tmp_path: Path) -> None:
    rows = ('"slurm_hooks/tick" = [5, 2]', '"slurm_hooks/slurm" = [9, 9]')
    assert not [*faults(tree(tmp_path, *rows))]


def test_a_line_or_a_file_too_many_is_named(tmp_path: Path) -> None:
    rows = ('"slurm_hooks/tick" = [4, 1]', '"slurm_hooks/slurm" = [1, 1]')
    lines, files = faults(tree(tmp_path, *rows))
    assert lines == "slurm_hooks/tick: 5 lines, and the budget is 4"
    assert files == "slurm_hooks/tick: 2 files, and the budget is 1"


def test_a_room_without_a_row_and_a_row_without_a_room_are_named(tmp_path: Path) -> None:
    rows = ('"slurm_hooks/tick" = [5, 2]', '"slurm_hooks/protocol" = [5, 2]')
    without, empty = faults(tree(tmp_path, *rows))
    assert "slurm_hooks/slurm: no row" in without
    assert "slurm_hooks/protocol: a row" in empty
