"""What is generated of the documentation is that of the code beside it."""

from __future__ import annotations

import runpy
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from slurm_hooks.settings import Settings

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "packaging" / "reference.py"))


def test_the_files_are_those_that_the_code_makes(reference: dict[str, Any]) -> None:
    for path, text in reference["written"]().items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: run make docs"


def test_every_key_has_a_text_and_its_kind(reference: dict[str, Any]) -> None:
    found = {
        (entry.section, entry.key): entry
        for entry in reference["entries"]((ROOT / "etc" / "malleable.toml").read_text())
    }
    keys = {
        (section.name, key.name)
        for section in fields(Settings)
        for key in fields(getattr(Settings(), section.name))
    }
    assert set(found) == keys
    assert [key for key, entry in found.items() if not entry.text] == []
    assert found["lease", "length_s"].kind == "whole number from 60 to 86,400"
    assert found["plan", "rescale"].kind == "one of horizon, amortised"


@pytest.mark.skipif(not shutil.which("man"), reason="man is not installed")
@pytest.mark.parametrize("name", sorted(p.name for p in (ROOT / "docs" / "man").iterdir()))
def test_a_man_page_is_well_formed(name: str) -> None:
    done = subprocess.run(
        ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", str(ROOT / "docs" / "man" / name)],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()
