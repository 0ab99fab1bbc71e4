"""Benchmarks run by hand: their imports must work, and the calculation of a figure must be
right.
"""

from __future__ import annotations

import ast
import importlib
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from slurm_hooks.elastic.engines.gang.agent import GangAgent
from slurm_hooks.replay.record import Interval, Record

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a part of the benchmarks."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return lambda name: importlib.import_module(f"parts.{name}")


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("*.py")), ids=lambda path: path.stem)
def test_a_benchmark_finds_its_imports_and_prints_its_help(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")
    assert ended.value.code == 0
    assert path.name in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("*.py")), ids=lambda path: path.stem)
def test_a_benchmark_reads_only_options_that_it_has(path: Path) -> None:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    has = {text.lstrip("-").replace("-", "_") for text in texts if isinstance(text, str)}
    reads = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "options"
    }
    assert reads <= has


def test_the_time_between_two_rounds_is_read_from_the_log_of_an_agent(
    part: Callable[[str], ModuleType], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    agent = object.__new__(GangAgent)
    vars(agent).update(
        _crew=SimpleNamespace(begin_round=lambda *_: True),
        _session=SimpleNamespace(rank=0, is_broken=False),
        _ended_at=time.monotonic() - 7.0,
        _watch=lambda: 0,
    )
    agent._live(SimpleNamespace(number=2))  # type: ignore[arg-type]
    (tmp_path / "fragment-0.log").write_text(capfd.readouterr().err)
    assert part("rescale_steps").between(tmp_path, [0]) == pytest.approx(7.0, abs=0.5)


def test_holes_are_the_free_time_of_others(part: Callable[[str], ModuleType]) -> None:
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


def test_memory_that_grows_without_end_is_a_leak(part: Callable[[str], ModuleType]) -> None:
    day = part("soak_day")
    samples = [(60.0 * i, {"steady": 7.0, "leaky": 2.0 * i}) for i in range(61)]
    growths = {name: day.growth(samples, name) for name in ("steady", "leaky")}
    (leak,) = day.leaks(growths, {"steady": 0, "leaky": 50})
    assert leak.startswith("leaky grew from")
    assert day.leaks(growths, {"leaky": 200}) == []


def test_an_element_starts_only_where_its_limit_ends_before_a_planned_start(
    part: Callable[[str], ModuleType],
) -> None:
    week = part("lane_week")
    record = Record((Interval(0, 0, 1000), Interval(1, 0, 500, known_s=0)), 2, 0, 1000)

    def used(limit_s: float) -> float:
        rules = week.Rules(2, 1, limit_s, is_malleable=False)
        tally = week.Lane(record, rules, week.KEEPS).run()
        assert tally.steps_a_day > 0
        return float(tally.ledger.used_node_s)

    assert used(600) == 1000
    assert used(400) == 1000 + 400


def test_an_element_whose_node_was_taken_is_woken_only_by_others(
    part: Callable[[str], ModuleType],
) -> None:
    week = part("lane_week")
    holes = (Interval(1, 0, 200), Interval(1, 205, 1000))

    def used(*others: Interval) -> float:
        record = Record((*holes, *others), 2, 0, 1000)
        rules = week.Rules(1 + len(others), 1, 1e6)
        tally = week.Lane(record, rules, week.KEEPS).run()
        assert tally.steps_a_day > 0
        return float(tally.ledger.used_node_s)

    assert used() == 200 + (1000 - 200 - week.HELD_S)
    assert used(Interval(0, 0, 1000)) == 1000 + 200 + (1000 - 200 - week.WOKEN_S)


def test_an_ordinary_job_loses_all_its_nodes_and_the_steps_since_its_file(
    part: Callable[[str], ModuleType],
) -> None:
    week = part("lane_week")
    record = Record((Interval(0, 0, 1000), Interval(1, 0, 650)), 2, 0, 1000)
    rules = week.Rules(1, 2, 1e6, is_malleable=False)
    tally = week.Lane(record, rules, week.Costs(300.0)).run()
    rates = week.JOB.rates
    assert tally.steps_a_day * 1000 / 86_400 == pytest.approx(600 * rates[2] / rates[1])
    assert (tally.losses, tally.gone, tally.ledger.used_node_s) == (1, 1, 2 * 650)
