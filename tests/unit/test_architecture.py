"""docs/architecture.md lists every module of the package, and no other."""

from __future__ import annotations

import re
from collections import Counter
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


def test_every_file_that_the_text_names_is_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    names = set(re.findall(r"`([a-z_/]+\.(?:py|c|lua|md|toml))`", text))
    rooms = [ROOT / name for name in ("slurm_hooks", "plugins", "docs", "etc", "tests")]
    paths = [f"/{path.relative_to(ROOT)}" for room in rooms for path in room.rglob("*")]
    lost = {name for name in names if not any(path.endswith(f"/{name}") for path in paths)}
    assert names
    assert lost == set()


def test_every_module_is_listed() -> None:
    package = ROOT / "slurm_hooks"
    modules = {str(path.relative_to(package)) for path in package.rglob("*.py")}
    assert listed() == {path for path in modules if not path.endswith("__init__.py")}


def test_no_two_test_modules_have_one_name() -> None:
    """Pytest imports those of folders without an __init__.py by their names alone."""
    modules = (ROOT / "tests").rglob("test_*.py")
    names = Counter(path.name for path in modules if not (path.parent / "__init__.py").exists())
    assert [name for name, times in names.items() if times > 1] == []
