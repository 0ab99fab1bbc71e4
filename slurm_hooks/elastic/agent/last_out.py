"""Write the state that is only in this node's memory to a file, before the agent ends."""

from __future__ import annotations

import os
import time

from slurm_hooks.elastic.agent.session import Session
from slurm_hooks.elastic.farewell import farewell_s, note_whether_enough
from slurm_hooks.elastic.signals import SignalListener


def save_what_is_left(session: Session, signals: SignalListener, patience_s: float) -> None:
    """Called when the training processes here have ended. Does not raise.

    It takes at most `patience_s`, or the rest of the farewell if SIGTERM has come.
    """
    file = session.unwritten()
    if not file:
        return
    from slurm_hooks.elastic.script.left_behind import leave_behind  # noqa: PLC0415  (brings in torch)

    until = time.monotonic() + patience_s
    if signals.is_terminated:
        until = min(until, signals.terminated_at + farewell_s(os.environ))
    is_enough = leave_behind(os.environ, file, until)
    if signals.is_terminated and is_enough is not None:
        note_whether_enough(os.environ, is_enough)
