"""Causes of rounds, and states as older versions have written them."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_hooks.elastic.rendezvous.causes import (
    SHOWN,
    Cause,
    CauseKind,
    causes_in,
    is_loss,
    joined,
    left,
    lost,
    text_of,
)
from slurm_hooks.elastic.rendezvous.codec import decode, encode

CAPTURED = Path(__file__).with_name("captured") / "states"  # by the version before


@pytest.mark.parametrize(
    ("name", "gone", "causes"),
    [
        ("start", (), (Cause(CauseKind.START),)),
        ("gone", (lost(2),), (Cause(CauseKind.START),)),
        ("round", (), (lost(2), left(3), joined(5))),
        ("failed", (), (Cause(CauseKind.FAILED),)),
        ("asked", (), (Cause(CauseKind.ASKED),)),
        ("term", (), (lost(1),)),
    ],
)
def test_agents_of_the_last_version_and_of_this_version_read_each_other(
    name: str, gone: tuple[Cause, ...], causes: tuple[Cause, ...]
) -> None:
    text = (CAPTURED / f"{name}.json").read_text()
    state = decode(text)
    assert state.round is not None
    assert (state.gone, state.round.causes) == (gone, causes)
    assert encode(state) == text


@pytest.mark.parametrize("text", ["drained 5", "lost x", "lost -1", "lost 1 2", "start 3"])
def test_an_unknown_cause_of_a_later_version_is_another_cause(text: str) -> None:
    assert causes_in(f"{text}, joined 4") == (Cause(CauseKind.OTHER), joined(4))
    assert not is_loss(causes_in(text))


def test_a_state_holds_no_more_causes_than_fit() -> None:
    assert causes_in("") == ()
    assert causes_in("x, " * 1000) == (Cause(CauseKind.OTHER),) * SHOWN
    assert len(text_of([lost(10**16 - 1)] * SHOWN)) < 1024
