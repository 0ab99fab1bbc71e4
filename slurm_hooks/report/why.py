"""The meaning of each `Why`, in words for people.

A form is a sentence with fields of a `Detail`. `{count:node}` is a number with its noun,
`{count:is|are}` the word that fits the number, and `{count:?}` is empty. `{most:size}` is a number
with the noun of the job's unit, `{most:units}` only that noun. A part in brackets is left out if
the detail lacks a field of it. The first form that has all its fields is used. The words before
the first `; ` are the headline, which tables show.
"""

from __future__ import annotations

import enum
import re
import string
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any, Optional

from slurm_hooks.model import Reason, Resources, Said, Verdict, Why
from slurm_hooks.model.job import NODE
from slurm_hooks.model.moments import age_text, noun_of, plural, shown

Forms = Mapping[Why, tuple[str, ...]]
LONGEST = 80  # letters of a headline
_DONE = {
    Why.HOLE_OPEN: "hole open",
    Why.HOLE_CLOSES: "hole closes",
    Why.GRACE: "Slurm preempts it once its grace is over",
    Why.LANE_LIMIT: "has run as long as its partition allows",
    Why.NODE_LEAVES: "node leaves service",
    Why.PARTITION: "node is no longer in its partition",
    Why.BETTER_USE: "better use elsewhere",
    Why.BELOW_MIN: "below the job's minimum",
    Why.SIZE: "not a size that its job may have",
    Why.REMINDED: "was given notice",
    Why.NOTICE_OVER: "notice is over",
    Why.APART: "no fragment has joined a round",
    Why.UNFIT: "Slurm finds the node unfit for it, or could not start it there",
    Why.PREEMPTED: "requeued by Slurm",
    Why.SECURED: "comes back held if Slurm requeues it",
    Why.NOT_STARTED: "released but not started in time",
    Why.WRONG_SIZE: "Slurm gave it a wrong size",
    Why.LEASE_ENDED: "lease ended",
    Why.LEASE_LONG: "lease longer than allowed",
    Why.DIED: "fragment died",
    Why.LEFT: "left after notice",
    Why.FINISHED: "training finished",
    Why.CANCELLED: "cancelled by its user or an operator",
    Why.STOPPED: "stopped for good",
    Why.CORE: "joins the ordinary queue",
    Why.CORE_OVER: "the core's time is over",
    Why.TO_LANE: "belongs to the partition of malleable jobs",
    Why.NOTED: "noted for later ticks",
    Why.ON_HOLD: "held or released by an operator",
    Why.OFF: "switched off",
    Why.CEILING: "more nodes than the site allows",
    Why.LIMIT: "a job waits for a limit that counts it",
    Why.WISH: "its job wishes for fewer nodes",
    Why.NO_PARTS: "parts of nodes are not used",
    Why.NODE_IDLE: "a node is idle where others' small jobs would go",
    Why.NO_WORK: "found no work left",
    Why.SUMMED_UP: "summary of the job's life",
}
_OBSTACLE = {
    Why.PARTITION: "not in partition {}, or the partition is down",
    Why.FEATURES: "without the features {}",
    Why.GRES: "not enough {}",
    Why.MEMORY: "not enough memory",
    Why.CPUS: "not enough CPUs",
    Why.EXCLUDED: "the job excludes it (--exclude)",
    Why.DIED: "a fragment died there",
    Why.UNFIT: "Slurm finds it unfit for the job, or could not start it there",
    Why.SUSPECT: "fragments of jobs {} died there",
    Why.HOLE_SHORT: "its hole is too short",
    Why.KEPT_BACK: "left to small jobs (plan.headroom_nodes)",
    Why.REGISTERING: "slurmctld has just started, and nodes have not reported yet",
    Why.NO_GROWTH: "the site stops all growth now",
}
_STANDING = {
    Why.TAKEN: "{}",
    Why.PART_SMALL: "in use, and not enough {} left",
    Why.USABLE: "free and usable",
    Why.REGISTERING: "free",
    Why.NO_GROWTH: "free",
}
_REASON: Forms = {
    Why.FINISHED: (
        "all work is done; {count:worker} ended with exit code 0, and no worker runs",
        "{engine:?}a worker reported that all work is done",
        "its script ended with {exit_code}; no agent ever reported, so it counts as a job without "
        "torchrun",
        "training finished",
    ),
    Why.STOPPED: ("stopped: {said}",),
    Why.CANCELLED: ("cancelled by its user or an operator, or past its --deadline",),
    Why.CORE: (
        "{state:?}its core cannot start; no node of its partition fits the request of fragment "
        "{fragments} (BadConstraints)",
        "its core has {count:size} on {nodes}[ until {until}]",
        "its core waits in the ordinary queue ({said}); it is fragment {fragments}"
        "[, which Slurm expects to start at {at}]",
    ),
    Why.TO_LANE: (
        "on idle nodes its fragments need QOS {said}, which {user} may not use; an administrator "
        "can run sacctmgr modify user {user} set qos+={said}",
        "Slurm refuses to move its other fragments to the partition {said}; a tick tries again "
        "after {until}",
    ),
    Why.CORE_OVER: ("its core's time is over, so the job ends (core_end=finish)",),
    Why.CANCEL_UNCLEAR: ("some of its fragments were cancelled, others are still ending",),
    Why.DIED: ("fragment {fragments} died on {nodes} with exit code {exit_code}",),
    Why.DEPENDENCY: ("waits for its dependency",),
    Why.HELD: (
        "`scontrol {command}` holds {fragments}; to end that, run `malleable release {job}`",
        "an operator holds {fragments}; to end that, run `malleable release {job}`",
        "an operator holds it; to end that, run `malleable release {job}`",
        "an operator holds it",
    ),
    Why.NOT_STARTED: (
        "was released {count:time} and did not start ({said}); it is released again after {until}",
    ),
    Why.WRONG_SIZE: (
        "Slurm gave fragment {fragments} {given} on {nodes} instead of {asked}",
        "Slurm gave fragment {fragments} {count:node} ({nodes}) instead of 1 node",
    ),
    Why.SUSPENDED: (
        "{fragments} {fragments:is|are} suspended; once {fragments:its|their} nodes are "
        "idle, run `scontrol resume {fragments:argument}`",
    ),
    Why.UNKNOWN_STATE: ("state unknown, left alone: {fragments}",),
    Why.OFF: (
        "malleable jobs are switched off since {since:date}[ ({said})]; no job starts until "
        "`malleable on`, but jobs can be submitted",
    ),
    Why.REGISTERING: (
        "slurmctld has just started, and no job starts yet; {nodes}[ and {more} more] "
        "{nodes:has|have} not reported the jobs that run there",
    ),
    Why.NO_GROWTH: (
        "no job starts or grows while the site's file no-growth exists; since {since:date}, "
        "for {seconds:age}[ ({said})]",
    ),
    Why.LIMIT: (
        "its fragments make room for job {waiter} of {user}; that job {limit:?}waits for a limit "
        "that counts them too ({said}), and they come back after its start",
        "its fragments make room for job {waiter} of {user}; that job has not started yet "
        "({said}), and they come back after its start",
    ),
    Why.NO_PARTS: (
        "parts of nodes are not used here, as other jobs would wait for them; {said}. An "
        "administrator can mend that (see Shared nodes in the administrators' pages)",
    ),
    Why.GIVEN_BACK: (
        "{nodes} is given back: {cause}[ ({source}: {by})]",
        "the leases of its remaining scripts are not renewed; {because}",
    ),
    Why.HOLE_ENDS: ("{nodes} may be used until {until} ({source}: {by})",),
    Why.LEAVING: ("fragment {fragments} was asked to leave {nodes}",),
    Why.APART: (
        "no fragment has joined a round within {seconds} s, so it gets 1 fragment only; several "
        "would each train alone. Its script does not start torchrun, or its nodes lack Slurm's "
        "commands",
        "its nodes do not share its work directory, so it gets 1 fragment only; several would each "
        "train alone. Submit from a directory that all nodes share",
    ),
    Why.NOT_TRAINING: (
        "fragment {fragments} has run on {nodes} for {seconds:.0f} s without training; {standing}",
    ),
    Why.MAXIMUM: (
        "it has its maximum of {most:size}; {cancelled} of its fragments {cancelled:is|are} "
        "cancelled",
        "its maximum is {most:size}",
    ),
    Why.SIZE: ("may have {sizes_allowed:size} only (sizes=)",),
    Why.WISH: (
        "{unit:?}wishes for no {wish:units} now, and waits until it does",
        "wishes for at most {wish:size} now[{nodes_planned:?}, and has that]",
    ),
    Why.NO_WORK: (
        "{count:worker} found no work left, the last at {at}; until the job wishes for "
        "{count:units} (malleable wish N), only interrupted workers start again",
    ),
    Why.BELOW_MIN: (
        "can reach {nodes_usable:size} now, needs {nodes_needed}; it waits for its other fragments "
        "to come back",
        "needs {nodes_needed:size} at once, and {count} {count:is|are} usable now",
    ),
    Why.NO_FIT: (
        "no node of partition {partition} has {asked}; scancel the job, and submit it again with "
        "less for each node",
        "partition {partition} is not UP, or has no node; no fragment starts until an "
        "administrator opens it",
    ),
    Why.PROBED: ("begins on {nodes_planned:size}, to measure its speed there",),
    Why.OTHER_NODES: (
        "not started on {nodes}: {because}",
        "{count:other node}: {verdict}",
    ),
    Why.KEPT_BACK: (
        "{nodes}[ and {more} more] {nodes:has|have} {count:size} free, of which {kept} "
        "{kept:is|are} left to small jobs (plan.headroom_gpus)",
        "{nodes}[ and {more} more] {nodes:has|have} {count:size} free, which "
        "{count:is|are} left to small jobs (plan.headroom_gpus)",
    ),
    Why.RESTING: (
        "has failed {failures:time}, so only 1 worker starts; others follow after it has run for "
        "{seconds} s[, at {until}]",
        "changed less than {min_run:g} s ago (min_run=); for {seconds:.0f} s more it grows only if "
        "that pays",
        "shrank or failed less than {seconds:g} s ago, and does not grow before {until}",
    ),
    Why.CEILING: (
        "the malleable jobs of {user} share {said}"
        "[; this job needs {nodes_needed:size}, so it cannot start]",
        "the malleable jobs of account {account} share {said}"
        "[; this job needs {nodes_needed:size}, so it cannot start]",
        "all malleable jobs share {said}[; this job needs {nodes_needed:size}, so it cannot start]",
        "all malleable jobs may have {ceiling:node} (mode.max_nodes, max_share)"
        "[; this job needs {nodes_needed}, so it cannot start][; they get {nodes_given}]",
    ),
    Why.BETTER_USE: ("job {job} has waited for {seconds:.0f} s (plan.patience_s)",),
}
_NOTE: Forms = {
    Why.OBSERVED: ("mode.level = observe: ticks only print their actions",),
    Why.NOT_RENEWED: (
        "{count:fragment} in use, and no tick renews leases or puts fragments back. Before "
        "mode.level = observe use `malleable off`, and wait until they have left",
    ),
    Why.OFF: ("malleable jobs are switched off since {since:date}[ ({said})]",),
    Why.SUSPECT: (
        "{nodes}: fragments of jobs {jobs} died there; malleable jobs avoid it for now, please "
        "check the node",
    ),
    Why.MIN_JOB_AGE: (
        "MinJobAge={seconds:.0f} in slurm.conf: slurmctld forgets a fragment so many seconds after "
        "its end. Without a tick in that time, its job loses the fragment",
    ),
    Why.MAX_JOB_COUNT: (
        "slurmctld holds {count} of at most {most} job records (MaxJobCount), and keeps ended jobs "
        "for MinJobAge={seconds:.0f} s. Soon no user can submit",
    ),
    Why.UNREAD: ("{said}",),
    Why.OBJECTIVE: ("{said}",),
    Why.NOT_DONE: ("not done: {action} {fragments}: {because}",),
    Why.BELOW_MIN: (
        "without {nodes} its job cannot reach its minimum",
        "its job has become smaller, and cannot reach its minimum",
    ),
    Why.TAKEN: ("{nodes} is no longer free",),
    Why.NO_PARTS: ("parts of nodes are no longer used: {said}",),
    Why.NODE_IDLE: ("{nodes} is idle, where others' small jobs would go instead",),
    Why.HOLE_SHORT: ("{nodes} is wanted by {by} sooner",),
    Why.GONE: ("{nodes} is gone", "{fragments:?}the fragment is gone", "it is gone"),
    Why.CANCELLED: ("it has been cancelled",),
    Why.NOT_FREE_TO_START: ("it is now held or gone",),
    Why.NOT_RUNNING: ("it no longer runs",),
    Why.REFUSED: ("its mark was refused",),
    Why.CHANGED: ("it is now {state}",),
}
_OVER = {
    **_DONE,
    Why.NO_WORK: "no work left",
    Why.SCRIPT_ENDED: "script ended with 0",
    Why.NEVER_RAN: "cancelled before it ran",
    Why.UNKNOWN: "no tick saw its end",
    Why.ENDED: "ended",
}
_WORDS: dict[enum.Enum, str] = {
    Said.NOTHING: "its script has not started its training, or lacks Slurm's commands",
    Said.STARTED: "its training has started but joined no round: see its log",
    Said.WAITING: "it waits for other fragments and has joined no round: see its log",
}


