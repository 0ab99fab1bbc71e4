"""The mark in AdminComment, and Slurm's way of writing times, limits and host lists."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_hooks.model import AvoidedNode, Mark, Request
from slurm_hooks.slurm.mark import format_mark, parse_mark
from slurm_hooks.slurm.text import expand, fold, parse_gres, parse_limit, parse_time

PLAIN = "malleable{min=1,max=6,unit=1,engine=torchrun,frags=6,lease=120,hole=60}"

words = st.from_regex(r"[A-Za-z0-9_.:@-]{1,12}", fullmatch=True)
moments = st.none() | st.integers(0, 4_000_000_000).map(
    lambda s: datetime.fromtimestamp(s, timezone.utc)
)


avoided = st.lists(
    st.builds(
        AvoidedNode,
        st.from_regex(r"[a-z][a-z0-9.-]{0,11}", fullmatch=True),
        st.integers(0, 4_000_000_000).map(lambda s: datetime.fromtimestamp(s, timezone.utc)),
    ),
    max_size=3,
    unique=True,
).map(lambda unsorted: tuple(sorted(unsorted)))


@st.composite
def marks(draw: st.DrawFn) -> Mark:
    unit = draw(st.integers(1, 4))
    low = unit * draw(st.integers(1, 20))
    request = Request(
        min_nodes=low,
        max_nodes=low + unit * draw(st.integers(0, 20)),
        fragments=draw(st.integers(1, 64)),
        lease=timedelta(seconds=draw(st.integers(1, 86_400))),
        shortest_hole=timedelta(seconds=draw(st.integers(0, 86_400))),
        unit=unit,
        engine=draw(st.sampled_from(["torchrun", "torchft"])),
        launch=draw(st.sampled_from(["", "srun"])),
        name=draw(st.sampled_from(["", "train.sh", "a_b-7"])),
        excluded=draw(st.sampled_from([None, frozenset(), frozenset(("n1", "n2", "n4", "x-a.b"))])),
    )
    return Mark(
        request=request,
        released=draw(moments),
        noticed=draw(moments),
        failures=draw(st.integers(0, 1000)),
        run=draw(st.integers(0, 99)),
        gone=draw(st.integers(0, 63)),
        deaths=draw(avoided),
        unfit=draw(avoided),
        vain=draw(st.integers(0, 99)),
        obstacle=draw(st.just("") | st.from_regex(r"[A-Za-z0-9_]{1,40}", fullmatch=True)),
        priority=draw(st.integers(0, 2**32)),
        gave_way_to=draw(st.sampled_from(["", "12", "12_3", "12+1"])),
        is_apart=draw(st.booleans()),
        is_on_hold=draw(st.booleans()),
        is_finished=draw(st.booleans()),
        stopped=draw(st.just("") | words),
    )


beside = st.text(st.characters(exclude_characters="{}\0", exclude_categories=("Cs",)), max_size=9)


@given(marks(), beside, beside)
def test_round_trip_keeps_the_rest(mark: Mark, before: str, behind: str) -> None:
    comment = before + format_mark(mark) + behind
    mark_and_rest = parse_mark(comment)
    assert mark_and_rest is not None
    assert mark_and_rest[0] == mark
    assert format_mark(*mark_and_rest) == comment


def test_marks_of_a_job_share_its_exclusions() -> None:
    """With `--exclude=n[1-9999]`, each separate mark would take a MiB."""
    text = "malleable{{min=1,max=4,frags=4,lease=600,hole=60,not=n(1-9999),at={}}}"
    both = [parse_mark(text.format(1_800_000_000 + i)) for i in range(2)]
    one, two = (seen[0].request.excluded for seen in both if seen)
    assert one is two
    assert one is not None
    assert len(one) == 9999


def test_other_text_remains_when_the_mark_changes() -> None:
    mark_and_rest = parse_mark(f"site note; {PLAIN} | more")
    assert mark_and_rest is not None
    new = Mark(mark_and_rest[0].request, failures=2)
    assert format_mark(new, mark_and_rest[1]) == f"site note; {PLAIN[:-1]},fails=2}} | more"


@pytest.mark.parametrize("comment", ["", "(null)", "malleable", "malleable{min=1", "other{a=1}"])
def test_no_mark(comment: str) -> None:
    assert parse_mark(comment) is None


@pytest.mark.parametrize(
    "inner",
    [
        "",
        "min=1",
        "min=1,max=6",
        "min=1,max=6,frags=6,lease=120",
        "min=6,max=1,frags=6,lease=120,hole=60",
        "min=0,max=1,frags=6,lease=120,hole=60",
        "min=1,max=6,unit=0,frags=6,lease=120,hole=60",
        "min=1,max=6,unit=4,frags=6,lease=120,hole=60",
        "min=1,max=6,frags=0,lease=120,hole=60",
        "min=1,max=6,frags=6,lease=0,hole=60",
        "min=one,max=6,frags=6,lease=120,hole=60",
        "min=1, max=6,frags=6,lease=120,hole=60",
        "min=1,max=6,frags=6,lease=120,hole=60,,",
        "min=1,max=6,frags=6,lease=120,hole=60,at=soon",
        "MIN=1,max=6,frags=6,lease=120,hole=60",
        "min=1.5,max=6,frags=6,lease=120,hole=60",
        # A bug once: OverflowError is no ValueError, and such a mark stopped every tick.
        "min=1,max=6,frags=6,lease=99999999999999999,hole=60",
        "min=1,max=6,frags=6,lease=120,hole=60,at=99999999999999999999",
        "min=1,max=6,frags=6,lease=120,hole=60,avoid=n1@99999999999999999999",
        "min=1,max=6,frags=6,lease=120,hole=60,avoid=n1@n2@3",
    ],
)
def test_broken_marks_are_refused(inner: str) -> None:
    with pytest.raises(ValueError):
        parse_mark(f"malleable{{{inner}}}")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1:00", 60),
        ("0:30", 30),
        ("10", 10),
        ("1:00:00", 3600),
        ("1-00:00:00", 86_400),
        ("2-03:04:05", 183_845),
        ("UNLIMITED", None),
        ("NOT_SET", None),
        ("Partition_Limit", None),
        ("INVALID", None),
        ("", None),
    ],
)
def test_limits(text: str, seconds: Optional[int]) -> None:
    assert parse_limit(text) == (None if seconds is None else timedelta(seconds=seconds))


@pytest.mark.parametrize(
    "text",
    ["soon", "1:2:3:4", "a-1:00:00", "1-x", "-1", "\u00b2", "\u0663", "9" * 400, "999999999-0"],
)
def test_without_a_limit(text: str) -> None:
    with pytest.raises(ValueError):
        parse_limit(text)


@given(st.integers(0, 4_000_000_000))
def test_times(epoch: int) -> None:
    assert parse_time(str(epoch)) == datetime.fromtimestamp(epoch, timezone.utc)


@pytest.mark.parametrize("text", ["", "N/A", "Unknown", "None", "NONE"])
def test_no_time(text: str) -> None:
    assert parse_time(text) is None


@pytest.mark.parametrize(
    "text", ["2026-03-01T12:00:00", "soon", "9" * 30, "-1", "\u00b2", "\u0663"]
)
def test_an_unreadable_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_time(text)


@pytest.mark.parametrize("text", ["", "(null)", "N/A", "None"])
def test_no_nodes(text: str) -> None:
    assert expand(text) == frozenset()


@given(st.sets(st.integers(1, 200), min_size=1, max_size=30))
def test_host_lists(numbers: set[int]) -> None:
    names = frozenset(f"node{n}" for n in numbers)
    assert expand(fold(names)) == names


def test_padded_names_keep_their_padding() -> None:
    assert expand("n[08-11],login1") == {"n08", "n09", "n10", "n11", "login1"}
    assert fold(["n10", "n9", "n11"]) == "n[9-11]"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1[9-11]", {"n19", "n110", "n111"}),
        ("n0[9-11]", {"n09", "n010", "n011"}),
        ("n[1-2]x[5,7]", {"n1x5", "n1x7", "n2x5", "n2x7"}),
        ("r1n[1-2]a,,b", {"r1n1a", "r1n2a", "b"}),
    ],
)
def test_digits_before_a_bracket_are_part_of_each_name(text: str, names: set[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("(null)", {}),
        ("gpu", {"gpu": 1}),
        ("gres/gpu:2", {"gpu": 2}),
        ("gpu:a100:4(S:0-1),tmp:1", {"gpu": 4, "gpu:a100": 4, "tmp": 1}),
        ("gpu:a:4,gpu:b:2", {"gpu": 6, "gpu:a": 4, "gpu:b": 2}),
        ("gpu:(null):3(IDX:0,4-5)", {"gpu": 3}),
        ("gpu:(null):0(IDX:N/A)", {"gpu": 0}),
        ("gpu:a:3(IDX:0,2-3),gpu:b:1(IDX:4)", {"gpu": 4, "gpu:a": 3, "gpu:b": 1}),
        ("gpu:48gb:4", {"gpu": 4, "gpu:48gb": 4}),
        ("gpu:4090:2", {"gpu": 2, "gpu:4090": 2}),
        ("gpu:a100_1g.5gb:7", {"gpu:a100_1g.5gb": 7}),  # no whole GPU
        ("gpu:nvidia_h100_80gb_hbm3_1c.3g.40gb:2", {"gpu:nvidia_h100_80gb_hbm3_1c.3g.40gb": 2}),
        ("gpu:1g.10gb+me:1", {"gpu:1g.10gb+me": 1}),
        ("gres:gpu:a100_3g.20gb", {"gpu:a100_3g.20gb": 1}),
        ("gpu:a100:2,mps:200,shard:8", {"gpu": 2, "gpu:a100": 2, "mps": 200, "shard": 8}),
    ],
)
def test_generic_resources_are_summed_by_name(text: str, counts: dict[str, int]) -> None:
    assert dict(parse_gres(text)) == counts
