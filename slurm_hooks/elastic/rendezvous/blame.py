"""Find the member whose node is at fault: its workers fail while those of all others are healthy.

The others' workers are stopped because this member comes back, so the order of events tells who was
first, and no clock. A collective error takes all down within a moment, and any agent may see it
first. So nobody is blamed unless each of the others says that its workers had not failed when it
stopped them. A script may fail in one process only, for example where the first writes a file. So a
single member is expelled until the training makes progress.
"""

from __future__ import annotations

from dataclasses import replace

from slurm_hooks.elastic.rendezvous.state import Phase, State, find


def failed_alone(state: State) -> str:
    """Return the only member of the broken round whose workers failed. The result is empty if there
    is none, or if another member is not there or not known to have been healthy.
    """
    members = [find(state, token) for token in state.round.order] if state.round else []
    here = [m for m in members if m is not None and m.phase is Phase.READY]
    failed = [m.token for m in here if m.failed]
    healthy = [m for m in here if m.sound and not m.failed]
    is_alone = len(failed) == 1 and len(healthy) == len(members) - 1 > 0
    return failed[0] if is_alone else ""


def culprit(state: State) -> str:
    """Return the member that has failed alone twice in a row, empty if there is none."""
    alone = failed_alone(state)
    return alone if alone == state.suspect and not state.expelled else ""


def expel(state: State, token: str) -> State:
    """Let this member give up. Its first failure no longer counts for the others."""
    return replace(state, expelled=token, suspect="", crashes=max(0, state.crashes - 1))