def action_text(cause: str) -> str:
    """The cause of an action on a fragment, from the value of a `Why`. Other words are kept."""
    return {why.value: text for why, text in _DONE.items()}.get(cause, cause)


def obstacle_text(verdict: Verdict) -> str:
    """The reason why a job cannot use a free node."""
    text = _OBSTACLE[verdict.why].format(verdict.detail)
    is_claimed = verdict.why is Why.HOLE_SHORT and verdict.detail
    return f"{text} ({verdict.detail})" if is_claimed else text


def reason_text(reason: Reason, now: Optional[datetime] = None, unit: str = NODE) -> str:
    """A reason for the size of a job that counts `unit`. Moments have their date, unless that is
    the date of `now`."""
    return _sentence(reason, _REASON, now, unit)


def headline(text: str) -> str:
    """The first part of a reason, for a table. `malleable explain` prints the rest."""
    head = text.partition("; ")[0]
    return head if len(head) <= LONGEST else f"{head[: LONGEST - 1]}…"


def note_text(note: Reason, now: Optional[datetime] = None) -> str:
    """A note for every reader of a plan, or the reason why an action of it no longer holds."""
    return _sentence(note, {**_REASON, **_NOTE}, now)


def over_text(over: Optional[Why], stop: str = "") -> str:
    """The way in which a job ended. `stop` is the word in its marks."""
    if over is None:
        return "not ended"
    return stop if over is Why.STOPPED and stop else _OVER[over]


