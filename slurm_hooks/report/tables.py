"""Tables and lines as people see them: one style, no wider than their terminal."""

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

WIDE, USUAL = 300, 80  # columns: where no terminal cuts lines, and of a terminal
SHORT, GAP = 16, 2  # columns: for what users choose freely, between two


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
    """The columns to print in, None for those of the terminal. COLUMNS counts, unless it is 0."""
    columns = environ.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit():
        return int(columns[:4]) or USUAL
    return None if is_terminal else WIDE


def table_of(found: Rows) -> Table:
    """The table for a terminal."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    if found.title:
        table.title, table.title_justify, table.title_style = found.title, "left", "bold"
    for name in found.columns:
        table.add_column(name.lstrip(">"), justify="right" if name.startswith(">") else "left")
    for row in found.rows:
        table.add_row(*(Text(printable(word)) for word in row))
    return table


def printable(word: str) -> str:
    """Names come from elsewhere: nothing in them may steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in word)


def fitted(found: Rows, width: int) -> Rows:
    """The rows in so many columns: all cells are cut to SHORT, the last ones to what is left."""
    told = [[printable(word) for word in row] for row in found.rows]
    left = width
    for index, head in enumerate(found.columns[:-1]):
        words = (head.lstrip(">"), *(row[index] for row in told))
        left -= min(SHORT, max(map(cell_len, words))) + GAP
    most = max(left, SHORT // 2)
    rows = ((*(_cut(word, SHORT) for word in row[:-1]), _cut(row[-1], most)) for row in told)
    return replace(found, rows=tuple(rows))


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
    """Print lines as they are: nothing in them is markup. A terminal folds what goes to standard
    output. Errors stay whole, since there are lines to paste in them."""
    is_folded = console.is_terminal and not console.stderr
    for line in lines:
        shown = folded(line, console.width) if is_folded else [line]
        for row in shown:
            console.print(row, markup=False, highlight=False, emoji=False, soft_wrap=True)


def folded(line: str, width: int) -> list[str]:
    """The line in rows of a width, between words. All but the first are indented, as far as the
    text behind a label if the line has one."""
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
