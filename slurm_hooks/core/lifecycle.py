"""What each fragment's state calls for, job by job, before any allocation.

Ended fragments go back to held, stray ones are held, finished and failing jobs are closed. An
unknown state calls for nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from slurm_hooks.model import (
    ENDED_STATES,
    Action,
    Cause,
    Finish,
    Fragment,
    FragmentState,
    Hold,
    MalleableJob,
    Mark,
    Notice,
    Remark,
    Shrink,
)
from slurm_hooks.settings import Settings

_EXIT_SLACK = timedelta(seconds=10)  # from the agent's decision to leave to the script's exit
# Slurm makes a requeued job wait for as long as credentials live: a node refuses one that is not
# newer than the end of the job's last run there, in whole seconds ("Job credential revoked",
# 22.05). We shorten that wait, but not to nothing.
_REQUEUE_WAIT = timedelta(seconds=120)
_REST = timedelta(seconds=3)
_OPEN_STATES = frozenset({FragmentState.HELD, FragmentState.PENDING, FragmentState.RUNNING})
_BACK_STATES = ENDED_STATES - {FragmentState.CANCELLED}  # what can be requeued into held


@dataclass(frozen=True)
class Upkeep:
    """What one job needs, and what it can be given.

    `arriving` fragments were released and have not started yet; `growable` ones are held and wait
    for a hole. A job that `is_over` gets nothing more.
    """

    actions: tuple[Action, ...] = ()
    arriving: tuple[Fragment, ...] = ()
    growable: tuple[Fragment, ...] = ()
    is_over: bool = False
    reasons: tuple[str, ...] = ()


def upkeep(job: MalleableJob, now: datetime, settings: Settings) -> Upkeep:
    """What to do about a job's fragments because of the state they are in."""
    stopped = next((f.mark.stopped for f in job.fragments if f.mark.stopped), "")
    if stopped:
        return _close(job, Cause.STOPPED, f"stopped: {stopped}")
    if any(is_finish(f, settings) for f in job.fragments):
        return _close(job, Cause.FINISHED, "training finished")
    if is_crippled(job):
        return _stop(job, "too-few-fragments-left")
    died = [f for f in job.fragments if is_quick_death(f, settings)]
    lives = has_lived(job, now, settings)
    if died and not lives and job.failures + 1 >= settings.failures.limit:
        return _stop(job, _blame(died[0], settings))
    actions: list[Action] = _forgive(job) if lives else []
    for fragment in job.fragments:
        actions += _steps(fragment, job, now, settings)
    held = {a.fragment for a in actions if isinstance(a, Hold)}
    return Upkeep(
        actions=tuple(actions),
        arriving=tuple(
            f for f in job.fragments if f.state is FragmentState.PENDING and f.id not in held
        ),
        growable=tuple(f for f in job.fragments if is_rested(f, now)),
        reasons=_reasons(job, died),
    )


def is_rested(fragment: Fragment, now: datetime) -> bool:
    """True for a held fragment whose last run did not end just now."""
    if fragment.state is not FragmentState.HELD:
        return False
    left = fragment.mark.noticed
    if left is not None and now - left < _REST:
        return False
    return fragment.eligible is None or fragment.eligible - now <= _REQUEUE_WAIT - _REST


def is_finish(fragment: Fragment, settings: Settings) -> bool:
    """True if this fragment's exit says that training is over.

    Exit code 0 counts unless the fragment had been given notice before, or its lease was about to
    end: agents leave by themselves then. A doubtful exit counts as a leave: at worst a finished
    script is started once more and finds its work done.
    """
    if fragment.state is not FragmentState.DONE or fragment.end is None or fragment.start is None:
        return False
    noticed = fragment.mark.noticed
    if noticed is not None and noticed <= fragment.end:
        return False
    if fragment.limit is None:
        return True
    window = timedelta(seconds=settings.lease.notice_s) + _EXIT_SLACK
    return fragment.start + fragment.limit - fragment.end > window


def is_quick_death(fragment: Fragment, settings: Settings) -> bool:
    """True if a fragment that nobody asked to leave failed soon after its start."""
    if fragment.state is not FragmentState.FAILED or fragment.is_leaving:
        return False
    if fragment.start is None or fragment.end is None:
        return False
    return fragment.end - fragment.start < timedelta(seconds=settings.failures.at_once_s)


def is_crippled(job: MalleableJob) -> bool:
    """True if the user cancelled so many fragments that the rest can never be enough."""
    cancelled = sum(f.state is FragmentState.CANCELLED for f in job.fragments)
    if cancelled == len(job.fragments):
        return False
    request = job.request
    return cancelled > 0 and (request.fragments - cancelled) * request.unit < request.min_nodes


def has_lived(job: MalleableJob, now: datetime, settings: Settings) -> bool:
    """True if a fragment trains for longer than a script that fails at once would last."""
    at_once = timedelta(seconds=settings.failures.at_once_s)
    return any(f.start is not None and now - f.start > at_once for f in job.active)


