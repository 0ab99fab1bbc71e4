"""Documents that packages carry, without a build: the laboratory book stays in the source tree."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from built_site import built
from packages.root import TREE
from slurm_hooks.settings.file import load
from slurm_hooks.settings.values import Settings

LAY_OUT = TREE / "packaging" / "lay-out.sh"
SOURCE = TREE / "packaging" / "source.sh"


def lay_out(root: Path, function: str) -> None:
    """The files that this function of the script installs."""
    (root / "carried" / "html").mkdir(parents=True, exist_ok=True)
    functions = LAY_OUT.read_text(encoding="utf-8").split("\ncommand_and_code\n")[0]
    words = [f"{functions}\n{function}", str(LAY_OUT), str(root / "carried"), str(root)]
    subprocess.run(["sh", "-euc", *words], check=True, timeout=30)


@pytest.fixture(scope="module")
def carried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of documents that the packages get."""
    root = tmp_path_factory.mktemp("root")
    built(root / "carried" / "html", "packaged.yml")
    lay_out(root, "documents")
    return root / "usr" / "share" / "doc" / "slurm-malleable"


def test_the_installed_settings_only_observe(tmp_path: Path) -> None:
    lay_out(tmp_path, "settings")
    installed = load(tmp_path / "etc" / "slurm-malleable" / "malleable.toml")
    shipped = Settings()
    assert installed.mode.level == "observe"
    assert installed == replace(
        shipped, site=replace(shipped.site, operators=("root", "slurm", "slurm-malleable"))
    )


def test_installed_files_name_the_installed_documents(
    tmp_path: Path, carried: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUILD_PYTHON", sys.executable)
    lay_out(tmp_path, "settings\nunits\nexamples")
    tops = (tmp_path / "etc", tmp_path / "usr", carried.parents[1] / "man")
    files = [file for top in tops for file in sorted(top.rglob("*")) if file.is_file()]
    texts = [(file, file.read_text(encoding="utf-8").replace("\\-", "-")) for file in files]
    of_source = [file.name for file, text in texts if re.search(r"(?<!doc/)\bdocs/\w+/", text)]
    assert of_source == []
    place = "/usr/share/doc/slurm-malleable/"
    named = {page for _, text in texts for page in re.findall(rf"{place}([\w/.-]+\.md)", text)}
    assert "admins/packages.md" in named
    assert {page for page in named if not (carried / page).exists()} == set()


def test_carried_pages_say_where_the_pages_lie_that_they_lack(carried: Path) -> None:
    text = (carried / "admins" / "should-i.md").read_text(encoding="utf-8")
    assert "| docs/lab/2026-11-21-tick.md in the source |" in text
    html = (carried / "html" / "admins" / "should-i.html").read_text(encoding="utf-8")
    assert "docs/lab/2026-11-21-tick.md in the source" in html
    for page in ("README.md", "html/index.html", "CONTRIBUTING.md", "html/CONTRIBUTING.html"):
        said = (carried / page).read_text(encoding="utf-8")
        assert "docs/developers/nightly.md in the source" in said, page


def test_packages_carry_the_figures_without_the_laboratory_book(carried: Path) -> None:
    assert (carried / "developers" / "performance.md").exists()
    assert not (carried / "lab").exists()


def test_no_link_of_a_carried_page_is_dead(carried: Path) -> None:
    dead = [
        (page.name, link)
        for page in sorted(carried.rglob("*.md"))
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
        if not link.startswith("http") and not (page.parent / link).exists()
    ]
    assert dead == []


def test_a_page_for_a_browser_lies_beside_each_page(carried: Path) -> None:
    site = carried / "html"
    written = {page.relative_to(carried).with_suffix(".html") for page in carried.rglob("*.md")}
    homes = {page.with_name("index.html") if page.stem == "README" else page for page in written}
    assert {page.relative_to(site) for page in site.rglob("*.html")} == homes
    assert "Permission is hereby granted" in (site / "assets" / "LICENSE.txt").read_text()


@pytest.mark.parametrize("has_git", [True, False])
def test_the_source_of_packages_has_no_laboratory_book(tmp_path: Path, has_git: bool) -> None:
    pages = ("README.md", "docs/developers/performance.md", "docs/lab/README.md")
    for name in (*pages, "tests/test_it.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    if has_git:
        subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    function = re.search(r"(?ms)^list_source\(\) .*?^}$", SOURCE.read_text(encoding="utf-8"))
    assert function
    argv = ["sh", "-euc", f"{function[0]}\nlist_source"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    listed = {line.removeprefix("./") for line in done.stdout.splitlines()}
    assert listed == set(pages[:2])
