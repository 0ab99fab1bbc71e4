"""Finds fragments that run outside any round: they hold their nodes without training."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from slurm_hooks.model import Detail, Fragment, MalleableJob, Reason, Why
from slurm_hooks.model.ends import SILENT, meets
from slurm_hooks.planning.ground import Ground


def idle_fragments(ground: Ground, job: MalleableJob) -> tuple[Reason, ...]:
    """Return a reason for each fragment that has run for failures.join_s and has joined no round.

    Workers of a pool never meet. A job in which no agent ever spoke keeps a single fragment, which
    trains alone.
    """
    if not meets(job):
        return ()
    patience_s = ground.settings.failures.join_s
    return tuple(
        Reason(Why.NOT_TRAINING, _standing(fragment, ran_s))
        for fragment, ran_s in _running(job, ground.now)
        if fragment.said in SILENT and ran_s >= patience_s
    )


def _standing(fragment: Fragment, ran_s: float) -> Detail:
    nodes = tuple(sorted(fragment.nodes))
    return Detail(fragments=(fragment.id,), nodes=nodes, seconds=ran_s, standing=fragment.said)


def _running(job: MalleableJob, now: datetime) -> Iterator[tuple[Fragment, float]]:
    for fragment in job.active:
        if fragment.start is not None:
            yield fragment, (now - fragment.start).total_seconds()
