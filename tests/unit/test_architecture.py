"""docs/architecture.md lists every module of the package, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENTRY = re.compile(r"^    ( *)([A-Za-z_]+(?:\.py|/)) ")


def listed() -> set[str]:
    """The paths below slurm_hooks that the tree in the document names."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    tree = text.partition("\n    slurm_hooks/\n")[2].partition("\n\n")[0]
    found, folders = set(), list[str]()
    for line in tree.splitlines():
        entry = ENTRY.match(line + " ")
        assert entry, line
        depth = len(entry[1]) // 2
        folders[depth - 1 :] = [entry[2]]
        if entry[2].endswith(".py"):
            found.add("".join(folders))
    return found


def test_every_module_is_listed() -> None:
    package = ROOT / "slurm_hooks"
    modules = {str(path.relative_to(package)) for path in package.rglob("*.py")}
    assert listed() == {path for path in modules if not path.endswith("__init__.py")}
