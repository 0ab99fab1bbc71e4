"""Which idle nodes a malleable job could have now, and why it could not have the others. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Optional

from slurm_hooks.model import USABLE, Level, MalleableJob, Needs, Request, Snapshot, Verdict
from slurm_hooks.model.plural import plural
from slurm_hooks.planning.eligibility import Eligibility
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.modes import is_in_canary
from slurm_hooks.planning.situation import situation_of
from slurm_hooks.planning.survey import survey_of
from slurm_hooks.report.why import obstacle_text
from slurm_hooks.settings.values import Mode, Settings
from slurm_hooks.slurm.text import fold


@dataclass(frozen=True)
class Room:
    """The idle nodes of a partition: those that could be used, and how many not, by verdict.

    `left` is what the site's ceiling leaves to all malleable jobs together (None: no ceiling).
    """

    partition: str
    usable: tuple[str, ...]
    barred: tuple[tuple[Verdict, int], ...] = ()
    left: Optional[int] = None


def find_room(snapshot: Snapshot, settings: Settings, partition: str, feature: str = "") -> Room:
    """The room for a job of this partition that leaves all to the settings but `feature`, its
    --constraint."""
    job = _hypothetical(settings, partition, feature)
    survey = survey_of(Ground(snapshot, settings))
    jobs = (*snapshot.jobs, job)
    eligibility = Eligibility(survey, [situation_of(survey, each) for each in jobs])
    idle = (n.name for n in snapshot.nodes if partition in n.partitions)
    kind = eligibility.kind(job.job_id)
    found = {name: eligibility.verdict(name, kind) for name in idle if eligibility.room(name)}
    barred = Counter(verdict for verdict in found.values() if verdict != USABLE)
    ceiling = survey.mandate.ceiling
    return Room(
        partition,
        usable=tuple(name for name, verdict in found.items() if verdict == USABLE),
        barred=tuple(sorted(barred.items(), key=lambda item: obstacle_text(item[0]))),
        left=None if ceiling is None else max(0, ceiling - len(eligibility.taken)),
    )


def _hypothetical(settings: Settings, partition: str, feature: str) -> MalleableJob:
    lease, hole = settings.lease.length_s, settings.lease.shortest_hole_s
    request = Request(1, 1, 1, timedelta(seconds=lease), timedelta(seconds=hole))
    return MalleableJob(0, "", partition, request, (), needs=Needs(features=feature))


def room_lines(room: Room, wanted: int) -> Iterator[str]:
    """What to expect of a job that wants so many nodes."""
    names = f" ({fold(room.usable)})" if room.usable else ""
    told = [
        f"{plural(len(room.usable), 'idle node')} of partition {room.partition} can be used{names}"
    ]
    told += [f"{barred} not: {obstacle_text(verdict)}" for verdict, barred in room.barred]
    yield "; ".join(told)
    if room.left is not None and room.left < wanted:
        yield (
            f"mode.max_nodes and max_share leave {plural(room.left, 'node')}, and the check wants "
            f"{wanted}"
        )
    if len(room.usable) < wanted:
        yield f"the check wants {wanted}: it waits until other jobs leave more to it"


def is_left_out(mode: Mode, user: str, account: str) -> bool:
    """Whether a canary leaves out the jobs of this user; empty is an account that Slurm chooses."""
    is_unknown = bool(mode.accounts) and not account
    is_out = not (is_unknown or is_in_canary(mode, user, account))
    return mode.level == Level.CANARY.value and is_out
