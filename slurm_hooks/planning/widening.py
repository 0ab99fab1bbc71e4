"""Replaces a fragment when its part of a node could be larger.

A gang has a single fragment on a node, so a larger fragment needs the first to leave. It leaves
only if a plan for the cluster without it gives its job more than it has, and takes nothing from
others. So the sizes of all jobs together rise with each replacement, and a calm cluster comes to
rest. Such a plan takes as long as any other, so in each tick only one gang has its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Optional

from slurm_hooks.model import (
    Curve,
    Fragment,
    FragmentState,
    Intent,
    NodeState,
    Plan,
    Said,
    Snapshot,
    Why,
)
from slurm_hooks.model.resources import NO_RESOURCES
from slurm_hooks.planning.placement import Change
from slurm_hooks.planning.situation import Situation
from slurm_hooks.planning.survey import Survey

_TURN_S = 97  # a prime, so that ticks at any interval come to each gang
_AWAY = timedelta(minutes=1)  # after which a fragment has rested


def with_wider(
    survey: Survey,
    situations: Sequence[Situation],
    changes: list[Change],
    curves: Mapping[int, Curve],
    rehearse: Callable[[Snapshot], Plan],
) -> list[Change]:
    """Return the changes of all jobs, and let a fragment leave for a larger one if that is a gain.

    Of the gangs that want to replace a fragment, the turn goes from one to the next.
    """
    of_job = {s.job.job_id: (s, made) for s, made in zip(situations, changes)}
    wanted = (_widened(survey, s, made, curves.get(at)) for at, (s, made) in of_job.items())
    notices = [notice for notice in wanted if notice]
    if not notices:
        return changes
    leaves = notices[int(survey.ground.now.timestamp()) // _TURN_S % len(notices)]
    sizes = {job_id: made.size_of(s) for job_id, (s, made) in of_job.items()}
    job_id = leaves.fragment.job_id
    if not _is_gain(job_id, sizes, rehearse(_once_left(survey.ground.seen, leaves))):
        return changes
    change = Change((leaves,), frozenset({leaves.fragment}))
    return [change if at == job_id else made for at, made in zip(of_job, changes)]


def _once_left(seen: Snapshot, leaves: Intent) -> Snapshot:
    """The snapshot once the fragment has left and rested, if nothing else changes."""
    assert leaves.mark is not None, "a notice has a mark"
    mark = replace(leaves.mark, noticed=seen.now - _AWAY)
    jobs, nodes = [], {node.name: node for node in seen.nodes}
    for job in seen.jobs:
        if job.job_id != leaves.fragment.job_id:
            jobs.append(job)
            continue
        fragment = next(f for f in job.fragments if f.id == leaves.fragment)
        (name,) = fragment.nodes
        used = nodes[name].used - fragment.asks
        state = NodeState.FREE if used.fits(NO_RESOURCES) else NodeState.SHARED
        nodes[name] = replace(nodes[name], used=used, state=state)
        rests = replace(
            fragment,
            state=FragmentState.HELD,
            mark=mark,
            nodes=frozenset(),
            start=None,
            end=None,
            eligible=None,
            priority=0,
            restarts=fragment.restarts + 1,
            said=Said.LEAVING,
        )
        fragments = (rests if f.id == rests.id else f for f in job.fragments)
        jobs.append(replace(job, fragments=tuple(fragments)))
    return replace(seen, jobs=tuple(jobs), nodes=tuple(nodes.values()))


def _is_gain(job_id: int, sizes: Mapping[int, int], then: Plan) -> bool:
    """Tell whether this job is larger in the plan `then` than in the plan that leads to these
    `sizes`, and no other job is smaller."""
    gained = {job.job_id: job.nodes_planned - sizes[job.job_id] for job in then.jobs}
    return gained[job_id] > 0 and min(gained.values()) >= 0


def _widened(
    survey: Survey, situation: Situation, made: Change, curve: Optional[Curve]
) -> Optional[Intent]:
    """Return the notice for the fragment that would come back as the largest, if that pays.

    A gang that changes in this tick is left alone, since its new nodes may be enough. It has to be
    able to go on without the fragment. A fragment that could not come back does not leave.
    """
    share, job = situation.share, situation.job
    is_calm = situation.is_placed and not (made.actions or situation.snoozes or situation.barred)
    is_calm = is_calm and not survey.mandate.waits
    if share is None or curve is None or not (is_calm and job.way.works_as_one):
        return None
    larger = ((_more(survey, situation, f), f) for f in _trains(situation))
    more, fragment = max(larger, key=lambda pair: (pair[0], -pair[1].id.index), default=(0, None))
    if fragment is None or not more or not _pays(survey, situation, (fragment, more), curve):
        return None
    return situation.notice(fragment, Why.WIDER, survey.ground.now)


def _trains(situation: Situation) -> Iterator[Fragment]:
    for fragment in situation.staying:
        left = situation.size - fragment.size
        if fragment.state is FragmentState.RUNNING and 0 < left == situation.settled(left):
            yield fragment


def _more(survey: Survey, situation: Situation, fragment: Fragment) -> int:
    """The slots by which the fragment would come back larger."""
    assert situation.share is not None
    (name,) = fragment.nodes if len(fragment.nodes) == 1 else ("",)
    is_shared = name in survey.nodes and survey.places.is_shared(name)
    if name not in survey.nodes or (is_shared and survey.places.idle_beside(name)):
        return 0
    unit, node, slot = situation.job.request.unit, survey.nodes[name], situation.share.slot
    fit = slot.fit(node, survey.places.left(name) + fragment.asks)
    if slot.gres and is_shared:  # else it comes back with its old size
        fit -= survey.ground.settings.plan.headroom_gpus
    most = min(fit, situation.most - situation.size + fragment.size) // unit * unit
    left = situation.size - fragment.size
    return max(0, situation.settled(left + most) - situation.size)


def _pays(survey: Survey, situation: Situation, change: tuple[Fragment, int], curve: Curve) -> bool:
    """Tell whether the work gained within the horizon exceeds the cost.

    The cost is two pauses, and the slots that are away until the next tick.
    """
    (fragment, more), ground = change, survey.ground
    plan, size = ground.settings.plan, situation.size
    (name,) = fragment.nodes
    latest = survey.ends.latest[name]
    open_s = ground.horizon.total_seconds()
    if latest is not None:
        open_s = min(open_s, (latest - ground.now).total_seconds())
    pauses_s = plan.grow_s + plan.shrink_s + 2 * situation.redone_s + situation.rest_s
    away_s = 2 * ground.until_next.total_seconds()
    gained = (curve(size + more) - curve(size)) * (open_s - away_s)
    lost = curve(size) * pauses_s + (curve(size) - curve(size - fragment.size)) * away_s
    return gained > lost
