"""Logs of any content are read, or the unreadable line is reported, without a crash."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from replay.logs import swf
from slurm_hooks.replay.logs.idle_csv import HEADER, read_idle
from slurm_hooks.replay.logs.log_lines import BadLog, Log
from slurm_hooks.replay.logs.sacct import read_sacct
from slurm_hooks.replay.logs.swf import read_swf
from slurm_hooks.replay.record import Interval, Record

PLACE = tempfile.TemporaryDirectory()
many = settings(max_examples=75, deadline=None)
ODD = st.sampled_from(
    [
        *("", "0", "-1", "1", "5.5", "1e9", "1e308", "1e999", "nan", "x", "\u00b2", "\u0663"),
        *("9" * 30, "9" * 400, "9" * 5000),
        *("Unknown", "None assigned", "n1", "n[1-3]", "n[1-", "@all", "n1!n1", "1.batch"),
        *("2024-01-01T00:00:00", "2024-13-01", "0001-01-01T00:00:00", "20240101"),
    ]
) | st.text(st.characters(exclude_categories=("Cs",)), max_size=8)


def log_of(text: str, skips: bool) -> Log:
    """Write a log with this text in the place of the last log."""
    path = Path(PLACE.name) / "log"
    path.write_bytes(text.encode())
    return Log(path, skip_bad=skips)


def sound(record: Record) -> bool:
    """A record that the simulator can take."""
    fits = all(
        math.isfinite(i.start_s)
        and record.from_s <= i.start_s < i.end_s <= record.to_s
        and i.node >= 0
        for i in record.intervals
    )
    return fits and record.window_s > 0 and math.isfinite(record.window_s)


@st.composite
def idle_lines(draw: st.DrawFn) -> str:
    fields = [draw(ODD | st.integers(0, 9).map(str)) for _ in range(draw(st.integers(2, 5)))]
    return draw(
        st.sampled_from([",".join(fields), "a,0,0,100", HEADER, f"# duration_s={fields[0]}"])
    )


@many
@given(st.lists(idle_lines(), max_size=6), st.booleans())
@example(["# duration_s=" + "9" * 400, "a,0,0,100"], False)
def test_any_table_of_idle_times(lines: list[str], skips: bool) -> None:
    try:
        record = read_idle(log_of("\n".join(lines), skips))
    except BadLog:
        return
    assert sound(record)


@many
@given(
    st.dictionaries(
        st.integers(0, 5),
        st.lists(st.integers(0, 10_000), min_size=2, max_size=8, unique=True),
        min_size=1,
    )
)
def test_idle_times_are_read_as_written(cuts: dict[int, list[int]]) -> None:
    intervals = [
        Interval(node, float(start), float(end))
        for node, moments in sorted(cuts.items())
        for start, end in zip(sorted(moments)[::2], sorted(moments)[1::2])
    ]
    lines = [f"n{i.node},{i.node},{i.start_s:g},{i.end_s:g}" for i in intervals]
    assert list(read_idle(log_of("\n".join(lines), False)).intervals) == intervals


@st.composite
def jobs(draw: st.DrawFn) -> str:
    usual = swf(1, 0, 5, 40, 2, 50).split()
    for at in draw(st.lists(st.integers(0, 17), max_size=3)):
        usual[at] = draw(ODD)
    head = draw(st.sampled_from(["MaxNodes", "MaxProcs", "Note"]))
    return draw(st.sampled_from([" ".join(usual), f"; {head}: {draw(ODD)}", draw(ODD)]))


@many
@given(st.lists(jobs(), max_size=6), st.booleans())
@example([";MaxNodes: " + "9" * 5000, swf(1, 0, 5, 40, 2, 50)], False)
def test_any_workload_log(lines: list[str], skips: bool) -> None:
    try:
        workload = read_swf(log_of("\n".join(lines), skips))
    except BadLog:
        return
    assert workload.jobs
    assert workload.nodes >= 1
    assert math.isfinite(workload.window_s)
    assert all(j.nodes > 0 and 0 < j.run_s < math.inf and j.start_s >= 0 for j in workload.jobs)


@st.composite
def stays(draw: st.DrawFn) -> str:
    return "|".join(draw(ODD | st.integers(0, 2000).map(str)) for _ in range(5))


@many
@given(st.lists(stays(), max_size=6), st.booleans(), st.sampled_from(["", "n[1-4]"]))
@example(["1|5|10|20|@all"], False, "")
@example(["1|5|10|" + "9" * 400 + "|n1"], False, "")
@example(["1|5|10|20|n1", "2|7|inf|30|n1"], True, "")
def test_any_accounting(lines: list[str], skips: bool, machine: str) -> None:
    text = "\n".join(["JobIDRaw|Submit|Start|End|NodeList", *lines])
    try:
        record = read_sacct(log_of(text, skips), machine)
    except BadLog:
        return
    assert sound(record)
