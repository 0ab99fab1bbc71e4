"""Hold the records of the demo: samples of both sandboxes, and reports of ticks. Pure.

It asks only for fields whose text no user writes, and does not know processes or clocks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Optional

from ClusterShell.NodeSet import NodeSetParseError

from demo.scenario import WHOLE, Scenario
from demo.work import WORKS, Work
from slurm_hooks.protocol.engines import ENGINES
from slurm_hooks.report.why import action_text
from slurm_hooks.slurm.text import expand, parse_gres, parse_time

FIELDS = (
    "JobArrayID",
    "Partition",
    "State",
    "SubmitTime",
    "StartTime",
    "EndTime",
    "NodeList",
    "SchedNodes",
    "tres-per-node",
)
SQUEUE = ("squeue", "--noheader", "--all", "--array", "--states=all")
QUESTION = (*SQUEUE, "-O" + ",".join(f"{name}:|" for name in FIELDS))
ON_A_NODE = ("RUNNING", "COMPLETING", "CONFIGURING")


@dataclass(frozen=True)
class Row:
    """A job, or an element of an array, at a moment. Times are in epoch seconds.

    `end` of a running job is the end of its time limit. `planned` are the nodes on which Slurm
    means to start a pending job, and `start` is then the moment. `gpus` are the GPUs of each node
    that it asked for. A job without `gpus` has all of its nodes.
    """

    job: str
    partition: str
    state: str
    submit: Optional[float] = None
    start: Optional[float] = None
    end: Optional[float] = None
    nodes: frozenset[str] = frozenset()
    planned: frozenset[str] = frozenset()
    gpus: int = 0

    @property
    def is_on_nodes(self) -> bool:
        """True while its processes may be there."""
        return self.state in ON_A_NODE and bool(self.nodes)

    @property
    def is_fragment(self) -> bool:
        """True for an element of a malleable job."""
        return "_" in self.job


@dataclass(frozen=True)
class Sample:
    """Every job in a sandbox, at `t` (epoch seconds)."""

    t: float
    rows: tuple[Row, ...]

    def find(self, job: str) -> Optional[Row]:
        """The row of a job, if it is there."""
        return next((row for row in self.rows if row.job == job), None)

    @property
    def held(self) -> dict[str, str]:
        """Fragment -> node of those on nodes."""
        return {r.job: min(r.nodes) for r in self.rows if r.is_fragment and r.is_on_nodes}

    @property
    def gpus(self) -> dict[str, int]:
        """Fragment -> its GPUs, of those on nodes."""
        return {r.job: r.gpus for r in self.rows if r.is_fragment and r.is_on_nodes}


@dataclass(frozen=True)
class Act:
    """An action of a tick: `kind` (grow, renew, ...), the fragments, their nodes and the reason.

    `gpus` are the GPUs that a `grow` gives, if the job counts them.
    """

    t: float
    kind: str
    fragments: tuple[str, ...]
    cause: str
    nodes: tuple[str, ...] = ()
    gpus: int = 0

    @property
    def is_renewal(self) -> bool:
        """True for a longer lease. A shorter lease is a `renew` too."""
        return self.kind == "renew" and self.cause == "hole open"


@dataclass(frozen=True)
class Tick:
    """The actions of a tick, and its cost."""

    t: float
    seconds: float
    rpcs: int
    acts: tuple[Act, ...] = ()
    refused: tuple[str, ...] = ()


@dataclass(frozen=True)
class Round:
    """A training round from the job's own log. `restarts_used` counts up within the job."""

    t: float
    size: int
    cause: str
    restarts_used: int


def parse_sample(t: float, text: str) -> Sample:
    """Read squeue's answer to QUESTION. Raises ValueError for a line that is no job."""
    return Sample(t, tuple(_row(line) for line in text.splitlines() if line.strip()))


