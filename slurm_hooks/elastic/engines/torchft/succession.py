"""Who keeps the lighthouse of a torchft training, and who is next when that one goes.

A term is the time one fragment keeps the lighthouse. It is written into the shared State as
its Round: the keeper alone in `order`, the lighthouse at host:port. Everybody decides alike
from the same State. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from slurm_hooks.elastic.rendezvous.causes import SHOWN, Cause, CauseKind, joined, left, lost
from slurm_hooks.elastic.rendezvous.rounds import rank_key
from slurm_hooks.elastic.rendezvous.state import Member, Outcome, Phase, Round, State, find

_CLASSES, _WIDTH = 16, 32


def enlist(state: State, token: str) -> State:
    """This agent trains from now on: it may be asked to keep the lighthouse."""
    members = tuple(
        replace(m, phase=Phase.ACTIVE, round=max(1, state.rounds))
        if m.token == token and m.phase is Phase.READY
        else m
        for m in state.members
    )
    return replace(state, members=members)


def keeper(state: State, lost_term: int = 0) -> Member | None:
    """Who keeps the lighthouse, None if somebody else must: it is dead, leaves, or its
    term is `lost_term`, where nobody answers. One that is done serves the others still."""
    if state.round is None or state.round.number <= lost_term:
        return None
    member = find(state, state.round.order[0])
    is_fit = member is not None and member.phase in (Phase.ACTIVE, Phase.DONE)
    return member if is_fit else None


def successors(state: State, lost_term: int = 0) -> tuple[str, ...]:
    """Who may keep it next, longest lease first."""
    is_lost = state.round is not None and state.round.number <= lost_term
    gone = state.round.order[0] if state.round is not None and is_lost else ""
    fit = [m for m in state.members if m.phase is Phase.ACTIVE and m.token != gone]
    return tuple(m.token for m in sorted(fit, key=rank_key))


def begin_term(state: State, token: str, place: tuple[str, int], now: int, lost: int) -> State:
    """Let `token` keep the lighthouse at `place` (host, port), unless it is kept already
    or the training has ended. `lost`: the term known to be lost."""
    mine = find(state, token)
    is_kept = keeper(state, lost) is not None
    if (
        is_kept
        or state.outcome is not Outcome.OPEN
        or mine is None
        or mine.phase is not Phase.ACTIVE
    ):
        return state
    number = state.rounds + 1
    term = Round(
        number=number,
        order=(token,),
        fragments=(mine.fragment,),
        host=place[0],
        port=place[1],
        causes=(_cause(state),),
        formed_at=now,
    )
    return replace(state, round=term, rounds=number, gone=())


def _cause(state: State) -> Cause:
    if state.round is None:
        return Cause(CauseKind.START)
    before = find(state, state.round.order[0])
    is_leaving = before is not None and before.phase is Phase.LEAVING
    how = left if is_leaving else lost
    return how(state.round.fragments[0])


def at_work(state: State) -> tuple[int, ...]:
    """The fragments that train, or have done so to the end; each once."""
    phases = (Phase.ACTIVE, Phase.DONE)
    return tuple(sorted({m.fragment for m in state.members if m.phase in phases}))


def difference(before: tuple[int, ...], after: tuple[int, ...], state: State) -> tuple[Cause, ...]:
    """Why others are at work now: `joined 4, left 2, lost 5`."""
    leaving = {m.fragment for m in state.members if m.phase is Phase.LEAVING}
    planned = leaving | {c.fragment for c in state.gone if c.kind is CauseKind.LEFT}
    came = (joined(f) for f in after if f not in before)
    went = ((left if f in planned else lost)(f) for f in before if f not in after)
    return (*came, *went)[:SHOWN]


def first_quorum(term: int) -> int:
    """The id before the first quorum of a term. A lighthouse counts from 1, and a member
    forms a new process group only when the id differs from the one it knows; nor must two
    groups with one id meet in the same store. So each term has a range of its own; a range
    is used again when nobody remembers it."""
    return _WIDTH * (1 + term % _CLASSES)
