"""What a `Why` means, in words for people.

A form is a sentence with fields of a `Detail`. `{count:node}` is a number with its noun,
`{count:is|are}` a word that goes with the number, and `{count:?}` is empty. `{most:size}` is a
number with the noun of what the job counts, `{most:units}` that noun alone. A part in brackets is
left out where the detail lacks one of its fields. The first form that has all its fields is used.
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
from slurm_hooks.model.moments import age_text, shown
from slurm_hooks.model.plural import noun_of, plural

Forms = Mapping[Why, tuple[str, ...]]
_DONE = {
    Why.HOLE_OPEN: "hole open",
    Why.HOLE_CLOSES: "hole closes",
    Why.GRACE: "Slurm preempts it once its grace is over",
    Why.LANE_LIMIT: "has run as long as its partition allows",
    Why.NODE_LEAVES: "node leaves service",
    Why.BETTER_USE: "better use elsewhere",
    Why.BELOW_MIN: "below the job's minimum",
    Why.SIZE: "not a size that its job may have",
    Why.REMINDED: "was given notice",
    Why.NOTICE_OVER: "notice is over",
    Why.APART: "no fragment has joined a round",
    Why.UNFIT: "Slurm finds the node unfit for it",
    Why.PREEMPTED: "requeued by Slurm",
    Why.SECURED: "comes back held if Slurm requeues it",
    Why.NOT_STARTED: "released but not started in time",
    Why.WRONG_SIZE: "Slurm gave it another size than was asked for",
    Why.LEASE_ENDED: "lease ended",
    Why.LEASE_LONG: "lease longer than allowed",
    Why.DIED: "fragment died",
    Why.LEFT: "left after notice",
    Why.FINISHED: "training finished",
    Why.CANCELLED: "cancelled by its user or an operator",
    Why.STOPPED: "stopped for good",
    Why.CORE: "goes into the ordinary queue",
    Why.CORE_OVER: "the core's time is over",
    Why.TO_LANE: "belongs to the partition of malleable jobs",
    Why.NOTED: "noted for later ticks",
    Why.ON_HOLD: "held or released by an operator",
    Why.OFF: "switched off",
    Why.CANARY: "outside of the canary",
    Why.CEILING: "more nodes than the site allows",
    Why.LIMIT: "a job waits for a limit that counts it",
    Why.WISH: "its job wishes for fewer nodes",
    Why.NO_PARTS: "no parts of nodes are taken",
    Why.WIDER: "more of its node is free, so it comes back larger",
    Why.NODE_IDLE: "a node is idle where others' small jobs would go",
    Why.NO_WORK: "found no work left",
    Why.SUMMED_UP: "the job's life summed up",
}
_OBSTACLE = {
    Why.PARTITION: "not in partition {}, or the partition is down",
    Why.FEATURES: "without the features {}",
    Why.GRES: "not enough {}",
    Why.MEMORY: "not enough memory",
    Why.CPUS: "not enough CPUs",
    Why.EXCLUDED: "the job excludes it (--exclude)",
    Why.DIED: "a fragment died there",
    Why.UNFIT: "Slurm finds it unfit for the job",
    Why.CANARY: "not one of the canary's nodes (mode.nodes)",
    Why.SUSPECT: "fragments of jobs {} died there",
    Why.HOLE_SHORT: "its hole is too short",
    Why.REGISTERING: "slurmctld has begun, and nodes have not told it what runs on them",
    Why.NO_GROWTH: "the site wants no growth now",
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
        "no work was left: {count:worker} ended with exit code 0, and none runs",
        "{engine:?}a worker said that all work is done",
        "its script ended with {exit_code}, and no agent ever spoke: it counts as one without "
        "torchrun",
        "training finished",
    ),
    Why.STOPPED: ("stopped: {said}",),
    Why.CANCELLED: ("cancelled by its user or an operator, or past its --deadline",),
    Why.CORE: (
        "{state:?}its core cannot start: no node of its partition has what fragment {fragments} "
        "asks for (BadConstraints)",
        "its core has {count:size} on {nodes}[ until {until}]",
        "its core waits in the ordinary queue ({said}): fragment {fragments}"
        "[, which Slurm expects to start at {at}]",
    ),
    Why.TO_LANE: (
        "its other fragments need QOS {said}, which {user} may not have: an administrator can "
        "write sacctmgr modify user {user} set qos+={said}",
    ),
    Why.CORE_OVER: ("its core's time is over, and it ends with its core (core_end=finish)",),
    Why.CANCEL_UNCLEAR: ("some of its fragments were cancelled, others are still ending",),
    Why.DIED: ("fragment {fragments} died on {nodes} with exit code {exit_code}",),
    Why.DEPENDENCY: ("waits for its dependency",),
    Why.HELD: (
        "`scontrol {command}` holds {fragments}: `malleable release {job}` ends that",
        "an operator holds {fragments}: `malleable release {job}` ends that",
        "an operator holds it: `malleable release {job}` ends that",
        "an operator holds it",
    ),
    Why.NOT_STARTED: (
        "was released {count:time} and did not start ({said}): another try comes later",
    ),
    Why.WRONG_SIZE: (
        "Slurm gave fragment {fragments} {given} on {nodes} where {asked} were asked for",
        "Slurm gave fragment {fragments} {count:node} ({nodes}) where 1 was asked for",
    ),
    Why.SUSPENDED: ("suspended by an operator, left alone: {fragments}",),
    Why.UNKNOWN_STATE: ("state unknown, left alone: {fragments}",),
    Why.OFF: (
        "malleable jobs are switched off since {since:date}[ ({said})]: nothing starts until "
        "`malleable on`; jobs can be submitted meanwhile, and wait",
    ),
    Why.REGISTERING: (
        "nothing starts until {nodes}[ and {more} more] {nodes:has|have} told the slurmctld that "
        "began what runs there",
    ),
    Why.NO_GROWTH: (
        "no job starts or grows while the site's file no-growth is there: since {since:date}, "
        "for {seconds:age}[ ({said})]",
    ),
    Why.CANARY: (
        "waits: the site lets only jobs of [users {users}][{users:?}{accounts:?} and of ]"
        "[accounts {accounts}] run for now (mode.level = canary)",
    ),
    Why.LIMIT: (
        "its fragments make room for job {waiter} of {user}, which {limit:?}waits for a limit that "
        "counts them too ({said}), and come back once it has started",
        "its fragments make room for job {waiter} of {user}, which has not started yet ({said}), "
        "and come back once it has started",
    ),
    Why.NO_PARTS: (
        "parts of nodes are not taken here, as others would wait for it: {said}. An administrator "
        "can mend that (docs/admins/shared-nodes.md)",
    ),
    Why.GIVEN_BACK: (
        "{nodes} is given back: {cause}[ ({source}: {by})]",
        "the leases of what its scripts still do are not renewed: {because}",
    ),
    Why.HOLE_ENDS: ("{nodes} may be used until {until} ({source}: {by})",),
    Why.LEAVING: ("fragment {fragments} was asked to leave {nodes}",),
    Why.APART: (
        "no fragment has joined a round within {seconds} s: the script does not start torchrun, or "
        "Slurm's commands are missing where it runs; several fragments would each train on their "
        "own, so it is kept to one",
        "its nodes do not share its work directory, so several fragments would each train on "
        "their own: it is kept to one. Submit from a directory that all nodes share",
    ),
    Why.NOT_TRAINING: (
        "fragment {fragments} has run on {nodes} for {seconds:.0f} s and trains nothing: "
        "{standing}",
    ),
    Why.MAXIMUM: (
        "{cancelled} of its fragments {cancelled:is|are} cancelled: it has its maximum of "
        "{most:size} without {cancelled:it|them}",
        "its maximum is {most:size}",
    ),
    Why.SIZE: (
        "fails with {sizes_failing:size}, trains with {sizes_good:and}[: --malleable={request}]",
        "may have {sizes_allowed:size} only (sizes=)",
    ),
    Why.WISH: (
        "{unit:?}wishes for no {wish:units} now, and waits until it does",
        "wishes for {wish:size} at most now[{nodes_planned:?}, and has that]",
    ),
    Why.NO_WORK: (
        "{count:worker} found no work left, the last at {at}: no more are started but those that "
        "were interrupted since, until the job wishes for {count:units} (malleable wish N)",
    ),
    Why.BELOW_MIN: (
        "can reach {nodes_usable:size} now, needs {nodes_needed}: waits for its other fragments to "
        "come back",
    ),
    Why.PROBED: ("begins on {nodes_planned:size}, so that its speed there is seen",),
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
        "has failed {failures:time}: one worker is tried, and others follow once it has run for "
        "{seconds} s",
        "changed less than {min_run:g} s ago (min_run=): for {seconds:.0f} s more it grows only if "
        "that pays",
        "shrank or failed less than {seconds:g} s ago and does not grow yet",
    ),
    Why.CEILING: (
        "all malleable jobs of {user} together may have {ceiling:node} (mode.max_nodes_per_user)"
        "[, and this one needs {nodes_needed}: it cannot start][, and get {nodes_given}]",
        "all malleable jobs of account {account} together may have {ceiling:node} "
        "(mode.max_nodes_per_account)"
        "[, and this one needs {nodes_needed}: it cannot start][, and get {nodes_given}]",
        "all malleable jobs together may have {ceiling:node} (mode.max_nodes, max_share)"
        "[, and this one needs {nodes_needed}: it cannot start][, and get {nodes_given}]",
    ),
    Why.BETTER_USE: ("job {job} has waited for {seconds:.0f} s (plan.patience_s)",),
}
_NOTE: Forms = {
    Why.OBSERVED: ("mode.level = observe: nothing is written, this is what would be done",),
    Why.NOT_RENEWED: (
        "{count:fragment} in use, and no tick renews leases or puts fragments back: before "
        "mode.level = observe use `malleable off`, and wait until they have left",
    ),
    Why.OFF: ("malleable jobs are switched off since {since:date}[ ({said})]",),
    Why.CANARY: ("mode.level = canary: only its jobs and nodes are used",),
    Why.UNKNOWN_NODE: ("mode.nodes: Slurm knows no node {nodes}[ and {more} more]",),
    Why.SUSPECT: (
        "{nodes}: fragments of jobs {jobs} died there; no malleable job uses it for now, please "
        "check the node",
    ),
    Why.MIN_JOB_AGE: (
        "MinJobAge={seconds:.0f} in slurm.conf: slurmctld forgets a fragment so many seconds after "
        "its end, and its job loses it if no tick ran until then",
    ),
    Why.MAX_JOB_COUNT: (
        "slurmctld holds {count} of at most {most} job records (MaxJobCount), ended ones for "
        "MinJobAge={seconds:.0f} s: soon nobody can submit",
    ),
    Why.UNREAD: ("{said}",),
    Why.OBJECTIVE: ("{said}",),
    Why.NOT_DONE: ("not done: {action} {fragments}: {because}",),
    Why.BELOW_MIN: ("without {nodes} its job cannot reach its minimum",),
    Why.TAKEN: ("{nodes} is no longer free",),
    Why.NO_PARTS: ("parts of nodes are no longer taken: {said}",),
    Why.NODE_IDLE: ("{nodes} is idle, where others' small jobs would go instead",),
    Why.HOLE_SHORT: ("{nodes} is wanted by {by} sooner",),
    Why.GONE: ("{nodes} is gone", "{fragments:?}the fragment is gone", "it is gone"),
    Why.CANCELLED: ("it was cancelled meanwhile",),
    Why.NOT_FREE_TO_START: ("it is held, or gone, by now",),
    Why.NOT_RUNNING: ("it no longer runs",),
    Why.REFUSED: ("its mark was refused",),
    Why.CHANGED: ("it is {state} by now",),
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
    Said.STARTED: "its training has started and is in no round; its log says more",
    Said.WAITING: "it waits for other fragments, and is in no round; its log says more",
}


def action_text(cause: str) -> str:
    """Why something was done to a fragment, from the value of a `Why`; other words as they are."""
    return {why.value: text for why, text in _DONE.items()}.get(cause, cause)


def obstacle_text(verdict: Verdict) -> str:
    """Why a job cannot use a free node."""
    text = _OBSTACLE[verdict.why].format(verdict.detail)
    is_claimed = verdict.why is Why.HOLE_SHORT and verdict.detail
    return f"{text} ({verdict.detail})" if is_claimed else text


def reason_text(reason: Reason, now: Optional[datetime] = None, unit: str = NODE) -> str:
    """One thing behind a job's size, which counts `unit`. Moments have their date unless that is
    the date of `now`."""
    return _sentence(reason, _REASON, now, unit)


def note_text(note: Reason, now: Optional[datetime] = None) -> str:
    """What every reader of a plan should know, or why an action of it no longer holds."""
    return _sentence(note, {**_REASON, **_NOTE}, now)


def over_text(over: Optional[Why], stop: str = "") -> str:
    """How a job ended; `stop` is the word in its marks."""
    if over is None:
        return "goes on"
    return stop if over is Why.STOPPED and stop else _OVER[over]


def _verdict_text(verdict: Verdict) -> str:
    standing = _STANDING.get(verdict.why, "").format(verdict.detail)
    return standing or f"free, but {obstacle_text(verdict)}"


def _sentence(reason: Reason, forms: Forms, now: Optional[datetime], unit: str = NODE) -> str:
    """Fill the first form that goes with the detail. Without one the identifier has to do."""
    detail = reason.detail
    texts = (_without_gaps(form, detail) for form in forms.get(reason.why, ()))
    form = next((text for text in texts if _has_all(text, detail)), reason.why.value)
    return _Words(now, unit).format(form, **detail)


def _without_gaps(form: str, detail: Mapping[str, Any]) -> str:
    """The form with those of its parts in brackets that can be filled."""
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


def _counts(found: Resources) -> list[str]:
    """`2 a100 GPUs`, `8 CPUs`, `61440 MiB`."""
    gres = [(name.split(":"), count) for name, count in found.gpus_by_type]
    texts = [plural(n, " ".join([*kind, "GPU"])) for (_, *kind), n in gres]
    texts += [plural(found.cpus, "CPU")] if found.cpus else []
    return [*texts, *([f"{found.memory_mib} MiB"] if found.memory_mib else [])]


def _listed(items: list[str], noun: str) -> str:
    """`a, b`; with a noun `1 and 2 nodes`, and with `and` no noun."""
    if not noun or not items:
        return ", ".join(items)
    *others, last = items
    text = f"{', '.join(others)} and {last}" if others else last
    return text if noun == "and" else f"{text} {noun if text == '1' else noun + 's'}"
