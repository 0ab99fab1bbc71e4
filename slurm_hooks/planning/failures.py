"""Judges deaths of fragments: which ends are deaths, where the fault is, and when a job is stopped.

A failure counts at any age, until the job makes progress. For a while, a job avoids a node on which
its fragment died, so that the next try uses another node.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta

from slurm_hooks.model import (
    WAITING_STATES,
    AvoidedNode,
    Fragment,
    FragmentState,
    Intent,
    MalleableJob,
    Mark,
    Said,
    Verb,
    Why,
)
from slurm_hooks.model.ends import requeue_of
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.trouble import is_within
from slurm_hooks.planning.workers import has_worked, outlived


@dataclass(frozen=True)
class Shunned:
    """Nodes that a job keeps away from.

    It avoids nodes where it `died` as long as it has a choice. It avoids a node where it
    `died_once` during training only while other nodes are free for all that it wants.
    """

    died: frozenset[str] = frozenset()
    died_once: frozenset[str] = frozenset()
    unfit: frozenset[str] = frozenset()


def has_progressed(ground: Ground, job: MalleableJob) -> bool:
    """Tell whether the training has made progress since the job's last failure.

    A running fragment says so now, a waiting fragment said so when it left. In a pool, finished
    work shows it too.
    """
    failed = max((a.since for f in job.stirring for a in f.mark.deaths), default=None)
    if job.trains or (not job.way.works_as_one and has_worked(ground, job, failed)):
        return True
    trained = (f for f in job.fragments if f.state in WAITING_STATES and f.said is Said.TRAINED)
    left = (requeue_of(f, ground.slurm) for f in trained)
    return any(when is not None and (failed is None or when > failed) for when in left)


def is_blame_on_node(ground: Ground, fragment: Fragment, job: MalleableJob) -> bool:
    """Tell whether the script is not at fault.

    Then the node of this dead fragment failed, other fragments train, or another worker of its pool
    has lived for longer.
    """
    if fragment.state is FragmentState.LOST or job.trains:
        return True
    return not job.way.works_as_one and outlived(ground, fragment, job)


def why_stopped(ground: Ground, job: MalleableJob, died: Iterable[Fragment]) -> str:
    """The reason to stop a job whose script has now failed as often as it may, else empty.

    Its characters are those that a mark may hold. Retries use other nodes as long as there are any,
    so these failures do not come from a single node.
    """
    limit = ground.settings.failures.limit
    guilty = (f for f in died if not is_blame_on_node(ground, f, job))
    first = next(guilty, None) if job.failures + 1 >= limit else None
    if first is None:
        return ""
    where = "+".join(sorted(first.nodes)) or "unknown"
    code = re.sub(r"[^A-Za-z0-9:]", "_", first.exit_code) or "unknown"
    return f"failed-{limit}-times:exit-{code}-on-{where}"


def after_death(ground: Ground, job: MalleableJob, fragment: Fragment) -> Mark:
    """The mark of a dead fragment, without nodes that it has avoided for long enough.

    A tick counts a single failure, however many fragments of a gang died together. The mark keeps
    the last two deaths of each node.
    """
    now, span = ground.now, timedelta(seconds=ground.settings.failures.avoid_s)
    lasting = [a for a in fragment.mark.deaths if is_within(now, a.since, span)]
    newest = {a.node: a for a in sorted(lasting)}
    kept = tuple(a for a in lasting if a.node not in fragment.nodes or a == newest[a.node])
    deaths = kept + tuple(AvoidedNode(name, now) for name in sorted(fragment.nodes))
    mark = replace(fragment.mark, noticed=now, deaths=deaths)
    if is_blame_on_node(ground, fragment, job):
        return mark
    return replace(mark, failures=job.failures + 1)


def put_back(fragment: Fragment, cause: Why, mark: Mark) -> Intent:
    """Return the intent to put an ended fragment back, held. An operator's hold stays."""
    is_held = not fragment.is_on_hold
    return Intent(fragment.id, cause, Verb.PUT_BACK, mark=mark, is_held=is_held, is_ended=True)


def shunned(ground: Ground, job: MalleableJob) -> Shunned:
    span = timedelta(seconds=ground.settings.failures.avoid_s)

    def recent(avoided: Iterable[AvoidedNode]) -> Counter[str]:
        return Counter(a.node for a in avoided if is_within(ground.now, a.since, span))

    deaths = recent(a for f in job.stirring for a in f.mark.deaths)
    once = frozenset(name for name, count in deaths.items() if count == 1 and job.trains)
    return Shunned(
        died=frozenset(deaths) - once,
        died_once=once,
        unfit=frozenset(recent(a for f in job.stirring for a in f.mark.unfit)),
    )


def suspects(ground: Ground) -> dict[str, tuple[int, ...]]:
    """Nodes on which jobs of several users died lately, with those jobs.

    Only jobs that otherwise train count, since a job with failures on record may fail everywhere.
    All jobs of a user count once. If more than a quarter of the machine would be suspect, no node
    is. So no user can keep nodes from the others.
    """
    span = timedelta(seconds=ground.settings.failures.avoid_s)
    deaths: dict[str, dict[str, int]] = {}
    for job in ground.seen.jobs:
        if job.failures or any(f.mark.stopped for f in job.stirring):
            continue
        for fragment in job.stirring:
            for death in fragment.mark.deaths:
                if is_within(ground.now, death.since, span):
                    deaths.setdefault(death.node, {}).setdefault(job.user, job.job_id)
    suspected = {
        node: tuple(sorted(by_user.values()))
        for node, by_user in sorted(deaths.items())
        if len(by_user) > 1
    }
    return suspected if len(suspected) <= max(1, len(ground.seen.nodes) // 4) else {}
