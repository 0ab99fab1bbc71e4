"""The text in which a job reports its speed, from both ends, and texts that its user may write."""

from __future__ import annotations

from dataclasses import astuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_hooks.elastic.agent.rates import Rates
from slurm_hooks.elastic.batch.progress_entry import (
    REFRESH_S,
    Progress,
    ToldPauses,
    ToldRate,
    differs,
    earlier,
    entry,
    is_due,
    is_news,
    number,
)
from slurm_hooks.elastic.steady import Steady
from slurm_hooks.model import Counts, Pauses, Rate, Telemetry
from slurm_hooks.protocol.comment import PROGRESS_WIDTH, SIZES
from slurm_hooks.slurm.telemetry import parse_progress

many = settings(deadline=None)
NOW = 1_790_000_000
TEXT = "progress{s1790000000,8:1234/12/256,4:700/9/128/5400,p20/12//40,y12}"
TOLD = Telemetry(
    (Rate(4, 700.0, 0.009, NOW - 5400, 128.0), Rate(8, 1234.0, 0.012, NOW, 256.0)),
    Counts.SAMPLES,
    0.12,
    Pauses(20.0, 12.0, None, 40.0),
)


def test_reported_progress_is_read() -> None:
    assert parse_progress(TEXT) == parse_progress(f"{TEXT};my own") == TOLD
    steps = parse_progress("progress{n5,1:2.5e-3/30/0}")
    assert steps == Telemetry((Rate(1, 0.0025, 0.03, 5),), Counts.STEPS)


RATES = st.builds(
    ToldRate,
    nodes=st.integers(1, 9999),
    per_s=st.floats(1e-6, 1e12),
    error=st.floats(0.001, 0.999),
    at=st.integers(NOW - 9_000_000, NOW),
    batch=st.just(0.0) | st.floats(1, 1e9),
)
SECONDS = st.none() | st.floats(0, 9999)
TOLDS = st.builds(
    Progress,
    rates=st.lists(RATES, min_size=1, max_size=SIZES, unique_by=lambda rate: rate.nodes).map(
        lambda rates: tuple(sorted(rates, key=lambda rate: rate.at))
    ),
    in_samples=st.booleans(),
    sync=st.none() | st.floats(0, 1),
    pauses=st.builds(ToldPauses, *[SECONDS] * 4),
)


@many
@given(TOLDS)
def test_every_text_of_an_agent_is_read(progress: Progress) -> None:
    text = entry(progress)
    assert len(text) <= PROGRESS_WIDTH
    read_progress = parse_progress(text)
    assert read_progress is not None
    assert (read_progress.counts is Counts.SAMPLES) is progress.in_samples
    given = {rate.nodes: rate for rate in progress.rates}
    for read in read_progress.rates:
        rate = given[read.nodes]
        assert read.at == rate.at
        assert read.per_s == pytest.approx(rate.per_s, rel=1e-3)
        assert read.batch == pytest.approx(rate.batch, rel=1e-3)
        assert read.error == pytest.approx(rate.error, abs=1e-3)
    for read_s, told_s in zip(astuple(read_progress.pauses), astuple(progress.pauses)):
        assert read_s == (told_s if told_s is None else pytest.approx(told_s, abs=0.51))
    assert (read_progress.sync is None) is (progress.sync is None)


@many
@given(TOLDS)
def test_the_newest_size_is_always_written_and_the_smallest_before_the_others(
    progress: Progress,
) -> None:
    sizes = [rate.nodes for rate in earlier(entry(progress)).rates]  # type: ignore[union-attr]
    assert sizes[-1] == progress.rates[-1].nodes
    assert len(sizes) == 1 or min(rate.nodes for rate in progress.rates) in sizes


@many
@given(TOLDS)
def test_an_agent_that_starts_again_reads_its_own_entry(progress: Progress) -> None:
    """It reads the same rates as a tick."""
    again, seen = earlier(entry(progress)), parse_progress(entry(progress))
    assert again is not None
    assert seen is not None
    assert again.in_samples is (seen.counts is Counts.SAMPLES)
    assert [astuple(rate) for rate in again.rates] == [astuple(rate) for rate in seen.rates]


def test_no_more_is_read_than_an_agent_writes() -> None:
    """The rest is not read, even where the text after it is no entry."""
    assert parse_progress(TEXT + ",1:2/3/4" * 1000) == TOLD
    assert parse_progress("progress{s1" + ",1:2/3/4" * 1000 + "}") is None
    long = "progress{s1" + "".join(f",{n}:{'1' * 7}.{'1' * 8}/3/{'1' * 7}" for n in (1, 2, 3, 4))
    assert len(long) > PROGRESS_WIDTH
    assert parse_progress(long + "}") is None


