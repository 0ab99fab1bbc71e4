"""A case: a job runs, a fault happens, ticks run until they make no change, and a verdict
follows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from faults.checker import (
    ELEMENTS,
    NODES,
    Bounds,
    Look,
    changed_nodes,
    doubled_nodes,
    late_leases,
    lost_elements,
    parse_elements,
    parse_nodes,
    writes_on_nodes,
)
from promises.bench import Bench, has
from slurm_hooks.errors import RetryLater
from slurm_hooks.sandbox.processes import identify
from slurm_hooks.slurm.live import Asked, Live
from slurm_hooks.slurm.text import Command
from slurm_hooks.tick.bookkeeping import booked_tick
from slurm_hooks.tick.report import TickReport
from waiting import wait_until

SLEEP = "exec sleep 600"
TICKS = 3  # ticks with changes, before a tick without changes


@dataclass
class Noting:
    """A Slurm that records every line that was written to it."""

    live: Live
    written: list[str] = field(default_factory=list)

    @property
    def asked(self) -> list[Asked]:
        return self.live.asked

    def ask(self, command: Command) -> str:
        is_question = command.argv[0] == "squeue" or command.stdin.startswith("show ")
        if not is_question:
            self.written += command.stdin.splitlines() or [" ".join(command.argv)]
        return self.live.ask(command)


@dataclass(frozen=True)
class Row:
    """A row of the table for a fault: seconds from the fault to the verdict, and broken rules.

    `ticks` made changes before a tick made no change. It is None if this never happened.
    """

    fault: str
    seconds: float
    leases: tuple[str, ...]
    nodes: tuple[str, ...]
    elements: tuple[str, ...]
    ticks: int | None
    most_ticks: int

    @property
    def is_good(self) -> bool:
        is_settled = self.ticks is not None and self.ticks <= self.most_ticks
        return is_settled and not (self.leases or self.nodes or self.elements)

    def joined(self, other: Row) -> Row:
        """Join two rows: their seconds in all, and the larger number of ticks."""
        return replace(
            self,
            seconds=round(self.seconds + other.seconds, 1),
            leases=self.leases + other.leases,
            nodes=self.nodes + other.nodes,
            elements=self.elements + other.elements,
            ticks=max(self.ticks or 0, other.ticks or 0),
        )

    def data(self) -> dict[str, object]:
        return {**asdict(self), "is_good": self.is_good}


@dataclass
class Course:
    """A job on a bench, the readings of it, and the output of ticks."""

    bench: Bench
    fault: str
    rows: list[Row]
    job: int = 0
    count: int = 0
    looks: list[Look] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    began: float = 0.0

    def start(
        self,
        wanted: int = 3,
        script: str = SLEEP,
        minimum: int = 1,
        options: Sequence[str] = (),
        is_strict: bool = True,
        user: str = "nobody",
    ) -> int:
        """Start a job with as many fragments. When this returns, all run, and the fault begins."""
        self.job = self.bench.submit(script, f"{minimum}-{wanted}", user, options)
        self.count = wanted
        self.bench.tick()
        if is_strict:
            self.bench.until(self.job, has(wanted))
            wait_until(lambda: not self.tick().plan.actions, 20, every_s=0.5)
        self.began = time.monotonic()
        return self.job

    def tick(self, timeout_s: float = 10.0) -> TickReport:
        """Run a tick as `malleable reconcile` does, and read Slurm's state after it."""
        port = Noting(self.bench.live)
        port.live.timeout_s = timeout_s
        try:
            report, _warnings = booked_tick(port, self.bench.settings)
        finally:
            self.written += port.written
        self.look()
        return report

    def look(self) -> Look:
        clock = {"SLURM_TIME_FORMAT": "%s"}
        elements = parse_elements(self.bench.box.run(ELEMENTS, env=clock).stdout)
        nodes = parse_nodes(self.bench.box.run(NODES).stdout)
        self.looks.append(Look(time.time(), elements, nodes))
        return self.looks[-1]

    def settle(
        self,
        nodes: int,
        expected: Mapping[str, str] | None = None,
        most_ticks: int = TICKS,
        limit_s: float = 45,
        is_over: bool = False,
        nobody_s: float = 0,
    ) -> Row:
        """Tick until a tick plans no action and so many fragments run. Judge, and note the row.

        `expected` gives the nodes' states after the fault itself. A job that `is_over` may end. For
        `nobody_s` after the end of the leases there was no slurmctld, which alone ends them.
        """
        ticks = self._converge(nodes, limit_s)
        look = self.looks[-1]
        settings = self.bench.settings
        whole_minute_s = 60  # Slurm's limits are in minutes
        grace_s = settings.lease.margin_s + nobody_s
        bounds = Bounds(grace_s, settings.lease.length_s + whole_minute_s)
        row = Row(
            fault=self.fault,
            seconds=round(time.monotonic() - self.began, 1),
            leases=tuple(late_leases(self.looks, bounds)),
            nodes=(
                *changed_nodes(look, expected or {}),
                *doubled_nodes(look),
                *writes_on_nodes(self.written),
            ),
            elements=tuple(lost_elements(look, self.job, self.count, is_over)),
            ticks=ticks,
            most_ticks=most_ticks,
        )
        self.rows.append(row)
        assert row.is_good, (row, self.looks[-1], self.written[-20:])
        return row

    def _converge(self, nodes: int, limit_s: float) -> int | None:
        """The number of ticks with changes until a tick without changes, with so many
        fragments running.
        """
        changing, deadline = 0, time.monotonic() + limit_s
        while time.monotonic() < deadline:
            is_there = self.running() == nodes
            try:
                is_change = bool(self.tick().plan.actions)
            except RetryLater:  # which only asks for another tick
                continue
            changing += is_change
            if is_there and not is_change and self.running() == nodes:
                return changing
            time.sleep(1.0)
        return None

    def running(self) -> int:
        return sum(
            e.state == "RUNNING" and e.name.startswith(f"{self.job}_") for e in self.look().elements
        )

    def end_leases(self, in_s: int) -> None:
        """Act as an operator: running fragments end so many seconds from now."""
        end = int(time.time()) + in_s
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(end))
        for element in self.look().elements:
            if element.state == "RUNNING":
                self.bench.box.run(
                    ["scontrol", "update", f"jobid={element.name}", f"EndTime={stamp}"]
                )
        self.look()

    def signal(self, daemon: str, number: int) -> None:
        """Send a signal to munged, slurmctld or a node's slurmd of this sandbox."""
        process = self.bench.box.record.daemons[daemon]
        assert identify(process.pid) == process
        os.kill(process.pid, number)


NewCourse = Callable[[Bench, str], Course]
