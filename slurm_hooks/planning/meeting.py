"""Fragments that run and are in no round: they hold their nodes and train nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from slurm_hooks.model import Fragment, MalleableJob, Said
from slurm_hooks.model.ends import meets
from slurm_hooks.planning.ground import Ground


def idle_lines(ground: Ground, job: MalleableJob) -> tuple[str, ...]:
    """A line for each fragment that has run for failures.join_s and has joined no round. The
    workers of a pool never meet, and a job in which no agent ever spoke is kept to one fragment,
    which trains by itself."""
    if not meets(job):
        return ()
    patience_s = ground.settings.failures.join_s
    return tuple(
        f"fragment {fragment.id} has run on {', '.join(sorted(fragment.nodes))} for {ran_s:.0f} s "
        f"and trains nothing: {_CAUSES[fragment.said]}"
        for fragment, ran_s in _running(job, ground.now)
        if fragment.said in _CAUSES and ran_s >= patience_s
    )


_CAUSES = {
    Said.NOTHING: "its script has not started its training, or lacks Slurm's commands",
    Said.STARTED: "its training has started and is in no round; its log says more",
    Said.WAITING: "it waits for other fragments, and is in no round; its log says more",
}


def _running(job: MalleableJob, now: datetime) -> Iterator[tuple[Fragment, float]]:
    for fragment in job.active:
        if fragment.start is not None:
            yield fragment, (now - fragment.start).total_seconds()
