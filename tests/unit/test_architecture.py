"""The documents of the tree name files that are there."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("page", ["architecture.md", "protocol.md"])
def test_every_file_that_the_text_names_is_there(page: str) -> None:
    text = (ROOT / "docs" / "developers" / page).read_text()
    names = set(re.findall(r"`([a-z_/]+\.(?:py|c|lua|md|toml))`", text))
    rooms = [ROOT / name for name in ("slurm_hooks", "plugins", "docs", "etc", "tests")]
    paths = [f"/{path.relative_to(ROOT)}" for room in rooms for path in room.rglob("*")]
    lost = {name for name in names if not any(path.endswith(f"/{name}") for path in paths)}
    assert names
    assert lost == set()


def test_every_module_that_a_page_names_is_there() -> None:
    shown = [page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "lab"]
    pages = {page: page.read_text() for page in shown}
    rooms = ("slurm_hooks", "plugins", "docs", "tests", "examples", "benchmarks", "packaging")
    paths = [f"/{p.relative_to(ROOT)}" for room in rooms for p in (ROOT / room).rglob("*.*")]
    named = {
        (page.name, name)
        for page, text in pages.items()
        for name in re.findall(r"`([a-z_]+/[a-z_/]+\.(?:py|c|lua))`", text)
    }
    lost = {(page, name) for page, name in named if not any(p.endswith(f"/{name}") for p in paths)}
    assert len(named) > 100
    assert lost == set()


def test_no_two_test_modules_have_the_same_name() -> None:
    """Pytest imports modules of folders without an __init__.py by their names alone."""
    modules = (ROOT / "tests").rglob("test_*.py")
    names = Counter(path.name for path in modules if not (path.parent / "__init__.py").exists())
    assert [name for name, times in names.items() if times > 1] == []
