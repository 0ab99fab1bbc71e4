"""The screen of `malleable top`: tables that a background thread refreshes, without decisions."""

from __future__ import annotations

from typing import Callable, ClassVar, Optional

from rich.text import Text
from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Static, TabbedContent, TabPane

from slurm_hooks.errors import MalleableError
from slurm_hooks.report.tables import GAP, Rows, fitted
from slurm_hooks.report.top.board import (
    HOLE_COLUMNS,
    JOB_COLUMNS,
    LEASE_COLUMNS,
    Board,
    Row,
    board_of,
    job_lines,
)
from slurm_hooks.tick.report import TickReport

Look = Callable[[], TickReport]
_FROZEN = "not refreshed: press space to refresh again"
TABS = (
    ("jobs", "Jobs", JOB_COLUMNS),
    ("leases", "Leases", LEASE_COLUMNS),
    ("holes", "Holes", HOLE_COLUMNS),
    ("actions", "Next tick", ("action",)),
)


class Explanation(ModalScreen[None]):
    """The reasons for the size of a job, over the tables."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,q,enter", "dismiss", "Back")]
    CSS = """
    Explanation { align: center middle; }
    VerticalScroll { width: 90%; height: 80%; border: round $accent; background: $surface; }
    """

    def __init__(self, lines: tuple[str, ...]) -> None:
        super().__init__()
        self._lines = lines

    def compose(self) -> ComposeResult:
        """The lines, without markup."""
        with VerticalScroll():
            yield Static("\n".join(self._lines), markup=False)
        yield Footer()


class Top(App[None]):
    """Calls `look`, which only reads, every `every_s` seconds in a separate thread.

    If `look` fails, a line at the top says so, and the last tables stay.
    """

    TITLE = "malleable top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "Quit"),
        ("r", "refresh", "Refresh"),
        ("space", "freeze", "Freeze"),
        ("u", "only_mine", "Mine"),
        ("j", "tab('jobs')", "Jobs"),
        ("l", "tab('leases')", "Leases"),
        ("h", "tab('holes')", "Holes"),
        ("n", "tab('actions')", "Next"),
    ]
    CSS = """
    #summary { height: auto; padding: 0 1; background: $panel; }
    #fault { height: auto; padding: 0 1; color: $error; }
    """

    def __init__(self, look: Look, every_s: float, user: str) -> None:
        super().__init__()
        self._look, self._every_s, self._user = look, every_s, user
        self._is_frozen = self._is_mine = self._is_looking = False
        self._seen: Optional[TickReport] = None

    def compose(self) -> ComposeResult:
        """The figures, the last fault, a tab for each table."""
        yield Static("asking Slurm ...", id="summary", markup=False)
        yield Static("", id="fault", markup=False)
        with TabbedContent():
            for name, title, columns in TABS:
                with TabPane(title, id=name):
                    table: DataTable[Text] = DataTable(
                        id=f"{name}-table", cursor_type="row", zebra_stripes=True
                    )
                    table.add_columns(*columns)
                    yield table
        yield Footer()

    def on_mount(self) -> None:
        """Start the refreshes."""
        self.query_one("#jobs-table").focus()
        self.set_interval(self._every_s, self._next_look)
        self.action_refresh()

    def _next_look(self) -> None:
        if not self._is_frozen:
            self.action_refresh()

    def action_refresh(self) -> None:
        """Refresh now, unless a refresh runs: a slow slurmctld must not get a second question."""
        if not self._is_looking:
            self._is_looking = True
            self.look_once()

    @work(thread=True)
    def look_once(self) -> None:
        """Ask Slurm in the background, then show the answer."""
        try:
            report = self._look()
        except MalleableError as error:
            self.call_from_thread(self._show_fault, str(error))
        else:
            self.call_from_thread(self._show, report)
        finally:
            self._is_looking = False

    def action_freeze(self) -> None:
        """Freeze the tables, or refresh them again."""
        self._is_frozen = not self._is_frozen
        self._show_fault(_FROZEN if self._is_frozen else "")

    def action_only_mine(self) -> None:
        """Show only the caller's jobs, or the jobs of all users."""
        self._is_mine = not self._is_mine
        if self._seen:
            self._show(self._seen)

    def action_tab(self, name: str) -> None:
        """Bring a table to the front."""
        self.query_one(TabbedContent).active = name
        self.call_after_refresh(self.query_one(f"#{name}-table").focus)  # once it is visible

    @on(DataTable.RowSelected, "#jobs-table")
    def explain(self, event: DataTable.RowSelected) -> None:
        """Explain the job of the row."""
        if self._seen and event.row_key.value:
            lines = job_lines(self._seen, int(event.row_key.value))
            self.push_screen(Explanation(lines or ("Slurm has forgotten this job",)))

    def _show_fault(self, text: str) -> None:
        self.query_one("#fault", Static).update(text)

    def _show(self, report: TickReport) -> None:
        self._seen = report
        board = board_of(report, self._user if self._is_mine else "")
        self.query_one("#summary", Static).update("\n".join(board.summary))
        self._show_fault(_FROZEN if self._is_frozen else "")
        for name, rows in _rows_of(board, self.size.width).items():
            self._fill(self.query_one(f"#{name}-table", DataTable), rows)

    def _fill(self, table: DataTable[Text], rows: tuple[Row, ...]) -> None:
        """New rows under the old cursor."""
        row = table.cursor_row
        table.clear()
        for number, cells in enumerate(rows):
            is_job = table.id == "jobs-table"
            table.add_row(*map(Text, cells), key=cells[0] if is_job else str(number))
        table.move_cursor(row=min(row, max(0, len(rows) - 1)))


def _rows_of(board: Board, width: int) -> dict[str, tuple[Row, ...]]:
    """The rows of each table. Rows of jobs are cut to the screen. Enter shows the whole reason."""
    jobs = fitted(Rows("", JOB_COLUMNS, board.jobs), width - GAP).rows
    actions = tuple((line,) for line in board.actions)
    return {"jobs": jobs, "leases": board.leases, "holes": board.holes, "actions": actions}