def _row(line: str) -> Row:
    parts = [part.strip() for part in line.split("|")]
    if len(parts) < len(FIELDS):
        raise ValueError(f"squeue: not a job line: {line[:120]!r}")
    job, partition, state, submit, start, end, nodes, planned, gres = parts[: len(FIELDS)]
    gpus = dict(parse_gres(gres)).get("gpu", 0)
    times = (_epoch(submit), _epoch(start), _epoch(end))
    try:
        return Row(job, partition, state, *times, expand(nodes), expand(planned), gpus)
    except NodeSetParseError as error:
        raise ValueError(f"squeue: job {job}: {error}") from error


def _epoch(text: str) -> Optional[float]:
    moment = parse_time(text)
    return None if moment is None else moment.timestamp()


def parse_tick(line: str) -> Tick:
    """Read a line of `malleable reconcile --json`. Raises ValueError for any other line."""
    try:
        data = json.loads(line)
        at = datetime.fromisoformat(data["at"]).timestamp()
        acts = _acts(at, data["plan"]["actions"])
        return Tick(at, data["seconds"], data["rpcs"], acts, tuple(data["refused"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a tick: {line[:120]!r}: {error!r}") from error


def _acts(at: float, rows: Iterable[dict[str, Any]]) -> tuple[Act, ...]:
    """An act for each fragment. Fragments that are cancelled for the same reason share an act."""
    alike: dict[object, list[dict[str, Any]]] = {}
    for row in rows:
        is_cancel = row["verb"] == "cancel"
        alike.setdefault(row["cause"] if is_cancel else row["fragment"], []).append(row)
    return tuple(_act(at, group) for group in alike.values())


def _act(at: float, alike: Sequence[dict[str, Any]]) -> Act:
    fragments, first = tuple(row["fragment"] for row in alike), alike[0]
    kind, gpus = _kind(first), first["mark"]["slots"] if first["verb"] == "grow" else 0
    return Act(at, kind, fragments, action_text(first["cause"]), tuple(first["nodes"]), gpus)


def _kind(row: dict[str, Any]) -> str:
    """The weightiest thing that is done to a fragment."""
    if row["verb"] != "stay":
        return str(row["verb"]).replace("_", "-")
    if row["is_held"]:
        return "hold"
    return "set-mark" if row["mark"] else "renew"


def parse_rounds(text: str) -> tuple[Round, ...]:
    """Read the job's rounds.jsonl, without a last line that is still being written."""
    rounds = []
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):
            data = json.loads(line)
            restarts = int(data["restarts_used"])
            rounds.append(Round(float(data["t"]), int(data["size"]), str(data["cause"]), restarts))
    return tuple(rounds)


def last_step(lines: Sequence[str], unit: str = "step") -> tuple[int, int]:
    """The progress in the job's log: steps or tasks done and in all, zeros if unknown."""
    for line in reversed(lines):
        words = line.replace(":", " ").split()
        is_step = len(words) > 3 and words[0] == unit and words[2] == "of"
        if is_step and words[1].isdigit() and words[3].isdigit():
            return int(words[1]), int(words[3])
    return 0, 0


@dataclass(frozen=True)
class Recording:
    """All that was seen so far. `zero` is the epoch of the load's start.

    `ids` maps the name of a rigid job to its job id with the malleable job and its job id without.
    `begin` and `end` are the epochs at which the reservation of the scenario starts and ends.
    """

    zero: float
    job: str
    ids: Mapping[str, tuple[str, str]]
    with_it: tuple[Sample, ...]
    without: tuple[Sample, ...] = ()
    ticks: tuple[Tick, ...] = ()
    rounds: tuple[Round, ...] = ()
    result: Mapping[str, Any] = field(default_factory=dict)
    begin: float = float("inf")
    end: float = float("inf")
    work: Work = WORKS["torchrun"]
    scenario: Scenario = WHOLE

    @property
    def has_begun(self) -> bool:
        """Whether a round was formed, or, without rounds, a fragment ran."""
        if ENGINES[self.work.engine].has_rounds:
            return bool(self.rounds)
        return any(sample.held for sample in self.with_it)

    @property
    def names(self) -> dict[str, str]:
        """Job id (beside the malleable job) -> name of the rigid job."""
        return {ids[0]: name for name, ids in self.ids.items()}
