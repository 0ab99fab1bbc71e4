"""The Comment as a value: each entry has its place, and the user's own text is kept."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_hooks.protocol.comment import (
    HEAD_WIDTH,
    MOST_LOSS_S,
    REMARK_WIDTH,
    WIDTH,
    Comment,
    Loss,
    Standing,
    Wish,
    parse,
    remark_text,
)

SO = {"remark": "so"}
SPEED = {"progress": "progress{b}"}
COST = {"loss": Loss(600)}
WISH = {"wish": Wish(8, 5)}


def stands(word: str, run: int) -> dict[str, Any]:
    return {"standing": Standing(word), "run": run}


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ("", stands("joined", 0), "joined{0}"),
        ("(null)", stands("joined", 0), "joined{0}"),
        ("mine", stands("started", 0), "started{0};mine"),
        ("started{0};mine", stands("joined", 0), "joined{0};mine"),
        ("trained{3};h{9};mine", stands("leaving", 3), "leaving{3};h{9};mine"),
        ("mine;joined{0};progress{a}", stands("leaving", 1), "leaving{1};mine;progress{a}"),
        ("I was joined{yesterday}", stands("joined", 1), "joined{1};I was joined{yesterday}"),
        ("trained{4}", SO, "trained{4};remark{so}"),
        ("mine;trained{4}", SO, "mine;remark{so}"),  # where it is not read
        ("a;remark{b};c", SO, "a;c;remark{so}"),
        ("joitrained{1}ned{2};a", SO, "a;remark{so}"),  # no entry is left for the next write
        ("a;reremark{b}mark{c}", SO, "a;remark{so}"),
        ("finishremark{a}ed{0}b", SO, "b;remark{so}"),
        ("mine; really", SO, "mine; really;remark{so}"),
        ("a;remark{so}", {"remark": ""}, "a"),
        ("trained{3}", COST, "trained{3};h{600}"),
        ("trained{3};mine", COST, "trained{3};h{600};mine"),
        ("trained{3};h{1}r;mine", COST, "trained{3};h{600};mine"),
        ("trained{3};mine", {"loss": Loss(600, True)}, "trained{3};h{600}r;mine"),
        ("trained{3};h{1}r;mine", {"loss": None}, "trained{3};mine"),
        ("trained{3};myh{1}", COST, "trained{3};h{600};myh{1}"),
        ("mine", COST, "mine"),  # it does not say where the fragment stands
        ("finished{999999999}", COST, "finished{999999999}"),  # the reconciler reads no further
        ("trained{3}", SPEED, "trained{3};progress{b}"),
        ("trained{3};mine", SPEED, "trained{3};progress{b};mine"),
        (
            "trained{3};h{9};mine;progress{a};remark{so}",
            SPEED,
            "trained{3};h{9};progress{b};mine;remark{so}",
        ),
        ("trained{3};myprogress{a}", SPEED, "trained{3};progress{b};myprogress{a}"),
        ("mine", SPEED, "mine"),
        ("mine", WISH, "wish{8,5};mine"),
        ("wish{3,1};progress{a}", WISH, "wish{8,5};progress{a}"),
        ("joined{0};h{9}r;progress{a}", WISH, "joined{0};h{9}r;wish{8,5};progress{a}"),
        ("joined{0};wish{3,1};mine", WISH, "joined{0};wish{8,5};mine"),
        ("mine;wish{3,1}", WISH, "wish{8,5};mine"),
    ],
)
def test_an_entry_takes_its_place_and_leaves_the_rest(
    before: str, change: dict[str, Any], after: str
) -> None:
    assert replace(parse(before), **change).text == after
    assert parse(after).text == after


FILLED = st.builds(
    Comment,
    standing=st.sampled_from(Standing),
    run=st.integers(0, 9999),
    loss=st.none() | st.builds(Loss, st.integers(0, MOST_LOSS_S), st.booleans()),
    wish=st.none() | st.builds(Wish, st.integers(0, 65_535), st.integers(0, 99_999_999_999)),
    progress=st.sampled_from(["", "progress{" + "n1:2.5," * 14 + "}"]),
    remark=st.sampled_from(["", "so"]),
    rest=st.sampled_from(["", "mine", "mine; and more", "x{y}"]),
)


@given(FILLED)
def test_a_written_comment_is_read_back(comment: Comment) -> None:
    read_back = parse(comment.text)
    assert replace(read_back, remark="", rest="") == replace(comment, remark="", rest="")
    assert read_back.text == comment.text
    assert parse(comment.text[:HEAD_WIDTH]).loss == comment.loss
    assert parse(comment.text[:WIDTH]).wish == comment.wish


WORDS = ["joined{3}", "trained{4}", ";", "h{9}", "wish{8,1}", "progress{a}", "remark{b}", "mark{c}"]
PIECES = st.lists(st.sampled_from([*WORDS, "re", "wi", "sh{8,1}", " ", "x", "{", "}"]), max_size=12)


@given(PIECES.map("".join))
def test_any_comment_has_each_of_our_entries_once(text: str) -> None:
    comment = replace(parse(text), wish=Wish(9, 9), remark="so", **stands("leaving", 2))
    written = comment.text
    assert written.startswith("leaving{2};")
    assert (written.count("wish{9,9}"), written.count("remark{so}")) == (1, 1)
    assert not any(word in written for word in ("joined{3}", "trained{4}", "remark{b}"))
    assert parse(written).says(Standing.LEAVING, 2)
    assert (parse(written).wish, parse(written).remark) == (Wish(9, 9), "so")


@given(st.text(st.sampled_from("ab ;{}()"), max_size=12))
def test_the_letters_of_the_user_are_kept(own: str) -> None:
    text = replace(parse(own), **stands("joined", 1)).text
    assert [c for c in text[len("joined{1}") :] if c in "ab"] == [c for c in own if c in "ab"]


def test_an_entry_belongs_to_a_single_run() -> None:
    assert parse("joined{2};mine").says(Standing.JOINED, 2)
    assert not parse("joined{2};mine").says(Standing.JOINED, 3)
    assert not parse("joined{2};mine").says(Standing.TRAINED, 2)


@pytest.mark.parametrize("text", ["a{}r;" * 20_000 + "wish{8,", "a{" * 20_000, "wish{" * 20_000])
def test_a_long_comment_is_read_in_no_time(text: str) -> None:
    began = time.process_time()
    assert parse(text).wish is None
    assert time.process_time() - began < 2


def test_a_remark_is_bounded_and_plain() -> None:
    assert remark_text("your --rdzv-backend=c10d wins") == "your --rdzv-backend=c10d wins"
    assert remark_text('a{b}\n"\x1b[1m\u00e4') == "a?b?????1m?"
    assert len(remark_text("x" * 1000)) == REMARK_WIDTH
