"""What `make bench-learned-curves` measures by itself: its verdict is only as good as this."""

from __future__ import annotations

from pathlib import Path

import pytest
from learned_curves import Row, rate, span, steps


def noted(path: Path, times: list[float]) -> Path:
    """Steps on 32 samples each, and one that is being written."""
    path.write_text("".join(f"{at} 32\n" for at in times) + "99.")
    return path


def test_a_rate_is_that_of_steps_that_nothing_held_up(tmp_path: Path) -> None:
    times = [0.25 * n for n in range(41)]
    late = [at + 4.0 for at in times[21:]]  # an evaluation of 4 s in between
    notes = noted(tmp_path / "own", times[:21] + late)
    found = steps(notes)
    assert span(notes) == 14.0
    assert rate(found, 30.0) == pytest.approx(32 / 0.25)
    slow = [(at if at < 10 else 10 + 2 * (at - 10), n) for at, n in found]
    assert rate(slow, 6.0) == pytest.approx(32 / 0.5)  # what was before does not count


def test_notes_that_are_not_there_yet(tmp_path: Path) -> None:
    assert span(tmp_path / "own") == 0.0


def test_a_speed_up_is_off_by_its_part() -> None:
    row = Row("plain", 2, told=110, own=100, learned=1.76, measured=1.6)
    assert row.off == pytest.approx(0.1)
