"""Show the demo to a person while it runs and when it ends. Values in, text out.

On a terminal it draws a live picture of the nodes. Elsewhere it prints plain lines without escape
codes. It does not know Slurm or processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Optional

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from demo.records import Recording
from demo.scenario import SCENARIOS
from demo.story import IDLE, OURS, RESERVED, Event, Place, events, occupants, places, size

COLUMN_S = 5  # seconds that one cell of the picture stands for
LAST_EVENTS = 8
HEARTBEAT_S = 20.0
STYLES = {OURS: "bold orange1", IDLE: "grey42", RESERVED: "magenta"}
LETTERS = {OURS: "█", IDLE: "·", RESERVED: "R"}
RIGID_STYLE = "deep_sky_blue1"
NAMES = {"node": "Node", "gpu": "GPU"}
LEFT = ("", "CAUSE", "JOB", "CHECK", "SEEN")


@dataclass(frozen=True)
class Frame:
    """A moment of the demo, as far as a person sees it."""

    recording: Recording
    now: float
    steps: int
    of: int

    @property
    def size(self) -> int:
        """The job's nodes, or GPUs, now."""
        samples = self.recording.with_it
        return size(samples[-1], self.recording.scenario) if samples else 0

    @property
    def progress(self) -> str:
        """Size and steps in words."""
        steps = f", {self.recording.work.unit} {self.steps} of {self.of}" if self.of else ""
        scenario = self.recording.scenario
        if not self.size:
            return f"the job has no {scenario.unit}{steps}"
        return f"the job works on {scenario.counted(self.size)}{steps}"


class Plain:
    """Print lines as events occur, and a sign of life in quiet times."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._told: set[Event] = set()
        self._last = 0.0

    def __enter__(self) -> Plain:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        return None

    def update(self, frame: Frame) -> None:
        """Print the events since the last call."""
        lines = []
        for event in events(frame.recording):
            if event not in self._told:
                self._told.add(event)
                lines.append(event_line(event))
        if not lines and frame.now - self._last >= HEARTBEAT_S:
            lines.append(f"{frame.now:5.0f} s  ... {frame.progress}")
        if lines:
            self._last = frame.now
        for line in lines:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class Picture:
    """A live picture of the nodes on a terminal."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=4, transient=False)

    def __enter__(self) -> Picture:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._live.stop()

    def update(self, frame: Frame) -> None:
        """Draw this moment."""
        self._live.update(picture(frame))


def event_line(event: Event) -> str:
    """`   12 s  grow 7_0 on n6: hole open`."""
    return f"{event.t:5.0f} s  {event.text}"


def picture(frame: Frame) -> RenderableType:
    """The whole display of a moment."""
    newest = events(frame.recording)[-LAST_EVENTS:]
    lines = [Text(event_line(e), style=_event_style(e), no_wrap=True) for e in newest]
    lines += [Text("")] * (LAST_EVENTS - len(lines))
    head = Text(f"{frame.now:5.0f} s  {frame.progress}", style="bold")
    lasts_s = frame.recording.scenario.lasts_s
    bar = ProgressBar(total=lasts_s, completed=min(frame.now, lasts_s), width=60)
    return Group(head, bar, nodes_table(frame.recording), legend(frame.recording), Text(""), *lines)


def _event_style(event: Event) -> str:
    styles = {"grow": "orange1", "rigid": RIGID_STYLE, "preempted": "bold red", "refused": "yellow"}
    return styles.get(event.kind, "")


def nodes_table(recording: Recording) -> Table:
    """A row for each node, or GPU: its latest history, a cell for COLUMN_S seconds, and its
    owner."""
    width = recording.scenario.lasts_s // COLUMN_S + 1
    rows = places(recording.scenario)
    history = [Text() for _ in rows]
    now: dict[Place, str] = {}
    column = 0
    for sample in recording.with_it:
        if (sample.t - recording.zero) // COLUMN_S < column:
            continue
        column += 1
        now = occupants(sample, recording)
        for text, place in zip(history, rows):
            text.append(letter(now[place]), style=style(now[place]))
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(width=3)
    table.add_column(width=width)
    table.add_column(width=12)
    for text, place in zip(history, rows):
        name = now.get(place, IDLE)
        node = "" if place[1] else place[0]
        table.add_row(node, text[-width:], Text(name, style=style(name)))
    return table


def letter(name: str) -> str:
    """The text of a cell: rigid jobs by their first letter."""
    return LETTERS.get(name) or name[:1]


def style(name: str) -> str:
    """The colour of an occupant."""
    return STYLES.get(name, RIGID_STYLE)


