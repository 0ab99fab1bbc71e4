"""With which words the members of a training were started. Pure changes and questions."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from slurm_hooks.elastic.rendezvous.state import Launch, Phase, State, find

MOST = 64  # different ones that are kept


def note(state: State, token: str, mine: Optional[Launch]) -> State:
    """Note how this member was started, and forget those that are no members any more."""
    if mine is None or find(state, token) is None:
        return state
    tokens = {m.token for m in state.members} - {token}
    known = {one.digest: one for one in state.launches}
    known.setdefault(mine.digest, mine)
    kept = []
    for one in known.values():
        stay = tuple(t for t in one.tokens if t in tokens)
        stay += (token,) if one.digest == mine.digest else ()
        kept += [replace(one, tokens=stay)] if stay else []
    return replace(state, launches=tuple(kept[-MOST:]))


def other_launch(state: State, token: str, mine: Optional[Launch]) -> Optional[Launch]:
    """That of other members, if it is not that of this one."""
    busy = {m.token for m in state.members if m.phase is not Phase.DONE} - {token}
    others = (one for one in state.launches if busy.intersection(one.tokens))
    return next((one for one in others if mine and one.digest != mine.digest), None)
