"""The next action of an agent that waits for a round, without files, clocks or torch."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

import pytest

from slurm_hooks.elastic.agent.actions import (
    Action,
    Enter,
    Form,
    GiveUp,
    Over,
    Patience,
    Rejoin,
    Wait,
    next_action,
)
from slurm_hooks.elastic.rendezvous.rounds import Limits, form
from slurm_hooks.elastic.rendezvous.state import Member, Outcome, Round, State, come_back, join

LIMITS = Limits(2, 4, last_call_s=3.0)
FRESH = Patience(waited_s=0.0, quiet_s=0.0, longest_s=60.0, poll_s=0.2)
LONG = Patience(waited_s=61.0, quiet_s=61.0, longest_s=60.0, poll_s=0.2)
ME = Member("a" * 16, 1, 0, "1.0", "n1", ends=9000)
OTHER = Member("b" * 16, 2, 0, "1.0", "n2")
APART = join(State(run="7"), ME)
BOTH = join(APART, OTHER)
TRAINING = form(BOTH, LIMITS, "n1", 1, 1000)
ROUND = TRAINING.round
NEWER = replace(ME, token="c" * 16, incarnation="1.1")


@pytest.mark.parametrize(
    ("state", "last", "patience", "expected"),
    [
        (APART, None, FRESH, Wait(0.1)),
        (APART, None, replace(FRESH, quiet_s=11.0), Wait(1.0)),
        (APART, None, LONG, GiveUp("fewer than 2 fragments were available for too long")),
        (BOTH, None, FRESH, Wait(0.1)),
        (BOTH, None, replace(FRESH, quiet_s=3.0), Form((ME.token, OTHER.token))),
        (replace(BOTH, outcome=Outcome.FINISHED), None, FRESH, Over()),
        (TRAINING, None, FRESH, Enter(ROUND)),
        (TRAINING, ROUND, FRESH, Wait(0.1)),  # the round that this agent was in
        (replace(TRAINING, round=replace(ROUND, order=("x",))), None, FRESH, Rejoin()),
        (join(State(run="7"), OTHER), ROUND, FRESH, Rejoin()),
        (
            join(State(run="7"), NEWER),
            ROUND,
            FRESH,
            GiveUp("superseded: Slurm has restarted this fragment elsewhere"),
        ),
    ],
)
def test_next_action(
    state: State, last: Optional[Round], patience: Patience, expected: Action
) -> None:
    assert next_action(state, ME, last, LIMITS, patience) == expected


def test_only_the_future_rank_0_forms_the_round() -> None:
    patience = replace(FRESH, quiet_s=3.0)
    assert next_action(BOTH, OTHER, None, LIMITS, patience) == Wait(0.1)


def test_an_agent_left_behind_is_done_unless_its_workers_failed() -> None:
    left = replace(TRAINING, members=TRAINING.members[:1], done=((2, 0, "1.0"),))
    assert next_action(come_back(left, ME), ME, ROUND, LIMITS, FRESH) == Over()
    failed = come_back(left, replace(ME, failed=1))
    assert isinstance(next_action(failed, ME, ROUND, LIMITS, FRESH), GiveUp)
    over = next_action(replace(TRAINING, outcome=Outcome.FAILED), ME, ROUND, LIMITS, FRESH)
    assert isinstance(over, GiveUp)
