"""Find the member whose node is at fault: its workers fail while those of all others are healthy.

The others' workers are stopped because this member comes back, so the order of events tells who was
first, and no clock. If a collective error takes all down within a moment, nobody is blamed. A
script may fail in one process only, for example where the first writes a file. So a single member
is expelled until the training makes progress.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slurm_hooks.elastic.rendezvous.state import Member, State


def failed_alone(members: Sequence[Member]) -> str:
    """Return the only one of several members whose workers failed, empty if there is none."""
    failed = [member.token for member in members if member.failed]
    return failed[0] if len(failed) == 1 < len(members) else ""


def culprit(state: State, members: Sequence[Member]) -> str:
    """Return the member that has failed alone twice in a row, empty if there is none."""
    alone = failed_alone(members)
    return alone if alone == state.suspect and not state.expelled else ""


def expel(state: State, token: str) -> State:
    """Let this member give up. Its first failure no longer counts for the others."""
    return replace(state, expelled=token, suspect="", crashes=max(0, state.crashes - 1))
