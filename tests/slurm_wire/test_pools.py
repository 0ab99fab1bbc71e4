"""Requests of `malleable pool` and `malleable map` to Slurm, and a wish from outside a job."""

from __future__ import annotations

import shlex
import subprocess
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_hooks.errors import UnreadableOutput
from slurm_hooks.model import Wish
from slurm_hooks.protocol.comment import parse
from slurm_hooks.slurm.pools import Pool, count, read_id, script, shown, submit
from slurm_hooks.slurm.wish import parse_wish, with_wish

AT = 1_790_000_000
WISH = Wish(datetime.fromtimestamp(AT, timezone.utc), 8)
TEXT = f"wish{{8,{AT}}}"
PROGRESS = "progress{s1790000000,8:1234/12/256,4:700/9/128/5400}"
words = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=9), min_size=1
)


@given(words)
def test_the_shell_sees_each_word_as_given(command: list[str]) -> None:
    text = script(Pool(("x", *command), 4, flags=("--signal=URG",)))
    first, second = text.split("\n", 1)
    assert first == "#!/bin/sh"
    assert shlex.split(second) == ["exec", "malleable", "run", "--signal=URG", "--", "x", *command]


def test_a_real_shell_agrees() -> None:
    odd = ["a b", "$HOME", "`id`", "it's", '"', "\\", "*", "new\nline", "", "{}"]
    text = script(Pool(tuple(odd), 1)).replace("exec malleable run --", r"printf '%s\0'", 1)
    done = subprocess.run(["sh"], input=text, capture_output=True, text=True, check=True)
    assert done.stdout.split("\0")[:-1] == odd


def test_sbatch_gets_the_request_and_the_user_s_other_options() -> None:
    pool = Pool(("true",), 16, 2, (), ("--time=5", "--mem=1G"))
    argv = submit(pool).argv
    assert argv == ("sbatch", "--parsable", "--malleable=2-16,engine=pool", "--time=5", "--mem=1G")


@pytest.mark.parametrize("unit", ["gpu", "task"])
def test_workers_on_parts_of_nodes(unit: str) -> None:
    argv = submit(Pool(("true",), 16, unit=unit)).argv
    assert argv == ("sbatch", "--parsable", f"--malleable=0-16,unit={unit},engine=pool")


@pytest.mark.parametrize("text", ["4711\n", "4711;cluster\n", "a word before\n4711\n"])
def test_the_id_is_read(text: str) -> None:
    assert read_id(text) == 4711


@pytest.mark.parametrize("text", ["", "Submitted\n", "4711 more\n", "-1\n"])
def test_a_word_that_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(UnreadableOutput):
        read_id(text)


def test_the_size_is_counted() -> None:
    workers = count("RUNNING\nPENDING\nRUNNING\nREQUEUE_HOLD\n\n")
    assert shown(workers) == "2 running, 2 waiting"
    assert not count("")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", TEXT),
        ("(null)", TEXT),
        ("my own", f"{TEXT};my own"),
        ("trained{3}", f"trained{{3}};{TEXT}"),
        (f"trained{{3}};{PROGRESS}", f"trained{{3}};{TEXT};{PROGRESS}"),
        (f"trained{{3}};h{{60}}r;{PROGRESS}", f"trained{{3}};h{{60}}r;{TEXT};{PROGRESS}"),
        (f"wish{{3,1}};{PROGRESS}", f"{TEXT};{PROGRESS}"),
        ("joined{0};wish{3,1};mine", f"joined{{0}};{TEXT};mine"),
        ("joined{0};wish{3,1}", f"joined{{0}};{TEXT}"),
    ],
)
def test_a_wish_takes_its_place_and_leaves_the_rest(before: str, after: str) -> None:
    assert with_wish(before, WISH) == after
    assert parse_wish(after) == WISH
    comment, was = parse(after), parse(before)
    assert (comment.standing, comment.loss) == (was.standing, was.loss)
    assert comment.progress == was.progress


@given(st.text("trained{}wsh;0123, x", max_size=60))
def test_any_comment_then_has_a_single_wish(before: str) -> None:
    after = with_wish(before, WISH)
    assert parse_wish(after) == WISH
    assert after.count(TEXT) == 1
    assert with_wish(after, WISH) == after
