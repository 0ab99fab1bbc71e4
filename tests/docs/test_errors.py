"""docs/users/errors.md has each refusal of sbatch, and only lines that the code writes to a log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "users" / "errors.md"
LITERAL = re.compile(r'"((?:\\.|[^"\\\n])*)"')
SHARE = 0.7  # of the words of a message that a single row has, in any form of the sentence
COMMON = {"malleable", "write", "drop", "and", "the", "for", "not"}
LOG_SHARE = 0.6  # of the triples of a line, since the code puts some lines together from parts
WORDS = 6  # of lower-case letters make a sentence of a text


def joined(text: str, glue: str) -> Iterator[str]:
    """The texts of a program. Texts with only `glue` between them are joined."""
    last, end = "", 0
    for literal in LITERAL.finditer(text):
        if last and re.fullmatch(glue, text[end : literal.start()]):
            last += " " * bool(text[end : literal.start()].strip(" \n\t.")) + literal[1]
        else:
            yield last
            last = literal[1]
        end = literal.end()
    yield last


def of_lua() -> Iterator[str]:
    """All sentences of job_submit, except sentences about the policy file, which the log gets."""
    for path in sorted((ROOT / "plugins" / "lua").glob("*.lua")):
        text = re.sub(r'(?m)(^|\s)--[^\n"]*$', "", path.read_text())
        text = re.sub(r"(?ms)^function M\.check_policy.*?^end$", "", text)
        text = re.sub(r"(?s)for name in \(.*?\):gmatch", "", text)  # names of programs
        yield from joined(text, r"\s*\.\.\s*(?:[\w.:()\[\], /*=-]*?\.\.\s*)?")


def of_plugin() -> Iterator[str]:
    """All sentences of the plugin, without its own settings and its help."""
    for name in ("request.c", "sizes.c", "malleable.c"):
        text = (ROOT / "plugins" / "spank" / name).read_text()
        text = re.sub(r"(?s)/\*.*?\*/", "", text)
        text = re.sub(r"(?s)\.usage = .*?(?=,\n\t\.has_arg)", "", text)
        yield from joined(text, r"\s*(?:KEY_LIST\s*)?")


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]{3,}", re.sub(r"%[a-z]", " ", text.lower()))) - COMMON


def is_sentence(text: str) -> bool:
    return " " in text and len(re.findall(r"\b[a-z]{2,}", text)) >= WORDS and "{min=" not in text


SAID = sorted({text for text in (*of_lua(), *of_plugin()) if is_sentence(text)})


def is_covered(text: str, rows: list[str]) -> bool:
    """Tell whether a row has the option at the start of this message, and most of its words."""
    asked = words(text)
    option = re.match(r"--(?!malleable)[a-z-]+|", text)
    named = [row for row in rows if not option or option[0] in row]
    return any(len(asked & words(row)) >= SHARE * len(asked) for row in named)


def rows() -> list[str]:
    return [line for line in PAGE.read_text().splitlines() if line.startswith(("|", "`"))]


def test_the_texts_of_the_code_are_found() -> None:
    assert len([text for text in SAID if text.startswith("--")]) > 50
    assert any(text.startswith("a number is not a range") for text in SAID)
    assert any("fragment cannot meet the others" in text for text in SAID)


@pytest.mark.parametrize("text", SAID)
def test_a_row_explains_every_message(text: str) -> None:
    assert is_covered(text, rows())


def test_a_message_without_a_row_is_found() -> None:
    lost = "--nodelist: a malleable job takes the nodes that are idle; drop it"
    assert is_covered(lost, rows())
    assert not is_covered(lost, [row for row in rows() if "--nodelist" not in row])


VALUE = re.compile(r"\{[^}]*\}|\.\.\.|%[a-z]|[,:;()]|\b(?:N|NAME)\b|\S*[\d/.[-]\S+|\d")


def triples(text: str) -> set[tuple[str, ...]]:
    """Three words that follow each other in the text, without a value or a mark between them."""
    threes = set()
    for part in VALUE.split(text):
        said = re.findall(r"[a-z_]+", part.lower())
        threes |= set(zip(said, said[1:], said[2:]))
    return threes


def of_log() -> Iterator[str]:
    """The texts of all modules and of the plugin."""
    for top, kind in (("slurm_hooks", "*.py"), ("plugins", "*.c")):
        for path in (ROOT / top).rglob(kind):
            yield from joined(path.read_text(), r"\s*f?")


SAID_IN_LOG = set().union(*map(triples, of_log()))
LOG_LINES = sorted(
    line
    for row in PAGE.read_text().partition("## Lines of the job's log")[2].splitlines()
    for line in re.findall("`([^`]+)`", row.split(" | ")[0])
    if row.startswith("| `") and triples(line) and "traceback" not in row  # that is torch's
)


def is_said(line: str) -> bool:
    asked = triples(line)
    return len(asked & SAID_IN_LOG) >= LOG_SHARE * len(asked)


def test_lines_of_the_log_are_found() -> None:
    assert len(LOG_LINES) > 40


@pytest.mark.parametrize("line", LOG_LINES)
def test_the_code_says_each_line_of_the_log(line: str) -> None:
    assert is_said(line)


def test_a_line_that_no_code_says_is_found() -> None:
    assert not is_said("round 3 broke before it began; trying again")
