"""The common way to print a moment, and to read moments and durations."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from slurm_hooks import cli
from slurm_hooks.model.moments import iso, local, read_moment, read_span, shown

PACKAGE = Path(__file__).parents[2] / "slurm_hooks"
NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_people_see_their_own_time_with_its_zone(new_york: None) -> None:
    assert shown(NOON) == "2026-03-01 07:00:00 EST"
    assert shown(NOON, NOON + timedelta(hours=16)) == "07:00:00 EST"
    assert shown(NOON, NOON + timedelta(hours=17)) == "2026-03-01 07:00:00 EST"


@pytest.mark.parametrize("zone", ["AAA99", "ABC-24:59:59", "Foo/Bar", ":", "\udcff"])
def test_a_zone_that_does_not_exist_is_no_stack_trace(
    monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    """Python has no offset of a day or more."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert shown(NOON, NOON).startswith("12:00:00")
        assert read_moment("2026-03-01T12:00", NOON).timestamp() == NOON.timestamp()
        assert iso(local(NOON)) == "2026-03-01T12:00:00+00:00"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_no_other_module_asks_for_local_time() -> None:
    modules = [
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if ".astimezone()" in path.read_text()
    ]
    assert modules == ["model/moments.py"]


def test_programs_see_a_single_form(new_york: None) -> None:
    assert iso(NOON.astimezone()) == iso(NOON) == "2026-03-01T12:00:00+00:00"


def test_no_other_module_prints_a_moment() -> None:
    modules = [
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if "elastic" not in path.parts and re.search(r":%H:%M|\.isoformat\(", path.read_text())
    ]
    assert sorted(modules) == ["model/moments.py"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90), ("1.5", 1.5), ("90s", 90), ("30m", 1800), ("2h30m", 9000), ("7d", 604_800),
        ("1:30:00", 5400), ("1:30", 90), ("1-00:00:00", 86_400), ("0s", 0),
    ],
)  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    assert read_span(text) == seconds


@pytest.mark.parametrize("text", ["", "x", "-1", "2h30", "1:3", "²", "1e999", "9" * 12, "nan"])
def test_texts_that_are_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration: write|too long"):
        read_span(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("now", "12:00 1"), ("2h30m", "09:30 1"), ("7d", "12:00 22"), ("yesterday", "00:00 28"),
        ("today", "00:00 1"), ("1:30:00", "10:30 1"), ("2026-03-01T13:00:00+01:00", "12:00 1"),
        ("2026-03-01T11:00:00Z", "11:00 1"), ("2026-02-28", None),
    ],
)  # fmt: skip
def test_moments(text: str, wanted: str | None) -> None:
    moment = read_moment(text, NOON)
    if wanted is None:
        assert moment == datetime(2026, 2, 28).astimezone()
    else:
        utc = moment.astimezone(timezone.utc)
        assert f"{utc:%H:%M} {utc.day}" == wanted


@pytest.mark.parametrize("text", ["", "soon", "90", "2026-13-01", "9" * 11 + "w"])
def test_texts_that_are_no_moment(text: str) -> None:
    with pytest.raises(ValueError, match="is not a moment"):
        read_moment(text, NOON)


@pytest.mark.parametrize("line", ["reconcile --loop 2h30", "top --every x", "test --timeout 1e3"])
def test_options_say_how_to_write_a_duration(capsys: pytest.CaptureFixture[str], line: str) -> None:
    assert cli.main(line.split()) == 64
    assert "write 90, 90s, 30m, 2h30m, 1:30:00 or 7d" in capsys.readouterr().err
