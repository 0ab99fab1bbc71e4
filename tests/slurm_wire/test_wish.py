"""`wish{N,T}` in a Comment is read, and so are other texts that a user may write."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from build import NOW, after, make_fragment, make_job, make_request
from fake_answers import row
from slurm_hooks.model import Said, Wish
from slurm_hooks.protocol.comment import Comment, Standing, parse
from slurm_hooks.slurm.jobs import parse_jobs, said_in
from slurm_hooks.slurm.rows import SAID_WIDTH
from slurm_hooks.slurm.wish import parse_wish, with_wish

many = settings(deadline=None)
AT = 1_790_000_000
TEXT = f"wish{{8,{AT}}}"
PROGRESS = "progress{s1790000000,8:1234/12/256,4:700/9/128/5400}"


def read(comment: str) -> tuple[int, int]:
    wish = parse_wish(comment)
    assert wish is not None
    return wish.nodes, int(wish.at.timestamp())


@pytest.mark.parametrize(
    "comment",
    [
        TEXT,
        f"{TEXT};",
        f"{TEXT};my own text",
        f"trained{{3}};{TEXT}",
        f"trained{{3}};h{{600}};{TEXT}",
        f"trained{{3}};h{{600}}r;{TEXT};{PROGRESS}",
        f"trained{{3}};{PROGRESS};{TEXT}",
        f"remark{{hello}};{TEXT}",
        f"{TEXT};wish{{9,{AT + 1}}}",  # our commands write this wish
    ],
)
def test_a_wish_is_read_among_the_entries(comment: str) -> None:
    assert read(comment) == (8, AT)


@pytest.mark.parametrize("standing", Standing)
def test_every_word_of_an_agent_is_read_and_remains_first(standing: Standing) -> None:
    word = Comment(standing, 3).text
    assert said_in(parse(word), 3) is Said(standing.value)
    comment = with_wish(f"{word};mine", Wish(after(0), 8))
    assert comment.startswith(f"{word};wish{{8,")


@pytest.mark.parametrize(
    "comment",
    [f"trained{{3}};{TEXT};{PROGRESS}", f"trained{{3}};h{{60}};{TEXT};{PROGRESS};{TEXT}"],
)
def test_a_wish_hides_no_other_word(comment: str) -> None:
    read_comment = parse(comment)
    assert (read_comment.standing, read_comment.progress) == (Standing.TRAINED, PROGRESS)


@pytest.mark.parametrize(
    "comment",
    [
        "",
        "(null)",
        "my own text;" + TEXT,
        "x" + TEXT,
        f" {TEXT}",
        f"{TEXT}x",
        f"remark{{{TEXT}}}",
        f"remark{{;{TEXT}",
        "wish{}",
        "wish{8}",
        "wish{,1790000000}",
        "wish{8,}",
        "wish{-8,1790000000}",
        "wish{8,-1790000000}",
        "wish{+8,1790000000}",
        "wish{8.0,1790000000}",
        "wish{8, 1790000000}",
        "wish{65536,1790000000}",
        "wish{999999,1790000000}",
        "wish{8,999999999999}",
        "wish{\u0668,1790000000}",
        "wish{8,\u0661790000000}",
        "wish{8,1790000000",
        "wish{8,17900",
        "WISH{8,1790000000}",
    ],
)
def test_text_that_no_command_writes_is_no_wish(comment: str) -> None:
    assert parse_wish(comment) is None


def test_the_limits_are_read() -> None:
    assert read("wish{0,0}") == (0, 0)
    assert read("wish{65535,99999999999}") == (65535, 99_999_999_999)


@many
@given(st.integers(0, 65_535), st.integers(0, 99_999_999_999), st.integers(0, SAID_WIDTH))
def test_a_wish_that_is_cut_off_is_no_wish(nodes: int, at: int, cut: int) -> None:
    whole = f"trained{{3}};remark{{{'x' * 100}}};wish{{{nodes},{at}}}"
    wish = parse_wish(whole[:cut])
    assert wish is None or (wish.nodes, int(wish.at.timestamp())) == (nodes, at)
    assert (wish is None) is (cut < len(whole))


def test_a_long_row_of_entries_is_read_in_no_time() -> None:
    began = time.process_time()
    assert parse_wish("a{}r;" * 20_000 + "wish{8,") is None
    assert parse_wish("a{" * 20_000) is None
    assert time.process_time() - began < 2


MARK = "malleable{min=0,max=4,unit=1,engine=pool,frags=2,lease=600,hole=120}"


def test_a_row_of_squeue_carries_a_wish_up_to_its_width() -> None:
    cells = {"State": "PENDING", "PriorityLong": 0, "Partition": "malleable", "UserName": "u"}
    beyond = "x" * (SAID_WIDTH - 5)
    comments = [f"joined{{0}};{TEXT};mine", f"remark{{{beyond}}};wish{{3,{AT + 9}}}"]
    lines = [
        row(JobArrayID=f"7_{i}", TimeLimit="10:00", admin_comment=MARK, comment=text, **cells)
        for i, text in enumerate(comments)
    ]
    queue = parse_jobs("".join(f"{line}\n" for line in lines), ["malleable"])
    assert queue.unknown == ()
    (job,) = queue.malleable
    first, second = job.fragments
    assert first.wish is not None
    assert second.wish is None
    assert first.wish.nodes == 8
    assert job.wish(first.wish.at) == Wish(first.wish.at, 4)  # never more than its maximum
    assert job.request.min_nodes == 0


POOL = replace(make_request(1, 6), min_nodes=0, engine="pool")


@many
@given(st.lists(st.tuples(st.integers(-900, 900), st.integers(0, 60_000)), max_size=6))
def test_the_newest_of_any_order_counts(pairs: list[tuple[int, int]]) -> None:
    """A wish from the future does not count."""
    wishes = [Wish(after(at), nodes) for at, nodes in pairs]
    fragments = (make_fragment(i, wish=w, request=POOL) for i, w in enumerate(wishes))
    newest = make_job(*fragments, held=1, request=POOL).wish(NOW)
    at, nodes = max([pair for pair in pairs if pair[0] <= 60], default=(0, -1))
    assert newest == (Wish(after(at), min(nodes, 6)) if nodes >= 0 else None)
    gang = (make_fragment(i, wish=w) for i, w in enumerate(wishes))
    assert make_job(*gang, held=1).wish(NOW) is None
