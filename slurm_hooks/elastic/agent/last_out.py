"""Before an agent goes: what only the memory of its node has becomes a file, within the time that
there is.
"""

from __future__ import annotations

import os
import time

from slurm_hooks.elastic.agent.session import Session
from slurm_hooks.elastic.farewell import farewell_s, note_whether_enough
from slurm_hooks.elastic.signals import SignalListener


def save_what_is_left(session: Session, signals: SignalListener, patience_s: float) -> None:
    """Called when the training processes here have ended. `patience_s`: so long at most, or what
    is left of the farewell if SIGTERM has come. Does not raise."""
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
