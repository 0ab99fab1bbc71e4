"""The diagrams: each is current, shown on a page, and `make docs` works without graphviz."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "packaging" / "diagrams.py"
DIAGRAMS = runpy.run_path(str(SCRIPT))
TEXTS = DIAGRAMS["texts"]()


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.stem)
def test_diagram_is_made_from_its_text_and_shown(text: Path) -> None:
    assert DIAGRAMS["is_current"](text), "run make docs"
    page = (ROOT / "docs" / "developers" / "architecture.md").read_text(encoding="utf-8")
    assert f"(diagrams/{text.stem}.svg)" in page


def test_every_svg_has_a_text() -> None:
    stems = {svg.stem for svg in DIAGRAMS["FOLDER"].glob("*.svg")}
    assert stems == {text.stem for text in TEXTS}
    assert len(stems) == 3


def test_changed_text_makes_its_diagram_old(tmp_path: Path) -> None:
    text = tmp_path / "a.dot"
    text.write_text("digraph { a }")
    assert not DIAGRAMS["is_current"](text)
    text.with_suffix(".svg").write_text(f"<svg></svg>{DIAGRAMS['digest'](text)}")
    assert DIAGRAMS["is_current"](text)
    text.write_text("digraph { b }")
    assert not DIAGRAMS["is_current"](text)


def test_the_script_names_the_package_where_graphviz_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "docs" / "developers" / "diagrams"
    folder.mkdir(parents=True)
    (folder / "a.dot").write_text("digraph { a }")
    (tmp_path / "packaging").mkdir()
    copy = tmp_path / "packaging" / "diagrams.py"
    copy.write_text(SCRIPT.read_text(encoding="utf-8"))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    argv = [sys.executable, str(copy)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=30)
    assert "a.svg is not current" in done.stdout
    assert "install-missing.sh graphviz" in done.stdout
    assert not (folder / "a.svg").exists()
