"""Derives the events between two consecutive snapshots.

Slurm gives the start of each run to the second, and mostly its end. So usage is exact even if ticks
were missed. The reasons of idle nodes are known for a bounded time after each tick.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Optional

from slurm_hooks.history.harvest.delays import Stay, settle
from slurm_hooks.history.harvest.endings import (
    OCCUPIES,
    end_of,
    in_holes,
    kind_of,
    part_of,
    run_of,
    runs_on,
)
from slurm_hooks.history.harvest.events import (
    LONGEST,
    core_nodes,
    done,
    idle_seconds,
    standing_of,
    unused_seconds,
)
from slurm_hooks.history.harvest.values import (
    Cost,
    Ending,
    Event,
    Forgotten,
    JobFacts,
    LaneWait,
    Promise,
    Record,
    Seen,
    SeenRun,
)
from slurm_hooks.model import (
    ENDED_STATES,
    Fragment,
    FragmentId,
    MalleableJob,
    NodeState,
    Plan,
    Snapshot,
    Verb,
    Why,
)
from slurm_hooks.model.ends import is_finished, trained_nothing
from slurm_hooks.model.lane import Lane
from slurm_hooks.model.unused import unused_of
from slurm_hooks.settings.values import Lease, Settings

LEAST_KNOWN_S = 120.0
KNOWN_TICKS = 3  # intervals for which the last tick's reasons hold if no other tick came
_CLOCKS = timedelta(seconds=1)  # Slurm rounds times down


def record_of(
    last: Optional[Seen], seen: Snapshot, plan: Plan, cost: Cost, settings: Settings
) -> Record:
    """Return the record of a tick. Without a `last` tick it has only the present state.

    Only nodes of the site's partitions count. A run that is in no round after `failures.join_s`
    counts as vain."""
    before = last or Seen(seen.now)
    since = min(before.at, seen.now)
    span_s = (seen.now - since).total_seconds()
    known_s = min(span_s, max(LEAST_KNOWN_S, KNOWN_TICKS * settings.tick.every_s))
    partitions = frozenset(settings.site.partitions)
    fragments = {f.id: f for f in in_holes(seen)}
    endings = tuple(
        _named(_endings(before, since, fragments, seen), seen, settings.failures.join_s)
    )
    begun = tuple(_begun(before, fragments, endings, seen))
    stays = (*_lasting(before, since, endings, seen.now), *begun)
    promises, delays, starts = settle(before.promises, seen, since, [stay for _, stay in stays])
    used: dict[int, float] = defaultdict(float)
    for fragment, stay in stays:
        used[fragment.job_id] += _node_s(stay, since)
    new_s = sum(_node_s(stay, since) for _, stay in begun)
    vague = {e.fragment for e in endings if not e.is_exact}
    uncertain = (_node_s(s, since) for i, s in stays if i in vague and s.end < seen.now)
    unused = unused_of(seen, partitions, plan.actions)
    sums = {
        "ticks": 1.0,
        "tick_seconds": cost.seconds,
        LONGEST: cost.seconds,
        "commands": cost.commands,
        "rpcs": cost.rpcs,
        "refused_changes": cost.refused,
        "span_seconds": span_s,
        "unseen_seconds": span_s - known_s,
        "uncertain_node_seconds": sum(uncertain),
        "core_node_seconds": core_nodes(seen) * known_s,
        "promised_starts": starts,
    }
    return Record(
        at=seen.now,
        jobs=tuple(_all_facts(seen, plan, used)),
        endings=endings,
        delays=delays,
        forgotten=tuple(_forgotten(before, seen, used, span_s > known_s)),
        since=(
            *(Event(name, value) for name, value in sums.items()),
            *idle_seconds(before, plan, known_s, new_s),
            *unused_seconds(before, unused, known_s),
            *done(plan),
        ),
        standing=tuple(standing_of(before, seen, plan, cost, unused, partitions)),
        seen=replace(
            _seen_of(seen, plan, promises, before),
            unused=tuple(unused.items()),
            lanes=tuple(_lanes(seen, settings.lease)),
        ),
    )


def _forgotten(
    before: Seen, seen: Snapshot, used: Mapping[int, float], is_late: bool
) -> Iterator[Forgotten]:
    """Yield the jobs that Slurm has forgotten. It drops a job cancelled before its start at once,
    and lists others for a while. So if the tick `is_late`, the end of a job is unknown."""
    ran = {run.fragment.job_id for run in before.runs}
    ran |= {job_id for job_id, restarts in before.waiting.items() if any(restarts.values())}
    gone = (ran | before.waiting.keys()) - {job.job_id for job in seen.jobs}
    for job_id in sorted(gone):
        how = Why.UNKNOWN if is_late or job_id in ran else Why.NEVER_RAN
        yield Forgotten(job_id, used.get(job_id, 0.0), how)


def _seen_of(seen: Snapshot, plan: Plan, promises: tuple[Promise, ...], before: Seen) -> Seen:
    """Return the memory of this tick and its plan for the next tick."""
    leaving = (Verb.NOTICE, Verb.PUT_BACK)
    asked = {i.fragment: i.cause.value for i in plan.actions if i.verb in leaving or i.is_ended}
    asked.update({r.fragment: r.leaves for r in before.runs if r.leaves})
    old = {run.fragment: run for run in before.runs}
    nodes = {node.name: node for node in seen.nodes}
    runs: list[SeenRun] = []
    waiting: dict[int, dict[int, int]] = {job.job_id: {} for job in seen.jobs}
    for fragment in in_holes(seen):
        number = run_of(fragment)
        if fragment.state not in OCCUPIES or not fragment.nodes:
            waiting[fragment.id.job_id][fragment.id.index] = number
            continue
        last = old.get(fragment.id)
        is_same = last is None or last.restarts == number
        leaves = asked.get(fragment.id, "") if is_same else ""
        leaves = leaves or (Why.REMINDED.value if fragment.is_leaving else "")
        start = (last.start if last and is_same else None) or fragment.start
        where = (fragment.nodes, start, fragment.end, leaves, part_of(fragment, nodes))
        runs.append(SeenRun(fragment.id, number, *where))
    idle = tuple((i.reason, i.nodes) for i in plan.idle)
    return Seen(seen.now, tuple(runs), waiting, idle, promises)


def _lanes(seen: Snapshot, lease: Lease) -> Iterator[LaneWait]:
    for terms in seen.terms:
        if not terms.is_at_once:
            yield LaneWait(terms, seen.slurm.kill_wait, Lane(terms, lease).longest_lease)


def _endings(
    before: Seen, since: datetime, fragments: Mapping[FragmentId, Fragment], seen: Snapshot
) -> Iterator[Ending]:
    """Yield the ends of runs that the last tick saw, and of runs that began and ended since."""
    down = frozenset(node.name for node in seen.nodes if node.state is NodeState.DOWN)
    for run in before.runs:
        fragment = fragments.get(run.fragment)
        if runs_on(run, fragment):
            continue
        kind, cause = kind_of(run, fragment, down)
        at, is_exact = end_of(run, fragment, since, seen)
        ran = at - run.start if run.start else timedelta(0)
        ran_s = max(ran.total_seconds(), 0.0)
        used = len(run.nodes) * run.part
        taken, taker = _taken(run, at, seen) if _is_sudden(kind, cause) else (frozenset(), "")
        yield Ending(run.fragment, at, kind, cause, used, ran_s, is_exact, taken, taker)
    for fragment in fragments.values():
        waited = before.waiting.get(fragment.id.job_id, {}).get(fragment.id.index)
        if waited is not None and run_of(fragment) > waited:
            yield _unseen(SeenRun(fragment.id, waited, start=since), fragment, since, seen)


def _is_sudden(kind: Why, cause: str) -> bool:
    """True if the end may be a preemption. In a grace time a fragment leaves by itself."""
    return kind is Why.PREEMPTED or (kind is Why.LEFT and not cause)


def _taken(run: SeenRun, at: datetime, seen: Snapshot) -> tuple[frozenset[str], str]:
    """Return the run's nodes on which another job began after the run's end, and its partition.

    Slurm does not name the job for which it preempts."""
    for other in sorted(seen.started, key=lambda other: (other.start, other.job_id)):
        nodes = other.nodes & run.nodes
        if nodes and other.start >= at - _CLOCKS:
            return nodes, other.partition
    return frozenset(), ""


def _named(endings: Iterable[Ending], seen: Snapshot, join_s: float) -> Iterator[Ending]:
    """Yield the endings. A run without training gets that as its cause."""
    jobs = {job.job_id: job for job in seen.jobs}
    for ending in endings:
        job = jobs.get(ending.fragment.job_id)
        is_vain = job is not None and any(
            trained_nothing(fragment, job, ending.ran_s, join_s)
            for fragment in job.fragments
            if fragment.id == ending.fragment and fragment.state not in OCCUPIES
        )
        yield replace(ending, cause=Why.NOT_TRAINING.value) if is_vain else ending


def _unseen(run: SeenRun, fragment: Fragment, since: datetime, seen: Snapshot) -> Ending:
    """Return the end of a run that began and was requeued between two ticks, of unknown length."""
    kind, cause = kind_of(run, fragment, frozenset())
    if fragment.state in OCCUPIES:
        kind, cause = Why.PREEMPTED, ""
    at, _ = end_of(run, fragment, since, seen)
    return Ending(run.fragment, at, kind, cause, 0, 0.0, is_exact=False)


def _lasting(
    before: Seen, since: datetime, endings: Iterable[Ending], now: datetime
) -> Iterator[tuple[FragmentId, Stay]]:
    """Yield the nodes on which the last tick saw each fragment, until the end of its run or now."""
    ended = {e.fragment: e.at for e in endings if e.nodes}
    for run in before.runs:
        end = ended.get(run.fragment, now)
        yield run.fragment, Stay(run.nodes, run.start or since, end, run.part)


def _begun(
    before: Seen,
    fragments: Mapping[FragmentId, Fragment],
    endings: Iterable[Ending],
    seen: Snapshot,
) -> Iterator[tuple[FragmentId, Stay]]:
    """Yield runs that the last tick had not seen, even if they began in the same second."""
    ended = {e.fragment for e in endings if e.nodes}
    old = {run.fragment for run in before.runs} - ended
    nodes = {node.name: node for node in seen.nodes}
    for fragment in fragments.values():
        is_new = fragment.state in OCCUPIES and fragment.id not in old
        if is_new and fragment.nodes and fragment.start is not None:
            part = part_of(fragment, nodes)
            yield fragment.id, Stay(fragment.nodes, fragment.start, seen.now, part)


def _node_s(stay: Stay, since: datetime) -> float:
    """Return the node-seconds of a stay since the last tick."""
    return (
        stay.part * len(stay.nodes) * max((stay.end - max(stay.start, since)).total_seconds(), 0.0)
    )


def _all_facts(seen: Snapshot, plan: Plan, used: Mapping[int, float]) -> Iterator[JobFacts]:
    """Yield the facts of each job."""
    grown = Counter(i.fragment.job_id for i in plan.actions if i.verb is Verb.GROW)
    whys = {each.job_id: {reason.why for reason in each.reasons} for each in plan.jobs}
    for job in seen.jobs:
        request = job.request
        yield JobFacts(
            job_id=job.job_id,
            user=job.user,
            min_nodes=request.min_nodes,
            max_nodes=request.max_nodes,
            nodes=sum(f.size for f in job.fragments if f.state in OCCUPIES and not f.is_core),
            node_s=used.get(job.job_id, 0.0),
            releases=grown[job.job_id],
            over=_over(job, whys.get(job.job_id, set())),
            stop=_stop(job),
            unit=request.size_unit,
        )


def _stop(job: MalleableJob) -> str:
    return next((f.mark.stopped for f in job.fragments if f.mark.stopped), "")


def _over(job: MalleableJob, whys: Set[Why]) -> Optional[Why]:
    """Return why a job has ended, by its plan, or None if it continues."""
    if _stop(job):
        return Why.STOPPED
    if Why.FINISHED in whys or is_finished(job):
        return _finished(job)
    if Why.CANCELLED in whys:
        return Why.CANCELLED
    return Why.ENDED if all(f.state in ENDED_STATES for f in job.fragments) else None


def _finished(job: MalleableJob) -> Why:
    if job.way.zero_is_idle:
        return Why.NO_WORK
    return Why.FINISHED if job.has_agent else Why.SCRIPT_ENDED
