"""The count of plain English sees each kind of fault, and counts sentences as people do."""

from __future__ import annotations

import ast
import os
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def prose() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "packaging" / "prose.py"))


def sentences(prose: dict[str, Any], path: Path, text: str) -> list[str]:
    path.write_text(text)
    return [sentence.text for sentence in prose["sentences"](path)]


def test_code_tables_headings_and_comments_are_no_sentences(
    prose: dict[str, Any], tmp_path: Path
) -> None:
    text = """# A heading; with what

A fragment waits. It
starts `a; b` [later](x.md#none).

    code; of one

| a table; | of nothing |

```
more; code
```

* An item
* and another item. <!-- not; this -->
"""
    assert sentences(prose, tmp_path / "page.md", text) == [
        "A fragment waits.",
        "It starts CODE later.",
        "An item",
        "and another item.",
    ]


def test_docstrings_are_counted_and_other_texts_of_a_program_are_not(
    prose: dict[str, Any], tmp_path: Path
) -> None:
    text = '"""Plan a tick."""\nX = "what; one"\ndef f():\n    """Return a job, or None."""\n'
    assert sentences(prose, tmp_path / "a.py", text) == ["Plan a tick.", "Return a job, or CODE."]


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("A job waits; it starts.", "semicolons"),
        ("It takes " + "a node and " * 14 + "ends.", "over 40"),
        ("It shows what waits.", "what"),
        ("There is nothing.", "nobody"),
        ("The larger one starts.", "one"),
        ("It starts anew.", "anew"),
        ("The end is that of the hole.", "that of"),
    ],
)
def test_each_fault_passes_its_limit_and_is_listed_with_its_line(
    prose: dict[str, Any], tmp_path: Path, fault: str, name: str
) -> None:
    page = ROOT / "build" / f"test-prose-{os.getpid()}.md"  # workers run at the same time
    page.parent.mkdir(exist_ok=True)
    page.write_text(f"A job waits.\n\n{fault}\n")
    try:
        listed = list(prose["sentences"](page))
        assert name in prose["Count"].of(listed).passed()
        (line,) = prose["faults"](listed)
        assert line.startswith(f"build/{page.name}:3: ")
    finally:
        page.unlink()


def test_a_question_may_ask_what_it_wants(prose: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("What changes on your cluster?")
    assert prose["Count"].of(list(prose["sentences"](tmp_path / "page.md"))).figures["what"] == 0


REFERENCES = ("users/checkpoints.md", "users/errors.md", "admins/settings.md", "admins/doctor.md")
LONGEST = 1500  # words of prose


def test_a_page_that_is_read_through_has_at_most_1500_words(prose: dict[str, Any]) -> None:
    """References may be longer, because people search in them."""
    docs = ROOT / "docs"
    pages = {p.relative_to(docs).as_posix(): p for p in docs.rglob("*.md") if "lab" not in p.parts}
    words = {
        name: sum(sentence.words for sentence in prose["sentences"](page))
        for name, page in pages.items()
    }
    assert [name for name in words if words[name] > LONGEST and name not in REFERENCES] == []
    assert all(words[name] > LONGEST for name in ("users/checkpoints.md", "admins/doctor.md"))


@pytest.mark.parametrize(
    ("folder", "least"),
    [("slurm_hooks", 6000), ("examples", 700), ("benchmarks", 1500), ("tests", 10_000)],
)
def test_no_value_is_called_found_or_told(folder: str, least: int) -> None:
    """Such a name says how the value came, and not which value it is."""
    names = {
        (path.name, name)
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (name := bound(node))
    }
    assert len(names) > least
    assert {name for name in names if name[1] in ("found", "told")} == set()


def bound(node: ast.AST) -> str | None:
    """The name that the node gives to a value, a function or a class."""
    if isinstance(node, ast.Name):
        return node.id if isinstance(node.ctx, ast.Store) else None
    if isinstance(node, ast.Attribute):
        return node.attr if isinstance(node.ctx, ast.Store) else None
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.alias):
        return node.asname
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)):
        return node.name
    return None
