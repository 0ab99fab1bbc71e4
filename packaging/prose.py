"""Counts how plain the English of documents and docstrings is. `make lint` calls it.

Without arguments it counts the whole project and fails if a limit is passed. With files or folders
it counts those. `--list` shows every sentence that is too long and every word to avoid, with its
place.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "examples")
CODE = ("slurm_hooks", "tests", "packaging", "benchmarks", "examples")
MADE = ("docs/developers/modules.md",)  # out of docstrings, which count by themselves
LONG, TOO_LONG = 30, 40  # words
LIMITS = {"mean": 16.0, "over 30": 4.0, "over 40": 0.0, "semicolons": 1.0}

# A tenth of what this project had on 2026-11-25, per 1,000 words. Six projects that users like have
# 0.2 to 1.1 of "what", 0 to 1.0 of "nothing", 0 to 2.9 of "one".
ACCENT = {
    "what": (r"\bwhat\b", 0.78),
    "nobody": (r"\b(nobody|none|nothing)\b", 0.66),
    "one": (r"\bones?\b", 0.94),
    "anew": (
        r"\b(anew|alike|oftener|besides|meanwhile|whoever|all the same|for ever|of its own)\b",
        0.22,
    ),
    "that of": (r"\b(that|those) of\b", 0.14),
}


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of prose. Each span of code in it is the word `CODE`."""

    file: Path
    line: int
    text: str

    @property
    def words(self) -> int:
        return len(re.findall(r"[A-Za-z0-9][\w'%.,/-]*", self.text))


def sentences(file: Path) -> Iterator[Sentence]:
    """Yield all sentences of a document, or of the docstrings of a program."""
    text = file.read_text(encoding="utf-8")
    parts = docstrings(text) if file.suffix == ".py" else [(1, text)]
    for first, part in parts:
        for line, paragraph in paragraphs(part):
            for sentence in _split(paragraph):
                yield Sentence(file, first + line, sentence)


def docstrings(program: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every docstring. The value None in it is code."""
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, re.sub(r"\bNone\b", "`None`", text)


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number of the first line and the words of each paragraph or item of a list.

    Code, tables, headings and comments are left out.
    """
    lines: list[str] = []
    start, fenced, after_blank = 0, False, True
    for number, line in enumerate([*_without_comments(text).splitlines(), ""]):
        bare = line.strip()
        fenced ^= bare.startswith(("```", "~~~"))
        is_code = fenced or (line.startswith("    ") and after_blank and not lines)
        is_break = is_code or not bare or bool(re.match(r"[|#>]|```|~~~|!!!|\?\?\?|:::", bare))
        is_item = bool(re.match(r"([*+-]|\d+\.) ", bare))
        if (is_break or is_item) and lines:
            yield start, _plain(" ".join(lines))
            lines = []
        if not is_break:
            start = start if lines else number
            lines.append(re.sub(r"^([*+-]|\d+\.) +", "", bare))
        after_blank = not bare or (after_blank and is_code)


def _without_comments(text: str) -> str:
    """Return the text without HTML comments, with as many lines as before."""
    return re.sub(r"<!--.*?-->", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)


def _plain(text: str) -> str:
    """Return the words alone: no marks, no addresses, each span of code as a word."""
    text = re.sub(r"``.+?``|`[^`]*`", "CODE", text)
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"https?://\S+", "CODE", text)
    return text.replace("**", "").replace("*", "")


def _split(text: str) -> Iterator[str]:
    text = re.sub(r"\b(e\.g|i\.e|vs|cf|etc|Eq|Fig|Sec)\.", r"\1", text)
    for part in re.split(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9`~])", text):
        if re.search(r"[A-Za-z]{2}", part):
            yield part.strip()


@dataclass(frozen=True, slots=True)
class Count:
    """The counts of some sentences: shares in percent, accents per 1,000 words."""

    words: int
    figures: dict[str, float]

    @classmethod
    def of(cls, group: list[Sentence]) -> Count:
        words = max(1, sum(sentence.words for sentence in group))
        every = max(1, len(group))
        share = {
            "over 30": sum(sentence.words > LONG for sentence in group),
            "over 40": sum(sentence.words > TOO_LONG for sentence in group),
            "semicolons": sum(";" in sentence.text for sentence in group),
        }
        figures = {"mean": words / every} | {name: 100 * n / every for name, n in share.items()}
        for name, (pattern, _) in ACCENT.items():
            figures[name] = 1000 * sum(len(_matches(pattern, s)) for s in group) / words
        return cls(words, figures)

    def passed(self) -> list[str]:
        """Return the names of the limits that these sentences exceed."""
        limits = LIMITS | {name: limit for name, (_, limit) in ACCENT.items()}
        return [name for name, limit in limits.items() if self.figures[name] > limit]


def _matches(pattern: str, sentence: Sentence) -> list[str]:
    if pattern == ACCENT["what"][0] and sentence.text.endswith("?"):
        return []
    return re.findall(pattern, sentence.text, re.I)


def faults(group: Iterable[Sentence]) -> Iterator[str]:
    """Yield a line for each sentence that is too long, has a semicolon, or a word to avoid."""
    for sentence in group:
        why = [f"{sentence.words} words"] if sentence.words > LONG else []
        why += [";"] if ";" in sentence.text else []
        why += [name for name, (pattern, _) in ACCENT.items() if _matches(pattern, sentence)]
        if why:
            place = sentence.file.resolve().relative_to(ROOT)
            yield f"{place}:{sentence.line}: {', '.join(why)}: {sentence.text}"


def files(names: Iterable[str], suffix: str) -> list[Path]:
    """Return the files with this suffix among the names, or below them."""
    paths: list[Path] = []
    for path in (Path(name) for name in names):
        paths += sorted(path.rglob(f"*{suffix}")) if path.is_dir() else [path] * path.exists()
    made = [ROOT / name for name in MADE]
    return [path for path in paths if path.suffix == suffix and path.resolve() not in made]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("path", nargs="*", help="files or folders; default: the whole project")
    parser.add_argument("--list", action="store_true", help="show each sentence to mend")
    options = parser.parse_args(arguments)
    whole = not options.path
    code = 0
    for title, names, suffix in (("documents", PAGES, ".md"), ("docstrings", CODE, ".py")):
        chosen = files([str(ROOT / n) for n in names] if whole else options.path, suffix)
        group = [sentence for file in chosen for sentence in sentences(file)]
        if not group:
            continue
        count = Count.of(group)
        if options.list:
            print(*faults(group), sep="\n")
        figures = ", ".join(f"{name} {value:.2f}" for name, value in count.figures.items())
        print(f"{title}: {count.words} words, {figures}")
        for name in count.passed():
            print(f"{title}: too many of: {name} (packaging/prose.py --list shows where)")
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
