"""The common style of tables, in the available columns."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from slurm_hooks.report.tables import (
    USUAL,
    WIDE,
    Rows,
    fitted,
    folded,
    print_lines,
    print_tables,
    table_of,
    width_of,
)

JOBS = Rows("jobs", ("job", ">nodes", "why"), (("7", "12", "its [maximum]"), ("1234", "1", "")))


def printed(*parts: object, is_terminal: bool = False) -> list[str]:
    console = Console(file=io.StringIO(), width=40, force_terminal=is_terminal, color_system=None)
    if isinstance(parts[0], str):
        print_lines(console, map(str, parts))
    else:
        print_tables(console, *parts)  # type: ignore[arg-type]
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(
    ("columns", "is_terminal", "width"),
    [
        (None, True, None), (None, False, WIDE), ("0", True, USUAL), ("0", False, USUAL),
        ("120", True, 120), ("60", False, 60), ("x", True, None), ("", False, WIDE),
        ("\u00b2", False, WIDE), ("9" * 30, False, 9999),
    ],
)  # fmt: skip
def test_the_width(columns: str | None, is_terminal: bool, width: int | None) -> None:
    environ = {} if columns is None else {"COLUMNS": columns}
    assert width_of(environ, is_terminal) == width


def test_a_table_has_no_blanks_at_its_right() -> None:
    assert printed(table_of(JOBS)) == [
        "jobs",
        "job   nodes  why",
        "7        12  its [maximum]",
        "1234      1",
    ]


def test_names_steer_no_terminal() -> None:
    rows = Rows("", ("job", "why"), (("a\x1b[2Jb", "x"),))
    assert printed(table_of(rows))[1] == "a?[2Jb  x"
    bells = Rows("", ("job", "why"), (("\a" * 20, "x"),))
    assert printed(table_of(fitted(bells, 40)))[1] == f"{'?' * 15}…  x"


def test_the_last_column_gives_way() -> None:
    cut = fitted(JOBS, 20)
    assert cut.rows == (("7", "12", "its [ma…"), ("1234", "1", ""))
    assert fitted(JOBS, 22).rows[0][-1] == "its [max…"
    assert max(map(len, printed(table_of(fitted(JOBS, 22))))) == 22
    assert fitted(JOBS, 40) == JOBS
    named = Rows("", ("name", "why"), (("x" * 40, "y" * 40),))
    assert [len(word) for word in fitted(named, 40).rows[0]] == [16, 22]


def test_a_terminal_folds_lines_between_words() -> None:
    line = "  a reason that is longer than forty columns of text"
    assert printed(line) == [line]
    assert printed(line, is_terminal=True) == [
        "  a reason that is longer than forty",
        "    columns of text",
    ]
    assert folded("error    tick: two words", 20) == ["error    tick: two", "         words"]
    assert folded("", 40) == [""]
    assert folded("a b", 2) == ["a", "b"]
