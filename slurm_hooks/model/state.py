"""The state of a fragment, as Slurm shows it and as its agent reports it."""

from __future__ import annotations

import enum

from slurm_hooks.words.comment import Standing


class FragmentState(enum.Enum):
    """The state of a fragment according to Slurm."""

    HELD = "held"  # pending, priority 0: waits for us
    PENDING = "pending"  # released, or requeued by Slurm: may start any moment
    RUNNING = "running"
    SUSPENDED = "suspended"  # stopped by an operator (26.05: or its user), and still on its nodes
    ENDING = "ending"  # completing: its processes are on their way out
    DONE = "done"  # exit code 0
    TIMED_OUT = "timed out"  # its lease ended, or Slurm took it for somebody else
    FAILED = "failed"  # any other end that its user did not ask for
    LOST = "lost"  # its node failed
    SPECIAL = "special exit"  # an exit code for which Slurm itself puts jobs back and holds them
    CANCELLED = "cancelled"  # by its user, or because its --deadline has passed
    UNKNOWN = "unknown"  # a state this version does not know: left alone


ENDED_STATES = frozenset(
    {
        FragmentState.DONE,
        FragmentState.TIMED_OUT,
        FragmentState.FAILED,
        FragmentState.LOST,
        FragmentState.CANCELLED,
    }
)
WAITING_STATES = frozenset({FragmentState.HELD, FragmentState.SPECIAL})
BACK_STATES = ENDED_STATES - {FragmentState.CANCELLED}
"""States from which a fragment can be put back."""
OPEN_STATES = WAITING_STATES | {FragmentState.PENDING, FragmentState.RUNNING}
"""States in which a fragment can be cancelled, and its mark written."""
LIVE_STATES = frozenset(FragmentState) - ENDED_STATES - WAITING_STATES
"""States in which a fragment is on its nodes, on its way there, or may be."""


class Said(enum.Enum):
    """The report of a fragment's agent on the current run. A script without an agent reports
    NOTHING. words/comment.py explains the words."""

    NOTHING = "nothing"
    STARTED = Standing.STARTED.value
    WAITING = Standing.WAITING.value
    JOINED = Standing.JOINED.value
    TRAINED = Standing.TRAINED.value
    LEAVING = Standing.LEAVING.value
    APART = Standing.APART.value
    FINISHED = Standing.FINISHED.value
