"""Tables and lines for people: a single style, no wider than their terminal."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Optional

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

WIDE, USUAL = 300, 80  # columns: outside a terminal, and of a terminal
SHORT, GAP = 16, 2  # columns: of a cell with a user's own words, and between two cells


@dataclass(frozen=True)
class Rows:
    """A table as words: its title, its columns (numbers begin with `>`), its rows."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def terminal(is_stderr: bool = False) -> Console:
    """The console for standard output or standard error."""
    console = Console(stderr=is_stderr)
    width = width_of(os.environ, console.file.isatty())
    return console if width is None else Console(stderr=is_stderr, width=width)


def width_of(environ: Mapping[str, str], is_terminal: bool) -> Optional[int]:
    """The columns to print in, None for the terminal's own. COLUMNS counts, unless it is 0."""
    columns = environ.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit():
        return int(columns[:4]) or USUAL
    return None if is_terminal else WIDE


def table_of(rows: Rows) -> Table:
    """The table for a terminal."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    if rows.title:
        table.title, table.title_justify, table.title_style = rows.title, "left", "bold"
    for name in rows.columns:
        table.add_column(name.lstrip(">"), justify="right" if name.startswith(">") else "left")
    for row in rows.rows:
        table.add_row(*(Text(printable(word)) for word in row))
    return table


def printable(word: str) -> str:
    """The word without control characters: a name from elsewhere must not steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in word)


def fitted(rows: Rows, width: int) -> Rows:
    """The rows in `width` columns: all cells are cut to SHORT, the last cells to the rest."""
    cells = [[printable(word) for word in row] for row in rows.rows]
    left = width
    for index, head in enumerate(rows.columns[:-1]):
        words = (head.lstrip(">"), *(row[index] for row in cells))
        left -= min(SHORT, max(map(cell_len, words))) + GAP
    most = max(left, SHORT // 2)
    cut = ((*(_cut(word, SHORT) for word in row[:-1]), _cut(row[-1], most)) for row in cells)
    return replace(rows, rows=tuple(cut))


def _cut(word: str, most: int) -> str:
    text = Text(word)
    text.truncate(most, overflow="ellipsis")
    return text.plain


def print_tables(console: Console, *parts: RenderableType) -> None:
    """Print them, without blanks at the ends of lines."""
    for part in parts:
        for segments in console.render_lines(part, pad=False):
            line = Text.assemble(*((each.text, each.style or "") for each in segments))
            line.rstrip()
            console.print(line, soft_wrap=True)


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines without markup. On a terminal, lines on standard output are folded. Errors stay
    whole, since they have lines to paste."""
    is_folded = console.is_terminal and not console.stderr
    for line in lines:
        shown = folded(line, console.width) if is_folded else [line]
        for row in shown:
            console.print(row, markup=False, highlight=False, emoji=False, soft_wrap=True)


def folded(line: str, width: int) -> list[str]:
    """The line in rows of `width`, cut between words. Rows after the first are indented, below the
    text behind a label if the line has a label."""
    label = re.match(r" *\S+ {2,}", line)
    indent = " " * (label.end() if label else len(line) - len(line.lstrip()) + GAP)
    rows = textwrap.wrap(
        line,
        width,
        subsequent_indent=indent if width > 2 * len(indent) else "",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return rows or [line]