def legend(recording: Recording) -> Text:
    """The meaning of the cells."""
    rigid = " ".join(dict.fromkeys(rigid.name[0] for rigid in recording.scenario.rigid))
    parts = (("█", OURS), (rigid, "rigid jobs"), ("R", RESERVED), ("·", IDLE))
    text = Text(f"    one cell is {COLUMN_S} s:  ", style="dim")
    for sign, name in parts:
        text.append(sign, style=style(name))
        text.append(f" {name}   ", style="dim")
    return text


def summary(report: dict[str, Any], console: Console) -> None:
    """The short report at the end."""
    job, unit = report["malleable_jobs"][0], report["unit"]
    sizes_table = _table(("AT", f"{unit}s".upper(), "CAUSE"), "Sizes of the malleable job")
    for row in job["sizes"]:
        sizes_table.add_row(f"{row['t']:.0f} s", str(row[f"{unit}s"]), row["cause"])
    console.print(sizes_table)
    console.print(_rigid_table(report["rigid_jobs"], unit))
    for line in _facts(report):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(_checks_table(report["checks"]))
    for line in report["violations"]:
        console.print(f"VIOLATION: {line}", markup=False, highlight=False, style="bold red")


def _table(names: Sequence[str], title: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    for name in names:
        table.add_column(name, justify="left" if name in LEFT else "right")
    return table


def _rigid_table(rigid: Sequence[dict[str, Any]], unit: str) -> Table:
    names = ("JOB", f"{unit}s".upper(), "SUBMITTED", "PLANNED", "STARTED", "WITHOUT US", "DELAY")
    table = _table(names, "Rigid jobs, beside the malleable job and without it")
    for row in rigid:
        moments = (row[key] for key in ("submit", "planned_start", "start", "start_without"))
        delay = "?" if row["delay_s"] is None else f"{row['delay_s']:+.0f} s"
        table.add_row(row["name"], str(row[f"{unit}s"]), *map(_moment, moments), delay)
    return table


def _moment(seconds: Optional[float]) -> str:
    return "-" if seconds is None else f"{max(0.0, seconds):.0f} s"


def _facts(report: dict[str, Any]) -> list[str]:
    job, unit = report["malleable_jobs"][0], report["unit"]
    here, there = report[f"{unit}_seconds"], report[f"{unit}_seconds_without"]
    return [
        "",
        *(_of_reservation(booked) for booked in report["reservations"]),
        f"The malleable job ({job['engine']}): {job['count']} {job['unit']}s, {_of_rounds(job)}"
        f"{job['goal']['of']} {job['goal']['seen']}.",
        *([_of_ticks(report["ticks"])] if report["ticks"]["count"] else []),
        f"Slurm took for other jobs: {_of_interruptions(job['interruptions'], unit)}.",
        f"{NAMES[unit]}-seconds: rigid {here['rigid']:.0f}, malleable {here[OURS]:.0f}, reserved "
        f"{here[RESERVED]:.0f}, idle {here[IDLE]:.0f} (without the malleable job "
        f"{there[IDLE]:.0f} idle).",
        "",
    ]


def _of_reservation(booked: dict[str, Any]) -> str:
    freed = booked["freed_before_s"]
    when = "was never ours" if freed is None else f"our last fragment left {freed:.0f} s before"
    nodes = ",".join(booked["nodes"])
    return f"Reservation {booked['name']} of {nodes} from {booked['start']:.0f} s: {when}."


def _of_ticks(ticks: dict[str, Any]) -> str:
    rpcs, seconds = ticks["rpcs_per_tick"], ticks["seconds_per_tick"]
    return (
        f"Ticks: {ticks['count']}, RPCs {rpcs['median']:g} (at most {rpcs['max']}), seconds "
        f"{seconds['median']:g} (at most {seconds['max']:g})."
    )


def _of_rounds(job: dict[str, Any]) -> str:
    """The number of rounds in words, empty for a job without rounds."""
    if not job["rounds"]:
        return ""
    return f"{job['rounds']} rounds, {job['restarts_used']} restarts of the budget used, "


def _of_interruptions(interruptions: Sequence[dict[str, Any]], unit: str) -> str:
    counted = SCENARIOS[unit].counted
    texts = [f"{counted(hit[f'{unit}s'])} at {hit['t']:.0f} s" for hit in interruptions]
    return ", ".join(texts) or "nothing"


def _checks_table(checks: Sequence[dict[str, Any]]) -> Table:
    table = _table(("", "CHECK", "SEEN"), "Checks")
    for check in checks:
        mark = Text("ok", style="green") if check["met"] else Text("FAILED", style="bold red")
        table.add_row(mark, check["what"], check["seen"])
    return table
