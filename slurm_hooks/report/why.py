"""What a `Why` means, in words for people."""

from __future__ import annotations

from slurm_hooks.model import Reason, Verdict, Why
from slurm_hooks.model.plural import plural

_DONE = {
    Why.HOLE_OPEN: "hole open",
    Why.HOLE_CLOSES: "hole closes",
    Why.NODE_LEAVES: "node leaves service",
    Why.BETTER_USE: "better use elsewhere",
    Why.BELOW_MIN: "below the job's minimum",
    Why.REMINDED: "was given notice",
    Why.NOTICE_OVER: "notice is over",
    Why.ALONE: "no fragment has joined a round",
    Why.UNFIT: "Slurm finds the node unfit for it",
    Why.PREEMPTED: "requeued by Slurm",
    Why.SECURED: "comes back held if Slurm requeues it",
    Why.NOT_STARTED: "released but not started in time",
    Why.LEASE_ENDED: "lease ended",
    Why.LEASE_LONG: "lease longer than allowed",
    Why.DIED: "fragment died",
    Why.LEFT: "left after notice",
    Why.FINISHED: "training finished",
    Why.CANCELLED: "cancelled by its user",
    Why.STOPPED: "stopped for good",
    Why.NOTED: "noted for later ticks",
    Why.PAUSED: "held or released by an operator",
    Why.OFF: "switched off",
    Why.CANARY: "outside of the canary",
    Why.CEILING: "more nodes than the site allows",
    Why.LIMIT: "a job waits for a limit that counts it",
    Why.WISH: "its job wishes for fewer nodes",
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
}
_STANDING = {Why.TAKEN: "{}", Why.USABLE: "free and usable", Why.REGISTERING: "free"}


def action_text(cause: str) -> str:
    """Why something was done to a fragment, from the value of a `Why`; other words as they are."""
    return {why.value: text for why, text in _DONE.items()}.get(cause, cause)


def obstacle_text(verdict: Verdict) -> str:
    """Why a job cannot use a free node."""
    text = _OBSTACLE[verdict.why].format(verdict.detail)
    is_claimed = verdict.why is Why.HOLE_SHORT and verdict.detail
    return f"{text} ({verdict.detail})" if is_claimed else text


def reason_text(reason: Reason) -> str:
    """One thing behind a job's size."""
    verdict = reason.verdict
    if verdict is None:
        return reason.text
    standing = _STANDING.get(verdict.why, "").format(verdict.detail)
    text = standing or f"free, but {obstacle_text(verdict)}"
    return f"{plural(reason.nodes, 'other node')}: {text}"
