"""Invented recordings, small enough to judge by eye. Seconds count from ZERO.

Only this module imports the demo's package. Linters take the package's name for ours or for a
foreign name, depending on whether the demo has been run and left its directory of results.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

from demo.records import Act, Recording, Round, Row, Sample, Tick
from demo.scenario import PLAIN, SHARED, WHOLE

from demo import place, records, show, story, timeline, verdict, work

__all__ = [
    "PLAIN",
    "SHARED",
    "WHOLE",
    "place",
    "records",
    "show",
    "story",
    "timeline",
    "verdict",
    "work",
]
ABOUT = {"slurm_version": "22.05.8", "date": "2026-01-01T00:00:00Z", "machine": {"cores": 2}}
ZERO = 1_000_000.0
IDS = {rigid.name: (str(10 + i), str(20 + i)) for i, rigid in enumerate(WHOLE.rigid)}


def fragment(index: int, node: str, start: float, end: float, state: str = "RUNNING") -> Row:
    """A fragment of job 3 on a node, with a lease from start to end."""
    nodes = frozenset({node}) if node else frozenset()
    return Row(f"3_{index}", "malleable", state, ZERO, ZERO + start, ZERO + end, nodes=nodes)


def rigid(
    name: str, submit: float, start: Optional[float], *nodes: str, alone: bool = False
) -> Row:
    """A rigid job that runs on these nodes since `start`, or waits (start None)."""
    job = IDS[name][1 if alone else 0]
    if start is None:
        return Row(job, "main", "PENDING", ZERO + submit)
    return Row(job, "main", "RUNNING", ZERO + submit, ZERO + start, nodes=frozenset(nodes))


def planned(name: str, submit: float, start: float, *nodes: str) -> Row:
    """A rigid job for which Slurm has published a start."""
    row = rigid(name, submit, None)
    return replace(row, start=ZERO + start, planned=frozenset(nodes))


def sample(t: float, *rows: Row) -> Sample:
    """The answer of squeue at `t`."""
    return Sample(ZERO + t, rows)


def act(t: float, kind: str, cause: str, *fragments: str, nodes: tuple[str, ...] = ()) -> Act:
    """A single action of the tick at `t`."""
    return Act(ZERO + t, kind, fragments, cause, nodes)


def tick(*acts: Act, seconds: float = 0.1, rpcs: int = 5) -> Tick:
    """The tick that did these."""
    return Tick(acts[0].t, seconds, rpcs, acts)


def recording(*samples: Sample, **more: Any) -> Recording:
    """A recording with the scenario's reservation."""
    begin = ZERO + WHOLE.booking.starts_s
    base = Recording(ZERO, "3", IDS, samples, begin=begin, end=begin + 60)
    return replace(base, **more)


def good() -> Recording:
    """A run in which all promised events of the demo happen."""
    one, two, three = (fragment(i, f"n{6 + i}", 4, 125) for i in range(3))
    longer = replace(one, end=ZERO + 245), replace(two, end=ZERO + 245)
    starts = [
        rigid("long", 0, 1, "n1", "n2", "n3", "n4"),
        rigid("short", 0, 1, "n5"),
        rigid("planned", 45, 101, "n1", "n2", "n3", "n4", "n5"),
        rigid("urgent", 106, 107, "n6"),
    ]
    alone = [
        rigid("long", 0, 1, "n1", alone=True),
        rigid("short", 0, 1, "n5", alone=True),
        rigid("planned", 45, 101, "n2", alone=True),
        rigid("urgent", 106, 106, "n6", alone=True),
    ]
    four = fragment(3, "n5", 36, 156)
    waits = planned("planned", 45, 121, "n1", "n2", "n3", "n4", "n5")
    at = WHOLE.booking.starts_s
    again = (fragment(0, "n6", 141, 261), longer[1], fragment(2, "n1", 151, 271))
    done = tuple(replace(row, state="COMPLETED") for row in again)
    return recording(
        sample(2, starts[0], starts[1]),
        sample(6, starts[0], starts[1], one, two, three),
        sample(36, starts[0], one, two, three, four),
        sample(47, starts[0], waits, one, two, three, four),
        sample(52, starts[0], waits, one, two, three, replace(four, state="COMPLETED")),
        sample(104, starts[2], *longer, three),
        sample(
            107, *starts[2:], replace(one, state="PENDING", nodes=frozenset()), longer[1], three
        ),
        sample(115, *starts[2:], longer[1], replace(three, state="COMPLETED")),
        sample(141, starts[2], again[0], again[1]),
        sample(151, *again),
        sample(at + 1, *again),
        sample(at + 20, *starts, *done),
        without=(sample(0), sample(at + 20, *alone)),
        ticks=(
            tick(*(act(4, "grow", "hole open", f"3_{i}", nodes=(f"n{6 + i}",)) for i in range(3))),
            tick(act(35, "grow", "hole open", "3_3", nodes=("n5",))),
            tick(act(50, "notice", "hole closes", "3_3"), rpcs=17),
            tick(act(65, "renew", "hole open", "3_0"), act(65, "renew", "hole open", "3_1")),
            tick(act(110, "hold", "requeued by Slurm", "3_0")),
            tick(act(120, "put-back", "lease ended", "3_2")),
            tick(act(140, "grow", "hole open", "3_0", nodes=("n6",)), seconds=0.3),
            tick(act(150, "grow", "hole open", "3_2", nodes=("n1",))),
        ),
        rounds=(Round(ZERO + 10, 3, "start", 0), Round(ZERO + 108, 2, "lost 0", 1)),
        result={"steps": 480, "accuracy": 0.97},
    )
