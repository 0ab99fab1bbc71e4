"""The keeper of the lighthouse of a torchft training, and its successors.

A term is the time for which a fragment keeps the lighthouse. It is written into the shared State as
its Round: the keeper alone in `order`, the lighthouse at host:port. All agents decide the same way
from the same State. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from slurm_hooks.elastic.rendezvous.causes import SHOWN, Cause, CauseKind, joined, left, lost
from slurm_hooks.elastic.rendezvous.rounds import rank_key
from slurm_hooks.elastic.rendezvous.state import Member, Outcome, Phase, Round, State, find

_CLASSES, _WIDTH = 16, 32


def enlist(state: State, token: str) -> State:
    """Return the state in which this agent trains, and may be asked to keep the lighthouse."""
    members = tuple(
        replace(m, phase=Phase.ACTIVE, round=max(1, state.rounds))
        if m.token == token and m.phase is Phase.READY
        else m
        for m in state.members
    )
    return replace(state, members=members)


def keeper(state: State, lost_term: int = 0) -> Member | None:
    """Return the agent that keeps the lighthouse, or `None` if another agent must take over.

    That is so if the keeper is dead or leaves, or if its term is `lost_term`, which no longer
    answers. An agent that is done still serves the others.
    """
    if state.round is None or state.round.number <= lost_term:
        return None
    member = find(state, state.round.order[0])
    is_fit = member is not None and member.phase in (Phase.ACTIVE, Phase.DONE)
    return member if is_fit else None


def successors(state: State, lost_term: int = 0) -> tuple[str, ...]:
    """Return the agents that may keep it next, longest lease first."""
    is_lost = state.round is not None and state.round.number <= lost_term
    gone = state.round.order[0] if state.round is not None and is_lost else ""
    fit = [m for m in state.members if m.phase is Phase.ACTIVE and m.token != gone]
    return tuple(m.token for m in sorted(fit, key=rank_key))


def begin_term(state: State, token: str, place: tuple[str, int], now: int, lost: int) -> State:
    """Return the state in which `token` keeps the lighthouse at `place` (host, port).

    The state stays unchanged if an agent keeps it already or the training has ended. `lost`: the
    term known to be lost.
    """
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
    """Return the fragments that train, or have done so to the end, each once."""
    phases = (Phase.ACTIVE, Phase.DONE)
    return tuple(sorted({m.fragment for m in state.members if m.phase in phases}))


def difference(before: tuple[int, ...], after: tuple[int, ...], state: State) -> tuple[Cause, ...]:
    """Return why other fragments are at work now: `joined 4, left 2, lost 5`."""
    leaving = {m.fragment for m in state.members if m.phase is Phase.LEAVING}
    planned = leaving | {c.fragment for c in state.gone if c.kind is CauseKind.LEFT}
    came = (joined(f) for f in after if f not in before)
    went = ((left if f in planned else lost)(f) for f in before if f not in after)
    return (*came, *went)[:SHOWN]


def first_quorum(term: int) -> int:
    """Return the id before the first quorum of a term.

    A lighthouse counts from 1, and a member forms a new process group only when the id differs from
    the last. Two groups with the same id must not meet in the same store either. So each term has
    its own range of ids. A range is used again when no member remembers it.
    """
    return _WIDTH * (1 + term % _CLASSES)
