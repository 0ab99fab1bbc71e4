"""The pages that messages name: by their place on the reader's host, or by their title."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_hooks.report import pages

TREE = Path(__file__).resolve().parents[2]
TITLED = re.compile(r"see ([A-Z][\w' ]+) in the (administrators|users)' pages")


def messages() -> Iterator[tuple[str, str]]:
    """Each module of the product with each of its strings except docstrings."""
    for path in sorted((TREE / "slurm_hooks").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            below = [] if isinstance(node, ast.Expr) else ast.iter_child_nodes(node)
            for child in below:
                if isinstance(child, ast.Constant) and isinstance(child.value, str):
                    yield path.relative_to(TREE).as_posix(), child.value


def test_no_message_names_a_page_by_its_place_in_the_source() -> None:
    """Packages have their pages elsewhere."""
    texts = list(messages())
    assert len(texts) > 3000
    assert [(name, text) for name, text in texts if re.search(r"docs/[\w/-]+\.md", text)] == []


def test_each_title_in_a_message_is_the_title_of_a_page() -> None:
    named = {match.groups() for _, text in messages() for match in TITLED.finditer(text)}
    folders = {"administrators": "admins", "users": "users"}
    titles = {
        (page.read_text(encoding="utf-8").split("\n")[0].lstrip("# ").split(":")[0], reader)
        for reader, folder in folders.items()
        for page in (TREE / "docs" / folder).glob("*.md")
    }
    assert ("Shared nodes", "administrators") in named
    assert named - titles == set()


def test_a_page_for_a_browser_comes_before_a_page_in_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "INSTALLED", tmp_path)
    assert pages.address("admins/doctor") == str(TREE / "docs" / "admins" / "doctor.md")
    page = tmp_path / "html" / "admins" / "doctor.html"
    page.parent.mkdir(parents=True)
    page.touch()
    assert pages.address("admins/doctor") == f"file://{page}"


def test_without_documents_the_address_is_the_place_in_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "INSTALLED", tmp_path)
    monkeypatch.setattr(pages, "TREE", tmp_path)
    assert pages.address("users/checkpoints") == "docs/users/checkpoints.md"


def test_a_hash_in_a_document_is_a_commit_of_the_branch(tmp_path: Path) -> None:
    """Without a repository, as in the source of a package, no hash is checked."""
    (tmp_path / "page.md").write_text("Measured at abcdef1.\n")

    def check(*words: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
        return subprocess.run(
            words or (TREE / "packaging" / "hashes.sh", tmp_path),
            cwd=tmp_path, env=env, text=True, capture_output=True, timeout=150, check=False,
        )  # fmt: skip

    said = check()
    assert (said.returncode, "not checked" in said.stdout) == (0, True)
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "one")):
        name = ("-c", "user.name=one", "-c", "user.email=one@example.org")
        assert check("git", *name, *words).returncode == 0
    said = check()
    assert said.returncode == 1
    assert "page.md:1:Measured at abcdef1." in said.stderr
    head = check("git", "rev-parse", "--short=8", "HEAD").stdout.strip()
    (tmp_path / "page.md").write_text(f"Measured at {head}.\n")
    assert check().returncode == 0
