"""Benchmarks run by hand: their imports have to stay, and what decides a figure has to be right."""

from __future__ import annotations

import importlib
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a part of the benchmarks."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return lambda name: importlib.import_module(f"parts.{name}")


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("*.py")), ids=lambda path: path.stem)
def test_it_finds_its_imports_and_explains_itself(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")
    assert ended.value.code == 0
    assert path.name in capsys.readouterr().out


def every(step_s: float, begin: float, end: float, size: int) -> list[tuple[float, int]]:
    return [(begin + step_s * i, size) for i in range(round((end - begin) / step_s))]


def write_steps(work: Path, fragment: int, steps: list[tuple[float, int]]) -> None:
    with open(work / f"steps-{fragment}.log", "a") as file:
        file.writelines(f"{at:.3f} 1 {size}\n" for at, size in steps)


def test_a_pause_is_that_of_the_survivor_who_waited_longest(
    tmp_path: Path, part: Callable[[str], ModuleType]
) -> None:
    write_steps(tmp_path, 0, every(0.1, 10, 12, 3) + every(0.1, 13, 14, 2))
    write_steps(tmp_path, 1, every(0.1, 10, 11, 3) + every(0.1, 13, 14, 2))
    steps = part("rescale_steps").Steps(tmp_path)
    assert steps.pause([0], 10.5) == pytest.approx(1.1)
    assert steps.pause([0, 1], 10.5) == pytest.approx(2.1)


def test_a_change_has_taken_effect_when_the_last_survivor_trains_at_the_new_size(
    tmp_path: Path, part: Callable[[str], ModuleType]
) -> None:
    steps = part("rescale_steps").Steps(tmp_path)
    write_steps(tmp_path, 0, every(0.1, 10, 11, 3) + every(0.1, 12, 13, 2))
    write_steps(tmp_path, 1, every(0.1, 10, 11, 3) + every(0.1, 12.5, 12.8, 2))
    assert steps.arrival([0, 1], 2, 10.5) is None, "three steps may be a round that breaks"
    write_steps(tmp_path, 1, every(0.1, 12.8, 13.5, 2))
    assert steps.arrival([0, 1], 2, 10.5) == pytest.approx(12.5)


def test_holes_are_what_others_leave(part: Callable[[str], ModuleType]) -> None:
    day = part("soak_day")
    looks = [
        day.Seen(0, frozenset({"a"}), frozenset({"b"})),
        day.Seen(10, frozenset(), frozenset({"a", "b"})),
        day.Seen(30, frozenset({"b"}), frozenset({"a"})),
        day.Seen(40, frozenset({"a", "b"}), frozenset()),
    ]
    record = day.holes(looks, ["a", "b"])
    assert {(i.node, i.start_s, i.end_s) for i in record.intervals} == {(0, 10, 40), (1, 0, 30)}
    assert day.used_node_s(looks) == 10 + 2 * 20 + 10


def test_what_grows_without_end_is_a_leak(part: Callable[[str], ModuleType]) -> None:
    day = part("soak_day")
    samples = [(60.0 * i, {"steady": 7.0, "leaky": 2.0 * i}) for i in range(61)]
    found = {name: day.growth(samples, name) for name in ("steady", "leaky")}
    (told,) = day.leaks(found, {"steady": 0, "leaky": 50})
    assert told.startswith("leaky grew from")
    assert day.leaks(found, {"leaky": 200}) == []
