"""The generated documentation agrees with the code beside it."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from slurm_hooks import cli
from slurm_hooks.settings.values import Settings

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "packaging" / "reference.py"))


def test_the_files_equal_the_generated_files(reference: dict[str, Any]) -> None:
    for path, text in reference["written"]().items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: run make docs"


def test_every_key_has_a_text_and_its_kind(reference: dict[str, Any]) -> None:
    by_key = {
        (entry.section, entry.key): entry
        for entry in reference["entries"]((ROOT / "etc" / "malleable.toml").read_text())
    }
    keys = {
        (section.name, key.name)
        for section in fields(Settings)
        for key in fields(getattr(Settings(), section.name))
    }
    assert set(by_key) == keys
    assert [key for key, entry in by_key.items() if not entry.text] == []
    assert by_key["lease", "length_s"].kind == "whole number from 60 to 86,400"
    assert by_key["mode", "level"].kind == "observe or on"


def words_of(parser: Any, subcommands: Any, path: tuple[str, ...] = ()) -> dict[str, set[str]]:
    """The long options of each command and subcommand."""
    options = {o for a in parser._actions for o in a.option_strings if o.startswith("--")}
    options_of = {" ".join(path): options - {"--help"}}
    for name, below in subcommands(parser).items():
        options_of.update(words_of(below, subcommands, (*path, name)))
    return options_of


def test_the_man_page_names_every_command_and_option(reference: dict[str, Any]) -> None:
    text = (ROOT / "docs" / "man" / "malleable.1").read_text().replace("\\-", "-")
    plain = re.sub(r"\\f[BIRP]", "", text)
    for command, options in words_of(reference["whole_parser"](), reference["subcommands"]).items():
        if command.startswith(("replay", "sandbox")):
            continue  # the page names their --help
        missing = {word for word in {*command.split(), *options} if word not in plain}
        assert not missing, f"malleable {command}: {missing}"


def test_the_man_page_names_the_settings_of_users() -> None:
    docs = ROOT / "docs"
    pages = "".join(page.read_text() for page in sorted((docs / "users").glob("*.md")))
    ours = {"MALLEABLE_MAILBOX", "MALLEABLE_SLOTS", "MALLEABLE_LENT"}  # nobody sets them
    asked = set(re.findall(r"MALLEABLE_[A-Z_]+", pages)) - ours
    assert asked
    page = (docs / "man" / "malleable.1").read_text()
    assert asked - set(re.findall(r"MALLEABLE_[A-Z_]+", page)) == set()


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("malleable exp", "explain"),
        ("malleable reconcile --dr", "--dry-run"),
        ("malleable render job", "job-path"),
        ("malleable sandbox ru", "run"),
        ("malleable replay --sc", "--scaling"),
    ],
)
def test_bash_completes_a_line(
    reference: dict[str, Any], tmp_path: Path, line: str, expected: str
) -> None:
    file = tmp_path / "malleable"
    file.write_text(reference["completion"]())
    words = line.split()
    listed = " ".join(f"'{word}'" for word in words)
    script = (
        f". {file}; COMP_WORDS=({listed}); "
        f"COMP_CWORD={len(words) - 1}; COMP_LINE='{line}'; COMP_POINT={len(line)}; "
        "_shtab_malleable; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert expected in done.stdout.split()


def test_each_shell_gets_its_own_script(capsys: pytest.CaptureFixture[str]) -> None:
    scripts = {}
    for shell in ("bash", "zsh"):
        assert cli.main(["completion", shell]) == 0
        scripts[shell] = capsys.readouterr().out
    assert "complete -o" in scripts["bash"]
    assert scripts["zsh"].startswith("#compdef malleable")
    assert all("job-path" in text and "--scaling" in text for text in scripts.values())
    assert cli.main(["completion", "fish"]) == 64
    assert "give one of bash, zsh" in capsys.readouterr().err


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_takes_its_script(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["completion", "zsh"]) == 0
    (tmp_path / "_malleable").write_text(capsys.readouterr().out)
    done = subprocess.run(
        ["zsh", "-n", str(tmp_path / "_malleable")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def untold(parser: Any, subcommands: Any) -> list[str]:
    """The options and words without a text."""
    missing = [
        f"{parser.prog} {a.dest}" for a in parser._actions if a.help is None and a.nargs != "A..."
    ]
    return missing + [word for p in subcommands(parser).values() for word in untold(p, subcommands)]


def test_every_option_has_a_text(reference: dict[str, Any]) -> None:
    assert untold(reference["whole_parser"](), reference["subcommands"]) == []


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
