"""Writes the generated documents and the completion of bash.

The documents are the reference of all settings as a page and as malleable.toml(5), the checks of
doctor, and the list of modules. Texts come from etc/malleable.toml and from docstrings. Kinds,
ranges, defaults, commands and options come from the code.

`make docs` runs it. With a file as its argument it writes the completion alone. A test compares the
documents that are checked in.
"""

from __future__ import annotations

import argparse
import ast
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Any

from slurm_hooks import __version__
from slurm_hooks.cli import whole_parser
from slurm_hooks.commands.completion import completion as completion_for
from slurm_hooks.doctor.catalogue import CHECKS
from slurm_hooks.doctor.manual import manual
from slurm_hooks.settings.values import Settings

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "etc" / "malleable.toml"
PAGE = ROOT / "docs" / "admins" / "settings.md"
MAN = ROOT / "docs" / "man" / "malleable.toml.5"
DOCTOR = ROOT / "docs" / "admins" / "doctor.md"
MODULES = ROOT / "docs" / "developers" / "modules.md"
COMPLETION = ROOT / "build" / "bash-completion" / "malleable"


@dataclass(frozen=True)
class Entry:
    """A key of the settings: `default` as TOML, and `kind`, the allowed values in words."""

    section: str
    key: str
    default: str
    kind: str
    text: str


def entries(documented: str) -> Iterator[Entry]:
    """Yield each key of the documented file in order. Raises KeyError for an unknown key."""
    kinds = {
        (section.name, key.name): _kind(key)
        for section in fields(Settings)
        for key in fields(getattr(Settings(), section.name))
    }
    section, comment = "", []
    for line in documented.splitlines():
        if line.startswith("#"):
            comment.append(line.lstrip("# "))
        elif line.startswith("["):
            section, comment = line.strip("[]"), []
        elif " = " in line:
            key, default = line.split(" = ", 1)
            yield Entry(section, key, default, kinds[section, key], " ".join(comment))
            comment = []
        else:
            comment = []


def _kind(key: Field[Any]) -> str:
    meta = key.metadata
    if "choices" in meta:
        return " or ".join(meta["choices"])
    if "names" in meta:
        return "list of names"
    if "word" in meta:
        return "name"
    if "low" in meta:
        return _range(key)
    if isinstance(key.default, bool):
        return "true or false"
    return "absolute path" if meta.get("path") else "text"


def _range(key: Field[Any]) -> str:
    kind = "whole number" if "int" in str(key.type) else "number"
    low, high = key.metadata["low"], key.metadata["high"]
    return f"{kind} from {low:,}" + (f" to {high:,}" if high < math.inf else "")


def page(settings: tuple[Entry, ...]) -> str:
    """Return the reference in Markdown."""
    lines = [
        "# Settings",
        "",
        "The settings are in `/etc/slurm-malleable/malleable.toml`.",
        "`--settings` or `MALLEABLE_SETTINGS` can name another file.",
        "Every key is optional, and each tick reads the file again.",
        "An invalid file stops the tick with exit code 78.",
        "The tick lists all faults, and leases run out.",
        "After a change run `malleable render lua` again, because `job_submit` reads a copy",
        "([slurm-settings.md](slurm-settings.md#job_submit)).",
        "`make docs` writes this page.",
    ]
    section = ""
    for entry in settings:
        if entry.section != section:
            section = entry.section
            lines += ["", f"## [{section}]"]
        lines += ["", f"### {section}.{entry.key}"]
        lines += [f"Default `{entry.default}`, allowed: {entry.kind}.", "", *_lines(entry.text)]
    return "\n".join(lines) + "\n"


def _lines(text: str) -> list[str]:
    """Return the text, a sentence on each line, with a link for each page that it names."""
    text = re.sub(r"docs/admins/([\w-]+\.md)", r"[\1](\1)", text)
    text = re.sub(r"docs/developers/([\w/-]*?)([\w-]+\.md)", r"[\2](../developers/\1\2)", text)
    return re.split(r"(?<=[.:]) (?=[A-Z`\d\[])", text)


def man(settings: tuple[Entry, ...]) -> str:
    """Return the reference as a man page."""
    lines = [
        f'.TH MALLEABLE.TOML 5 "" "slurm-malleable {__version__}" "File Formats"',
        ".SH NAME",
        "malleable.toml \\- settings of slurm-malleable",
        ".SH SYNOPSIS",
        ".I /etc/slurm-malleable/malleable.toml",
        ".SH DESCRIPTION",
        "A TOML file. Every key is optional, and each tick reads the file again. An invalid file",
        "stops the tick with exit code 78. The tick lists all faults, and leases run out.",
        "After a change run",
        ".B malleable render lua",
        "again.",
    ]
    section = ""
    for entry in settings:
        if entry.section != section:
            section = entry.section
            lines.append(f".SH [{section}]")
        lines += [".TP", f".B {_roff(entry.key)} = {_roff(entry.default)}"]
        lines += [_roff(f"Allowed: {entry.kind}. {entry.text}")]
    lines += [".SH SEE ALSO", ".BR malleable (1),", ".BR slurm-malleable (8)"]
    return "\n".join(lines) + "\n"


def modules() -> str:
    """Return every module of the package with the first sentence of its docstring, by folder."""
    package = ROOT / "slurm_hooks"
    lines = ["# Modules", "", "This page is written by `make docs`, from the modules themselves."]
    room = None
    for path in sorted(package.rglob("*.py"), key=lambda path: (path.parent, path)):
        if path.name == "__init__.py":
            continue
        if path.parent != room:
            room = path.parent
            lines += ["", f"## {room.relative_to(ROOT)}", *_first_sentence(room / "__init__.py")]
            lines += ["", "| module | contains |", "|---|---|"]
        lines.append(f"| `{path.name}` | {' '.join(_first_sentence(path))} |")
    return "\n".join(lines) + "\n"


def _first_sentence(path: Path) -> list[str]:
    """Return the first sentence in a list, or an empty list without a docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    if not text:
        return []
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return [re.split(r"(?<=\.) (?=[A-Z`])", paragraph)[0].replace("|", "\\|")]


def _roff(text: str) -> str:
    """Return text that roff prints unchanged."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return re.sub(r"^([.'])", r"\\&\1", escaped)


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers below a parser, by name. argparse has no public way to them."""
    actions = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return next((dict(action.choices) for action in actions), {})


def completion() -> str:
    """Return the completion for bash."""
    return completion_for(whole_parser(), "bash")


def written() -> dict[Path, str]:
    """Return each generated file that is checked in, with its text."""
    settings = tuple(entries(SOURCE.read_text(encoding="utf-8")))
    return {
        PAGE: page(settings),
        MAN: man(settings),
        DOCTOR: manual(CHECKS),
        MODULES: modules(),
    }


if __name__ == "__main__":
    if len(sys.argv) > 1:  # packages need only the completion, at another path
        files = {Path(sys.argv[1]): completion()}
    else:
        files = {**written(), COMPLETION: completion()}
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path)
