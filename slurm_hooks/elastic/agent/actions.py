"""The next action of an agent that waits for a round, and the decision between the actions.

The actions are a closed set of values. The code is pure: the caller carries an action out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Union

from slurm_hooks.elastic.rendezvous.rounds import (
    Limits,
    expected,
    is_stranded,
    may_form,
    pending,
    ranked,
)
from slurm_hooks.elastic.rendezvous.state import (
    Member,
    Outcome,
    Phase,
    Round,
    State,
    find,
    is_superseded,
)


@dataclass(frozen=True)
class Wait:
    """Look again after about `pause_s` seconds."""

    pause_s: float


UNTIL_ADMITTED = Wait(1.0)  # others still work on the earlier training


@dataclass(frozen=True)
class Rejoin:
    """Get on the list again: this agent was taken for dead, or a new list has begun."""


@dataclass(frozen=True)
class Form:
    """Serve a store, and form the next round of `queue` around it."""

    queue: tuple[str, ...]


@dataclass(frozen=True)
class Enter:
    """Join this round."""

    round: Round


@dataclass(frozen=True)
class Leave:
    """This fragment leaves, because it got a notice or its lease ends."""


@dataclass(frozen=True)
class Over:
    """The training has finished, and no work is left here."""


@dataclass(frozen=True)
class GiveUp:
    """The training cannot go on here. This counts as a failure of the fragment."""

    why: str


@dataclass(frozen=True)
class Outlived:
    """Slurm has ended this run of the fragment, while its node was out of reach. This agent ends
    without a word to Slurm.
    """


Action = Union[Wait, Rejoin, Form, Enter, Leave, Over, GiveUp, Outlived]


@dataclass(frozen=True)
class Patience:
    """The times by which an agent judges its wait, in seconds.

    `waited_s`: how long it has waited. `quiet_s`: how long the list has not changed. `longest_s`:
    the longest wait. `poll_s`: its pause while things move.
    """

    waited_s: float
    quiet_s: float
    longest_s: float
    poll_s: float


def next_action(
    state: State, me: Member, last: Optional[Round], limits: Limits, patience: Patience
) -> Action:
    """Return the next action of `me`, which was last in the round `last` and has waited since."""
    mine = find(state, me.token)
    end = _end(state, mine, limits)
    if end:
        return end
    if mine is None:
        is_replaced = is_superseded(state, me)
        why = "superseded: Slurm has restarted this fragment elsewhere"
        return GiveUp(why) if is_replaced else Rejoin()
    if mine.phase is Phase.ACTIVE and state.round and _is_later(state.round, last):
        return Enter(state.round) if mine.token in state.round.order else Rejoin()
    may = may_form(state, limits, patience.quiet_s, patience.waited_s)
    if may and ranked(state, limits)[0].token == me.token:
        return Form(expected(state))
    if patience.waited_s > patience.longest_s:
        return GiveUp(f"fewer than {limits.smallest} {limits.noun} were available for too long")
    is_lively = bool(pending(state)) or patience.quiet_s < 10.0
    return Wait(patience.poll_s / 2 if is_lively else 1.0)


def _end(state: State, mine: Optional[Member], limits: Limits) -> Union[Over, GiveUp, None]:
    if state.outcome is Outcome.FINISHED:
        return Over()
    if state.outcome is Outcome.FAILED:
        return GiveUp(
            f"the workers failed {state.crashes} times in a row though no fragment was lost; "
            "their messages are above"
        )
    if mine is not None and state.expelled == mine.token:
        return GiveUp(
            "the workers of this fragment failed twice in a row while those of all others were "
            "healthy, so the others go on without this node; their messages are above"
        )
    if mine is None or not is_stranded(state, mine.token, limits):
        return None
    if mine.failed:
        return GiveUp("the workers failed here after other fragments had finished")
    return Over()


def _is_later(round_: Round, last: Optional[Round]) -> bool:
    """Tell whether it was formed after the round in which this agent was last. Numbers begin again
    at 1 if a user has removed the directory.
    """
    return last is None or round_.number > last.number or round_.formed_at > last.formed_at
