"""Where a fragment is in its life: in Slurm's words, and in those of its agent."""

from __future__ import annotations

import enum

from slurm_hooks.words.comment import Standing


class FragmentState(enum.Enum):
    """Where a fragment is in its life, as Slurm reports it."""

    HELD = "held"  # pending, priority 0: waits for us
    PENDING = "pending"  # released, or requeued by Slurm: may start any moment
    RUNNING = "running"
    SUSPENDED = "suspended"  # stopped by an operator, and still on its nodes
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
LIVE_STATES = frozenset(FragmentState) - ENDED_STATES - WAITING_STATES
"""States in which a fragment is on its nodes, on its way there, or may be."""


class Said(enum.Enum):
    """What a fragment's agent says about the current run; a script without one says nothing. The
    words are explained in words/comment.py."""

    NOTHING = "nothing"
    STARTED = Standing.STARTED.value
    WAITING = Standing.WAITING.value
    JOINED = Standing.JOINED.value
    TRAINED = Standing.TRAINED.value
    LEAVING = Standing.LEAVING.value
    APART = Standing.APART.value
    FINISHED = Standing.FINISHED.value
