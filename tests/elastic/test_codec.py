"""The text of a state on disk: writing, reading, and texts that are refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from slurm_hooks.elastic.rendezvous.causes import left, lost
from slurm_hooks.elastic.rendezvous.codec import StateFormatError, decode, encode
from slurm_hooks.elastic.rendezvous.state import Launch, Member, Outcome, Phase, Round, State

CAPTURED = Path(__file__).with_name("captured") / "states"
ME = Member("a" * 16, 1, 2, "7.3", "n-1.x:%", 4, 5, Phase.LEAVING, 6, 7, 8, 9)
FULL = State(
    run="7",
    revision=1,
    stage=2,
    members=(ME,),
    round=Round(3, (ME.token,), (1,), "n1", 4, (left(3), lost(5)), 6, 9, ME.token),
    rounds=7,
    gone=(lost(2),),
    crashes=8,
    crashed_in=9,
    crashed_after_s=10,
    crashed_with=11,
    farthest=12,
    outcome=Outcome.FINISHED,
    outcome_at=13,
    done=((14, 15, "1.0"),),
    wanted=(16, 17),
    launches=(Launch("train.py --x='a b'", "c" * 16, (ME.token,)),),
    suspect="d" * 16,
    expelled="e" * 16,
)
TEXT = (CAPTURED / "full.json").read_text()
Place = tuple[Any, ...]  # keys and indexes that lead to a value
WRONG = {int: [-1, True, "1", 1.0, 2**60, None], str: ["\n", 1, None], list: ["", None, [0] * 5000]}


def places(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """All values of a document, with their places."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in inner:
        yield (*place, key), one
        if isinstance(one, list):
            yield from places(one, (*place, key))


def changed(place: Place, value: Any) -> str:
    """The text with another value there."""
    document = json.loads(TEXT)
    at = document
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = copy.copy(value)
    return json.dumps(document)


ALL = list(places(json.loads(TEXT)))
ADDED = {"launches", "suspect", "expelled"}  # they may be missing
SHORT: dict[Place, int] = {("members", 0): 2, ("round",): 2}  # so many may be missing
RECORDS: list[Place] = [("members", 0), ("round",), ("done", 0), ("launches", 0)]


def test_the_text_of_every_field_is_unchanged() -> None:
    plain, bare = State(run="x"), Member("b" * 16, 0, 0, "", "n2", round=0)
    assert not [f.name for f in fields(State) if getattr(FULL, f.name) == getattr(plain, f.name)]
    assert not [f.name for f in fields(Member) if getattr(ME, f.name) == getattr(bare, f.name)]
    assert encode(FULL) == TEXT
    assert decode(TEXT) == FULL


@pytest.mark.parametrize("place", [place for place, _ in ALL if place != ("format",)], ids=str)
def test_a_wrong_value_is_refused(place: Place) -> None:
    wrong = WRONG[type(dict(ALL)[place])]
    for value in wrong if place != ("round",) else wrong[:1] + wrong[2:]:
        with pytest.raises(StateFormatError):
            decode(changed(place, value))


@pytest.mark.parametrize("key", sorted(set(json.loads(TEXT)) - ADDED))
def test_a_text_without_a_field_is_refused(key: str) -> None:
    with pytest.raises(StateFormatError):
        decode(json.dumps({name: v for name, v in json.loads(TEXT).items() if name != key}))


@pytest.mark.parametrize("place", RECORDS, ids=str)
def test_a_record_that_is_too_short_is_refused(place: Place) -> None:
    record = dict(ALL)[place]
    with pytest.raises(StateFormatError):
        decode(changed(place, record[: len(record) - SHORT.get(place, 0) - 1]))


@pytest.mark.parametrize("place", RECORDS, ids=str)
def test_values_that_only_a_later_version_knows_are_ignored(place: Place) -> None:
    assert decode(changed(place, [*dict(ALL)[place], {"later": 1}, None])) == FULL
    assert decode(changed(("later",), [1])) == FULL


def test_a_state_of_whole_nodes_has_no_field_for_workers() -> None:
    """Its text equals the text of an agent that counts only nodes, and the other way round."""
    one, formed = replace(ME, workers=1, sound=0), FULL.round
    assert formed is not None
    state = replace(FULL, members=(one,), round=replace(formed, workers=0, newest=""))
    document = json.loads(encode(state))
    assert (len(document["members"][0]), len(document["round"])) == (10, 7)
    assert decode(json.dumps(document)) == state


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("members",), [json.loads(TEXT)["members"][0]] * 2),
        (("members", 0, 0), "A" * 16),
        (("members", 0, 4), "n1;rm"),
        (("members", 0, 6), 65536),
        (("members", 0, 7), "asleep"),
        (("members", 0, 10), 0),
        (("members", 0, 10), 65536),
        (("round", 1), []),
        (("round", 1), ["a" * 16] * 2),
        (("round", 4), 65536),
        (("outcome",), "lost"),
        (("format",), 2),
        (("launches",), [["x", "c" * 16, []]] * 65),
        (("run",), "x" * 1025),
    ],
    ids=str,
)
def test_a_value_that_no_agent_writes_is_refused(place: Place, value: Any) -> None:
    with pytest.raises(StateFormatError):
        decode(changed(place, value))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format":2}', "[" * 100_000, "9" * 5000])
def test_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(StateFormatError):
        decode(text)