def test_two_sizes_of_any_job_have_room() -> None:
    rates = [ToldRate(n, 1.2345e-5, 0.999, NOW - n, 1.234e-5) for n in (9998, 9999)]
    progress = Progress(tuple(rates), True, 1.0, ToldPauses(*[9999.0] * 4))
    assert len(parse_progress(entry(progress)).rates) == 2  # type: ignore[union-attr]


@many
@given(st.floats(1e-9, 1e15))
def test_numbers_are_short_and_right(value: float) -> None:
    assert float(number(value)) == pytest.approx(value, rel=1e-3)
    assert len(number(value)) <= 9


HOSTILE = [
    "",
    "progress{}",
    "progress{s,1:2/3/4}",
    "progress{s1}",
    "progress{s1,}",
    "progress{s1,p1/2/3/4}",  # no rate
    "progress{s1,1:nan/3/4}",
    "progress{s1,1:inf/3/4}",
    "progress{s1,1:-2/3/4}",
    "progress{s1,-1:2/3/4}",
    "progress{s1,0:2/3/4}",
    "progress{s1,1:0/3/4}",
    "progress{s1,1:1e99/3/4}",
    "progress{s1,1:1/3/1e99}",
    "progress{s1,1:1e-99/3/4}",
    "progress{s1,1:2/3/4,1:2/3/4}",
    "progress{s1,1:2/3/4,2:2/3/4,3:2/3/4,4:2/3/4,5:2/3/4}",
    "progress{s1,1:2/3/4,y101}",
    "progress{s1,1:2/3/4,z1}",
    "progress{s\u0661,\u0661:2/3/4}",
    "progress{x1,1:2/3/4}",
    "progress{s1,1:2/3/4",
    " progress{s1,1:2/3/4}",
    "progress{s9999999999999,1:2/3/4}",
    "progress{s1,99999999:2/3/4}",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_text_that_no_agent_writes_is_ignored(text: str) -> None:
    assert parse_progress(text) is None


@pytest.mark.parametrize("text", [*HOSTILE, "progress{s1,1:e/3/4}", "progress{s1,1:9e999/3/9e999}"])
def test_text_that_no_agent_writes_harms_no_agent_that_starts_again(text: str) -> None:
    """Its own user has written it. At worst it is a rate that was never measured."""
    rates = Rates()
    rates.recall(earlier(text))
    rates.note(2, Steady(5.0, 0.1, 1.0), NOW)
    progress = rates.as_progress(None, ToldPauses(), None)
    assert parse_progress(entry(progress)) is not None


@pytest.mark.parametrize(
    ("changes", "is_other"),
    [
        ({"per_s": 102.0}, False),
        ({"per_s": 94.9}, True),
        ({"per_s": 105.1}, True),
        ({"batch": 66.0}, False),
        ({"batch": 128.0}, True),
        ({"error": 0.001}, False),
        ({"at": NOW + REFRESH_S}, False),
        ({"at": NOW - 1}, True),
    ],
)
def test_a_rate_that_differs_by_more_than_its_error_is_news(
    changes: dict[str, float], is_other: bool
) -> None:
    values = {"nodes": 4, "per_s": 100.0, "error": 0.02, "at": NOW + 60, "batch": 64.0}
    before = ToldRate(4, 100.0, 0.02, NOW, 64.0)
    assert differs(before, ToldRate(**{**values, **changes})) is is_other  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "after_s", "again"),
    [(0.02, 60, False), (0.011, 60, False), (0.009, 60, True), (0.02, REFRESH_S, True)],
)
def test_an_unchanged_rate_is_written_again_now_and_then(
    error: float, after_s: int, again: bool
) -> None:
    before = ToldRate(4, 100.0, 0.02, NOW)
    assert is_due(before, ToldRate(4, 100.0, error, NOW + after_s)) is again


def test_only_news_is_written() -> None:
    told_, new = Progress((ToldRate(1, 5.0, 0.1, NOW),)), Progress((ToldRate(1, 5.0, 0.1, NOW),))
    assert is_news(None, new)
    assert not is_news(told_, new)
    assert is_news(told_, Progress(new.rates, pauses=ToldPauses(grow_s=9.0)))
    paused = Progress(new.rates, pauses=ToldPauses(grow_s=9.0))
    assert not is_news(paused, Progress(new.rates, pauses=ToldPauses(grow_s=10.9)))
    assert is_news(paused, Progress(new.rates, pauses=ToldPauses(grow_s=12.0)))