def _verdict_text(verdict: Verdict) -> str:
    standing = _STANDING.get(verdict.why, "").format(verdict.detail)
    return standing or f"free, but {obstacle_text(verdict)}"


def _sentence(reason: Reason, forms: Forms, now: Optional[datetime], unit: str = NODE) -> str:
    """Fill the first form that fits the detail. Without such a form return the identifier."""
    detail = reason.detail
    texts = (_without_gaps(form, detail) for form in forms.get(reason.why, ()))
    form = next((text for text in texts if _has_all(text, detail)), reason.why.value)
    return _Words(now, unit).format(form, **detail)


def _without_gaps(form: str, detail: Mapping[str, Any]) -> str:
    """The form with only the bracketed parts that the detail can fill."""
    return re.sub(r"\[(.*?)\]", lambda part: part[1] if _has_all(part[1], detail) else "", form)


def _has_all(form: str, detail: Mapping[str, Any]) -> bool:
    return _fields(form) <= detail.keys()


@cache
def _fields(form: str) -> frozenset[str]:
    return frozenset(name for _, name, _, _ in string.Formatter().parse(form) if name)


class _Words(string.Formatter):
    """Fills a form."""

    def __init__(self, now: Optional[datetime], unit: str) -> None:
        self._now, self._noun = now, noun_of(unit)

    def format_field(self, value: Any, format_spec: str) -> str:
        """A field as people read it."""
        if format_spec == "?":
            return ""
        if format_spec == "units":
            return f"{self._noun}s"
        if format_spec == "argument":
            return ",".join(map(str, value))
        if format_spec == "age":
            return age_text(value)
        if format_spec == "size":
            format_spec = self._noun
        if isinstance(value, datetime):
            return shown(value, None if format_spec == "date" else self._now)
        if isinstance(value, Reason):
            return note_text(value, self._now)
        if isinstance(value, Verdict):
            return _verdict_text(value)
        if isinstance(value, Resources):
            return _listed(_counts(value), "and")
        if isinstance(value, enum.Enum):
            return _WORDS.get(value) or action_text(value.value)
        if "|" in format_spec:
            one, more = format_spec.split("|")
            return one if (len(value) if isinstance(value, tuple) else value) == 1 else more
        if isinstance(value, tuple):
            return _listed([str(item) for item in value], format_spec)
        is_noun = re.fullmatch("[A-Za-z ]{2,}", format_spec)
        return plural(value, format_spec) if is_noun else format(value, format_spec)


def _counts(resources: Resources) -> list[str]:
    """`2 a100 GPUs`, `8 CPUs`, `61440 MiB`."""
    gres = [(name.split(":"), count) for name, count in resources.gpus_by_type]
    texts = [plural(n, " ".join([*kind, "GPU"])) for (_, *kind), n in gres]
    texts += [plural(resources.cpus, "CPU")] if resources.cpus else []
    return [*texts, *([f"{resources.memory_mib} MiB"] if resources.memory_mib else [])]


def _listed(items: list[str], noun: str) -> str:
    """`a, b`, or with a noun `1 and 2 nodes`, or with `and` no noun."""
    if not noun or not items:
        return ", ".join(items)
    *others, last = items
    text = f"{', '.join(others)} and {last}" if others else last
    return text if noun == "and" else f"{text} {noun if text == '1' else noun + 's'}"
