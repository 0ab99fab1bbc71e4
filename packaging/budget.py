"""Counts the lines and files of each room, and fails where the budget is exceeded.

`make lint` calls it. The budget is the table `tool.budget` of pyproject.toml. To raise a row,
lower another row in the same commit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]


def size_of(folder: Path) -> tuple[int, int]:
    """The lines and the files of Python below a folder."""
    texts = [path.read_text(encoding="utf-8") for path in folder.rglob("*.py")]
    return sum(text.count("\n") for text in texts), len(texts)


def faults(root: Path) -> Iterator[str]:
    """A line for each room that exceeds its row, and for each room or row without the other."""
    with (root / "pyproject.toml").open("rb") as file:
        budget = tomllib.load(file)["tool"]["budget"]
    rooms = {init.parent.relative_to(root).as_posix() for init in root.glob("slurm_hooks/*/*.py")}
    for room in sorted(rooms - budget.keys()):
        yield f"{room}: no row in tool.budget of pyproject.toml"
    for room, (most_lines, most_files) in budget.items():
        lines, files = size_of(root / room)
        if not files:
            yield f"{room}: a row in tool.budget, and no such room"
        if lines > most_lines:
            yield f"{room}: {lines} lines, and the budget is {most_lines}"
        if files > most_files:
            yield f"{room}: {files} files, and the budget is {most_files}"


def main() -> int:
    """Print the faults. Return 1 if there are any."""
    found = list(faults(ROOT))
    print("\n".join(found), end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