def _forgive(job: MalleableJob) -> list[Action]:
    """Forget the failures of a job that trains again."""
    return [
        Remark(f.id, replace(f.mark, failures=0), Cause.RECOVERED)
        for f in job.fragments
        if f.mark.failures and (f.state is FragmentState.HELD or f.is_active)
    ]


def _close(job: MalleableJob, cause: Cause, reason: str) -> Upkeep:
    """Cancel what waits. Running fragments of a finished job have until their leases end."""
    is_failed = cause is Cause.STOPPED
    closed = _OPEN_STATES if is_failed else _OPEN_STATES - {FragmentState.RUNNING}
    open_ones = tuple(f.id for f in job.fragments if f.state in closed)
    actions = (Finish(open_ones, cause),) if open_ones else ()
    return Upkeep(actions=actions, is_over=True, reasons=(reason,))


def _blame(died: Fragment, settings: Settings) -> str:
    """The reason of a stop, in the words that a mark may hold."""
    where = "+".join(sorted(died.nodes)) or "unknown"
    code = re.sub(r"[^A-Za-z0-9:]", "_", died.exit_code) or "unknown"
    return f"failed-{settings.failures.limit}-times:exit-{code}-on-{where}"


def _stop(job: MalleableJob, why: str) -> Upkeep:
    """Write the reason on every fragment, then cancel them."""
    told: list[Action] = []
    for fragment in job.fragments:
        mark = replace(fragment.mark, stopped=why)
        if fragment.state in _OPEN_STATES:
            told.append(Remark(fragment.id, mark, Cause.STOPPED))
        elif fragment.state in _BACK_STATES:
            told.append(Shrink(fragment.id, Cause.STOPPED, mark))
    marked = tuple(a.fragment for a in told if isinstance(a, (Remark, Shrink)))
    closing = Finish(marked, Cause.STOPPED)
    return Upkeep(actions=(*told, closing), is_over=True, reasons=(f"stopped: {why}",))


def _steps(
    fragment: Fragment, job: MalleableJob, now: datetime, settings: Settings
) -> tuple[Action, ...]:
    state = fragment.state
    if state is FragmentState.PENDING:
        return _pending(fragment, now, settings)
    if state is FragmentState.RUNNING:
        return _running(fragment, now, settings)
    if state is FragmentState.FAILED:
        cause = Cause.LEFT if fragment.is_leaving else Cause.DIED
        return (Shrink(fragment.id, cause, _after_death(fragment, job, now, settings)),)
    if state in _BACK_STATES:
        return (Shrink(fragment.id, Cause.LEFT if fragment.is_leaving else Cause.LEASE_ENDED),)
    return ()


def _pending(fragment: Fragment, now: datetime, settings: Settings) -> tuple[Action, ...]:
    """Hold what Slurm requeued (it waits for a later BeginTime) and what did not start in time.

    A node that Slurm says can never run this fragment (memory, features, generic resources that
    the job asked for) is avoided from then on.
    """
    mark = fragment.mark
    if fragment.reason == "BadConstraints":
        avoid = replace(mark, avoid=mark.avoid | fragment.nodes)
        return (Remark(fragment.id, avoid, Cause.UNFIT), Hold(fragment.id, Cause.UNFIT))
    if fragment.eligible is not None and fragment.eligible > now:
        return (Hold(fragment.id, Cause.PREEMPTED),)
    patience = timedelta(seconds=settings.lease.start_timeout_s)
    if mark.released is None or now - mark.released > patience:
        return (Hold(fragment.id, Cause.NOT_STARTED),)
    return ()


def _running(fragment: Fragment, now: datetime, settings: Settings) -> tuple[Action, ...]:
    """After a notice: say it again until it is over, then make the fragment go."""
    mark = fragment.mark
    if mark.noticed is not None:
        if now - mark.noticed >= timedelta(seconds=settings.lease.notice_s):
            return (Shrink(fragment.id, Cause.NOTICE_OVER),)
        return (Notice(fragment.id, mark, Cause.REMINDED),)
    return ()


def _after_death(fragment: Fragment, job: MalleableJob, now: datetime, settings: Settings) -> Mark:
    """The mark of a dead fragment: it snoozes, and a death at once is counted.

    One tick counts one failure, however many fragments of a gang died together. Where the rest of
    the job trains on, the node is blamed, else the script.
    """
    mark = replace(fragment.mark, noticed=fragment.mark.noticed or now)
    if not is_quick_death(fragment, settings):
        return mark
    if has_lived(job, now, settings):
        return replace(mark, avoid=mark.avoid | fragment.nodes)
    return replace(mark, failures=job.failures + 1)


def _reasons(job: MalleableJob, died: list[Fragment]) -> tuple[str, ...]:
    reasons = [
        f"fragment {f.id} died on {', '.join(sorted(f.nodes))} with exit code {f.exit_code}"
        for f in died
    ]
    if job.avoid:
        names = ", ".join(sorted(job.avoid))
        reasons.append(f"avoids {names}: a fragment died there at once, or they do not fit it")
    unknown = [str(f.id) for f in job.fragments if f.state is FragmentState.UNKNOWN]
    if unknown:
        reasons.append(f"state unknown, left alone: {', '.join(unknown)}")
    return tuple(reasons)
