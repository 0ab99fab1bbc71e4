"""Fragments that run and do not join: each would train alone in a separate directory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from slurm_hooks.elastic.batch.expected import request
from slurm_hooks.elastic.liveness import absent as module
from slurm_hooks.elastic.liveness.absent import PATIENCE_S, Absence, missing, running, sentence
from slurm_hooks.elastic.rendezvous.state import Member, Outcome, State, join

ME = Member("a" * 16, 0, 0, "1.0", "n1")
APART = replace(join(State(run="7"), ME), wanted=(0, 1, 2))
NOW = 10_000.0
ANSWER = """0|RUNNING|9|1|8000|20000|None|(null)
1|RUNNING|9|1|8000|20000|None|(null)
2|PENDING|9|1|N/A|N/A|Resources|(null)
3|RUNNING|9|1|9990|20000|None|(null)
x|RUNNING|9|1|8000|20000|None|(null)
4|COMPLETING|9|1|8000|20000|None|(null)
"""


def test_missing_fragments_are_neither_joined_nor_done() -> None:
    assert missing(APART, (0, 1, 2)) == (1, 2)
    done = replace(APART, done=((1, 0, "1.0"),))
    assert missing(done, (0, 1, 1)) == ()


def test_only_a_fragment_that_has_run_for_long_counts() -> None:
    assert running(ANSWER, NOW) == (0, 1)
    assert running("junk\n|||", NOW) == ()


@pytest.mark.parametrize(
    ("state", "token", "array", "reported"),
    [
        (APART, ME.token, "7", True),
        (APART, "b" * 16, "7", False),  # another agent is the first
        (replace(APART, wanted=(0,)), ME.token, "7", False),
        (replace(APART, outcome=Outcome.FINISHED), ME.token, "7", False),
        (APART, ME.token, "", False),  # outside of an array
    ],
)
def test_an_absent_fragment_is_reported_once_and_after_a_while(
    monkeypatch: pytest.MonkeyPatch, state: State, token: str, array: str, reported: bool
) -> None:
    said: list[str] = []
    asked: list[Sequence[str]] = []

    class Thread:
        def __init__(self, target: object, args: tuple[State], daemon: bool) -> None:
            self.start = lambda: target(*args)  # type: ignore[operator]

    def ask(command: Sequence[str]) -> str:
        asked.append(command)
        return ANSWER

    monkeypatch.setattr(module.threading, "Thread", Thread)
    monkeypatch.setattr(module.time, "time", lambda: NOW)
    monkeypatch.setattr(module, "say", said.append)
    monkeypatch.setattr(module, "write_remark", said.append)
    absence = Absence("/shared/7", {"SLURM_ARRAY_JOB_ID": array}, ask)
    for now in (0.0, PATIENCE_S / 2):
        absence.look(now, state, token)
    assert asked == []
    for now in (PATIENCE_S, 2 * PATIENCE_S):
        absence.look(now, state, token)
    assert asked == [request("7")] * reported
    assert len(said) == 2 * reported
    assert all(
        "fragment 1 runs but has not joined" in line and "/shared/7" in line for line in said
    )


def test_the_remark_is_taken_back_when_the_fragment_has_joined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remarks: list[str] = []
    monkeypatch.setattr(module.time, "time", lambda: NOW)
    monkeypatch.setattr(module, "write_remark", remarks.append)
    monkeypatch.setattr(module, "withdraw_remark", remarks.remove)
    absence = Absence("/shared/7", {"SLURM_ARRAY_JOB_ID": "7"}, lambda _: ANSWER)
    absence.check(APART)
    absence.look(0.0, APART, ME.token)
    assert remarks == [sentence((1,), "/shared/7")]
    absence.look(1.0, join(APART, Member("b" * 16, 1, 0, "1.0", "n2")), ME.token)
    assert remarks == []
