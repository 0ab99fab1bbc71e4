"""The idle nodes that a malleable job could use now, and the reasons for the others. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Optional

from slurm_hooks.model import USABLE, MalleableJob, Needs, Request, Snapshot, Verdict
from slurm_hooks.model.moments import plural
from slurm_hooks.planning.eligibility import Eligibility
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.situation import situation_of
from slurm_hooks.planning.survey import survey_of
from slurm_hooks.report.why import obstacle_text
from slurm_hooks.settings.values import Settings
from slurm_hooks.slurm.text import fold


@dataclass(frozen=True)
class Room:
    """The idle nodes of a partition: the usable nodes, and the number of others by verdict.

    `left` is the number of nodes below the site's ceiling (None: no ceiling).
    """

    partition: str
    usable: tuple[str, ...]
    barred: tuple[tuple[Verdict, int], ...] = ()
    left: Optional[int] = None


def find_room(snapshot: Snapshot, settings: Settings, partition: str, feature: str = "") -> Room:
    """The room for a job of this partition with default settings, and `feature` as its
    --constraint."""
    job = _hypothetical(settings, partition, feature)
    survey = survey_of(Ground(snapshot, settings))
    jobs = (*snapshot.jobs, job)
    eligibility = Eligibility(survey, [situation_of(survey, each) for each in jobs])
    holes = [hole for hole in survey.holes.values() if partition in hole.node.partitions]
    idle, kind = [hole.node.name for hole in holes if hole.is_idle], eligibility.kind(job.job_id)
    verdicts = {name: eligibility.verdict(name, kind) for name in idle}
    barred = Counter(verdict for verdict in verdicts.values() if verdict != USABLE)
    ceiling = survey.mandate.ceiling
    return Room(
        partition,
        usable=tuple(name for name, verdict in verdicts.items() if verdict == USABLE),
        barred=tuple(sorted(barred.items(), key=lambda item: obstacle_text(item[0]))),
        left=None if ceiling is None else max(0, ceiling - len(eligibility.taken)),
    )


def _hypothetical(settings: Settings, partition: str, feature: str) -> MalleableJob:
    lease, hole = settings.lease.length_s, settings.lease.shortest_hole_s
    request = Request(1, 1, 1, timedelta(seconds=lease), timedelta(seconds=hole))
    return MalleableJob(0, "", partition, request, (), needs=Needs(features=feature))


def room_lines(room: Room, wanted: int) -> Iterator[str]:
    """The outlook of a job that wants `wanted` nodes."""
    names = f" ({fold(room.usable)})" if room.usable else ""
    parts = [
        f"{plural(len(room.usable), 'idle node')} of partition {room.partition} can be used{names}"
    ]
    parts += [f"{barred} not: {obstacle_text(verdict)}" for verdict, barred in room.barred]
    yield "; ".join(parts)
    if room.left is not None and room.left < wanted:
        yield (
            f"mode.max_nodes and max_share leave {plural(room.left, 'node')}, but the test needs "
            f"{wanted}"
        )
    if len(room.usable) < wanted:
        yield f"the test needs {plural(wanted, 'node')}: it waits for idle nodes"
