"""The commands with which the members of a training were started. Pure changes and questions."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from slurm_hooks.elastic.rendezvous.state import Launch, Phase, Round, State, find

MOST = 64  # different commands that are kept


def note(state: State, token: str, mine: Optional[Launch]) -> State:
    """Note how this member was started, and forget the commands of former members."""
    if mine is None or find(state, token) is None:
        return state
    tokens = {m.token for m in state.members} - {token}
    known = {launch.digest: launch for launch in state.launches}
    known.setdefault(mine.digest, mine)
    kept = []
    for launch in known.values():
        stay = tuple(t for t in launch.tokens if t in tokens)
        stay += (token,) if launch.digest == mine.digest else ()
        kept += [replace(launch, tokens=stay)] if stay else []
    return replace(state, launches=tuple(kept[-MOST:]))


def newest_launch(state: State, round_: Round) -> Optional[Launch]:
    """Return the command of the member of this round that joined last, `None` if it is unknown."""
    return next((launch for launch in state.launches if round_.newest in launch.tokens), None)


def other_launch(state: State, token: str, mine: Optional[Launch]) -> Optional[Launch]:
    """Return another member's command if it differs from `mine`, else `None`."""
    busy = {m.token for m in state.members if m.phase is not Phase.DONE} - {token}
    others = (launch for launch in state.launches if busy.intersection(launch.tokens))
    return next((launch for launch in others if mine and launch.digest != mine.digest), None)
