"""When to stop for a new round, which agents are in it, and in which order.

Pure decisions on State. Callers pass how long things have been quiet. How a State is shared does
not matter here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from slurm_hooks.elastic.rendezvous.blame import culprit, expel, failed_alone
from slurm_hooks.elastic.rendezvous.causes import (
    SHOWN,
    Cause,
    CauseKind,
    is_loss,
    joined,
    left,
    lost,
)
from slurm_hooks.elastic.rendezvous.state import (
    Member,
    Phase,
    Round,
    State,
    Stop,
    fail,
    find,
    forgive,
)

PROVEN_S = 600  # a round that lasts longer is progress, whenever the last round broke


@dataclass(frozen=True)
class Limits:
    """Bounds of a round in workers, and how long to wait for others before forming it (seconds).

    `noun` names the workers. If sizes count nodes, an agent counts as a worker, in a fragment. If
    there are `sizes`, a round must have a size from them.
    """

    smallest: int
    largest: int
    last_call_s: float = 3.0
    straggler_s: float = 60.0
    max_crashes: int = 3
    noun: str = "fragments"
    sizes: frozenset[int] = frozenset()


def stop_reason(state: State, token: str, limits: Limits) -> Stop:
    """Tell whether the healthy workers of `token` must stop for a new round."""
    me = find(state, token)
    round_ = state.round
    if me is None or round_ is None or token not in round_.order or me.phase is Phase.READY:
        return Stop.NOW
    peers = [find(state, t) for t in round_.order]
    if any(p is not None and p.phase is Phase.DONE for p in peers):
        return Stop.NOW if None in peers and _can_go_on(state, limits) else Stop.NO
    if any(p is None or p.phase is Phase.READY for p in peers):
        return Stop.NOW
    if any(p is not None and p.phase is Phase.LEAVING for p in peers):
        return Stop.PLANNED
    return Stop.GROW if _may_grow(state, round_, limits) else Stop.NO


def _can_go_on(state: State, limits: Limits) -> bool:
    """Tell whether an ending round that has lost an agent can repeat its end without it.

    An agent cannot come back from DONE. The others may wait for the lost agent in the last
    collective for as long as its time-out. If they are too few for a round, they finish alone: one
    of them may be writing the result.
    """
    left = (m for m in state.members if m.phase in (Phase.READY, Phase.ACTIVE))
    return count_of(_chosen(left, limits)) >= limits.smallest


def _may_grow(state: State, round_: Round, limits: Limits) -> bool:
    """Tell whether a round with the waiting agents would be larger."""
    outside = _outside(state)
    if not limits.sizes:
        return any(m.workers <= limits.largest - round_.size for m in outside)
    inside = (m for m in state.members if m.token in round_.order)
    return count_of(_chosen((*inside, *outside), limits)) > round_.size


def _outside(state: State) -> tuple[Member, ...]:
    inside = set(state.round.order) if state.round else set()
    return tuple(m for m in ready(state) if m.token not in inside)


def newcomers(state: State) -> tuple[str, ...]:
    """Return the tokens that wait outside of the current round."""
    return tuple(m.token for m in _outside(state))


def count_of(members: Iterable[Member]) -> int:
    """Return how many workers they have together."""
    return sum(m.workers for m in members)


def ready(state: State) -> tuple[Member, ...]:
    """Return the agents that could be in the next round right now."""
    waiting = (m for m in state.members if m.phase is Phase.READY)
    return tuple(m for m in waiting if m.token != state.expelled)


def pending(state: State) -> tuple[Member, ...]:
    """Return the agents that are expected back, but still run or stop their workers."""
    return tuple(m for m in state.members if m.phase is Phase.ACTIVE)


def expected(state: State) -> tuple[str, ...]:
    """Return the agents that wait or are awaited. While this does not change, things are quiet."""
    return tuple(m.token for m in (*ready(state), *pending(state)))


def is_known_complete(state: State) -> bool | None:
    """Tell whether all wanted agents are here, or `None` if it is unknown which are wanted."""
    if not state.wanted:
        return None
    return not Counter(state.wanted) - Counter(m.fragment for m in state.members)


def has_running_peers(state: State, last: Round | None, token: str) -> bool:
    """Tell whether another agent of the round `last` still runs its workers in it."""
    if last is None or state.round is None or state.round.number != last.number:
        return False
    running = {m.token for m in pending(state)}
    return any(t in running for t in last.order if t != token)


def has_finished_peer(state: State, last: Round | None) -> bool:
    """Tell whether an agent of the round `last` has finished the training."""
    if last is None:
        return False
    peers = (find(state, token) for token in last.order)
    return any(p is not None and p.phase is Phase.DONE for p in peers)


def ranked(state: State, limits: Limits) -> tuple[Member, ...]:
    """Return the next round by rank: longest lease first (its agent hosts the store), then Slurm
    order.

    Leases are compared by the minute, as Slurm counts them. Otherwise the seconds between two
    starts would shuffle the order. If too many wait, those that already trained stay in. A newcomer
    with fewer workers may fit where others do not.
    """
    return tuple(sorted(_chosen(ready(state), limits), key=rank_key))


def _chosen(members: Iterable[Member], limits: Limits) -> list[Member]:
    """Return the members that would be in a round of these members.

    If only some sizes are allowed, the round gets the largest size for which there are members. The
    others wait.
    """
    by_claim = sorted(members, key=lambda m: (m.round == 0, rank_key(m)))
    if not limits.sizes:
        return list(_fitting(by_claim, limits.largest))
    for size in sorted(limits.sizes, reverse=True):
        members_in = list(_fitting(by_claim, size))
        if count_of(members_in) == size:
            return members_in
    return []


def _fitting(members: Iterable[Member], room: int) -> Iterator[Member]:
    for member in members:
        if member.workers <= room:
            room -= member.workers
            yield member


def rank_key(member: Member) -> tuple[int, int, int, str]:
    return (-(member.ends // 60), member.fragment, member.node, member.token)


def may_form(state: State, limits: Limits, quiet_s: float, waited_s: float) -> bool:
    """Tell whether a round should be formed now. `quiet_s`: since the waiting list changed.
    `waited_s`: since this agent began to wait.
    """
    waiting = ranked(state, limits)
    if count_of(waiting) < limits.smallest:
        return False
    if pending(state):
        is_late = quiet_s >= limits.straggler_s and waited_s >= limits.straggler_s
        return is_late and is_broken(state)
    veterans = count_of(m for m in waiting if m.round)
    if count_of(waiting) >= limits.largest or veterans >= limits.smallest:
        return True
    is_complete = is_known_complete(state)
    if is_complete is None:
        return quiet_s >= limits.last_call_s
    return is_complete or _is_called_long(limits, quiet_s, waited_s)


def is_broken(state: State) -> bool:
    """Tell whether a member of the current round has come back from it or is gone.

    Until then the others train, and no agent may go on without them: that would be another training
    on the same checkpoint.
    """
    if state.round is None:
        return True
    peers = [find(state, token) for token in state.round.order]
    return any(p is None or p.phase is Phase.READY for p in peers)


def _is_called_long(limits: Limits, quiet_s: float, waited_s: float) -> bool:
    """Tell whether the expected but absent agents have had enough time.

    Each is worth a wait as long as its later admission would cost. Soon after a start, without warm
    workers, that is 3 to 4 s plus the script's own start: twice `last_call_s`. Together they must
    not delay the present agents for long.
    """
    return quiet_s >= 2 * limits.last_call_s or waited_s >= 10 * limits.last_call_s


def is_stranded(state: State, token: str, limits: Limits) -> bool:
    """Tell whether this agent failed after others had finished, with too few left to go on."""
    me = find(state, token)
    if me is None or not me.round or not state.done or pending(state):
        return False
    return count_of(ready(state)) < limits.smallest


def form(state: State, limits: Limits, host: str, port: int, now: int) -> State:
    """Form the next round from the ready agents, with its store at host:port. Give up if the
    workers failed `max_crashes` times without an outside cause and without progress in between.

    If a single agent is to blame, expel it instead. The others then form the round.
    """
    chosen = ranked(state, limits)
    if token := _to_expel(state, chosen, limits):
        return expel(state, token)
    state = judged(state, chosen, now)
    if state.crashes >= limits.max_crashes:
        return fail(state, now)
    number = state.rounds + 1
    tokens = tuple(m.token for m in chosen)
    workers = count_of(chosen)
    new_round = Round(
        number=number,
        order=tokens,
        fragments=tuple(m.fragment for m in chosen),
        host=host,
        port=port,
        causes=_causes(state, chosen),
        formed_at=now,
        workers=workers if workers > len(chosen) else 0,
        newest=[m.token for m in state.members if m.token in tokens][-1],
    )
    members = tuple(_enrol(m, tokens, number, state.expelled) for m in state.members)
    return replace(state, members=members, round=new_round, rounds=number, gone=())


def _enrol(member: Member, tokens: tuple[str, ...], number: int, expelled: str) -> Member:
    if member.token in tokens:
        return replace(member, phase=Phase.ACTIVE, failed=0, sound=0, round=number)
    if member.phase is Phase.LEAVING or member.token == expelled:
        return replace(member, round=0)  # its leave is in this round's cause already
    return member


def _to_expel(state: State, chosen: tuple[Member, ...], limits: Limits) -> str:
    """Return the agent to blame for the end of this round, empty if the others could not go on
    without it, or if there is none.
    """
    token = "" if _is_changed(state, chosen) else culprit(state)
    left = (m for m in chosen if m.token != token)
    return token if count_of(_chosen(left, limits)) >= limits.smallest else ""


def judged(state: State, chosen: tuple[Member, ...], now: int) -> State:
    """Count a failure, whatever the age of the last failure. Forgive after a planned change of a
    round that got past the point of the last failure.

    If an agent was lost, or joined just then, the workers may have failed because of that. Such a
    failure does not count.
    """
    if state.round is None:
        return state
    lasted_s = lasted(state.round, now)
    is_changed = _is_changed(state, chosen)
    if not any(m.failed for m in chosen):
        is_planned = is_changed and not is_loss(_losses(state))
        return forgive(state) if is_planned and is_progress(state, lasted_s) else state
    if is_changed:
        return state
    return replace(
        state,
        crashes=state.crashes + 1,
        crashed_in=state.crashed_in if state.crashes else state.round.number,
        crashed_after_s=min(max(1, lasted_s), PROVEN_S),
        crashed_with=_first_code(chosen),
        suspect=failed_alone(state),
    )


def _is_changed(state: State, chosen: tuple[Member, ...]) -> bool:
    """Tell whether agents were lost, left or joined since the last round was formed."""
    return bool(_losses(state)) or any(not m.round for m in chosen)


def _first_code(chosen: tuple[Member, ...]) -> int:
    """Return the most informative exit code: workers that lose a peer often end by a signal."""
    codes = sorted(m.failed - 1 for m in chosen if m.failed > 1)
    return codes[0] if codes else 0


def lasted(round_: Round, now: int) -> int:
    """Return seconds since a round was formed, by clocks that may differ."""
    return max(0, now - round_.formed_at)


def is_progress(state: State, lasted_s: int) -> bool:
    """Tell whether a round that was stopped on request lasted long enough to be progress.

    A script that fails at its tenth step is not forgiven for reaching the ninth.
    """
    return not state.crashed_after_s or lasted_s > state.crashed_after_s


def _causes(state: State, chosen: tuple[Member, ...]) -> tuple[Cause, ...]:
    if state.round is None:
        return (Cause(CauseKind.START),)
    changes = *_losses(state), *(joined(m.fragment) for m in chosen if not m.round)
    if changes:
        return changes[:SHOWN]
    is_failure = any(m.failed for m in chosen)
    return (Cause(CauseKind.FAILED if is_failure else CauseKind.ASKED),)


def _losses(state: State) -> tuple[Cause, ...]:
    leaving = (m for m in state.members if m.phase is Phase.LEAVING and m.round)
    expelled = (m for m in state.members if m.token == state.expelled and m.round)
    return (
        *state.gone,
        *(left(m.fragment) for m in leaving),
        *(lost(m.fragment) for m in expelled),
    )
