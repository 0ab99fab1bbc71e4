"""GPUs and CPUs that no job uses, from a tick to the next: ledger, metrics, report."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from build import NOW, after, make_fragment, make_job, make_node, make_snapshot
from metrics.test_exposition import values
from slurm_hooks.history.database import reading, writing
from slurm_hooks.history.harvest.derive import record_of
from slurm_hooks.history.harvest.totals import Query, Standing, Totals
from slurm_hooks.history.harvest.values import Cost
from slurm_hooks.history.ledger import last_seen, prune, write
from slurm_hooks.history.metrics import text_of
from slurm_hooks.history.questions import standing, totals
from slurm_hooks.model import Intent, Node, NodeState, Plan, Resources, Snapshot, Verb, Why
from slurm_hooks.model.unused import Unused
from slurm_hooks.report.harvest_charts import charts
from slurm_hooks.report.harvest_json import harvest_data
from slurm_hooks.report.harvest_text import headline, tables
from slurm_hooks.report.json_data import tick_data
from slurm_hooks.report.text import tick_lines
from slurm_hooks.settings.values import Metrics, Mode, Settings
from slurm_hooks.tick.reconcile import rehearse

SETTINGS = Settings()
COST = Cost(0.1, 0.0, 2, 5, 0)


def gpu_node(name: str, state: NodeState, cpus: int = 0, gpus: int = 0) -> Node:
    """A node of 32 CPUs and 8 GPUs of which so many are used."""
    used = Resources(cpus, 0, (("gpu", gpus),))
    return make_node(name, state, cpus=32, gres=(("gpu", 8),), used=used)


GPU_NODES = (
    gpu_node("n1", NodeState.FREE),
    gpu_node("n2", NodeState.SHARED, 8, 2),
    gpu_node("n3", NodeState.BUSY, 32, 7),
)
NOW_UNUSED = {"gpu": Unused(8, 6, 1), "cpu": Unused(32, 24, 0)}
JOB = make_job(make_fragment(0))


def seen(seconds: float, nodes: tuple[Node, ...] = GPU_NODES) -> Snapshot:
    return replace(make_snapshot(JOB, nodes=nodes), now=after(seconds))


@contextmanager
def books(path: Path, *ticks: tuple[Snapshot, Plan]) -> Iterator[tuple[Totals, Standing]]:
    """The contents of a ledger after these ticks."""
    for snapshot, plan in ticks:
        with writing(path, 8) as ledger:
            write(ledger, record_of(last_seen(ledger), snapshot, plan, COST, SETTINGS), {})
    with reading(path) as ledger:
        yield totals(ledger, Query(after(-9), after(9999))), standing(ledger)


def test_unused_resources_count_from_tick_to_tick(tmp_path: Path) -> None:
    ticks = [(seen(at), Plan()) for at in (0, 30, 60)]
    with books(tmp_path / "l", *ticks) as (sums, stands):
        assert sums.unused == {name: unused.times(60) for name, unused in NOW_UNUSED.items()}
        assert list(sums.unused) == ["gpu", "cpu"]
        assert {stands["unused_gpus", where] for where in ("idle", "part")} == {8, 6}
        assert stands["unused_gpu_seconds", "part"] == 6 * 60


def test_after_a_gap_the_last_tick_holds_for_a_bounded_time(tmp_path: Path) -> None:
    with books(tmp_path / "l", (seen(0), Plan()), (seen(5000), Plan())) as (sums, _):
        assert sums.unused["gpu"] == NOW_UNUSED["gpu"].times(120)


def test_resources_that_a_tick_gave_away_are_not_unused_until_the_next(tmp_path: Path) -> None:
    grow = Intent(JOB.fragments[0].id, Why.HOLE_OPEN, Verb.GROW, nodes=frozenset({"n1"}))
    with books(tmp_path / "l", (seen(0), Plan((grow,))), (seen(30), Plan())) as (sums, _):
        assert sums.unused["gpu"] == Unused(0, 6 * 30, 30)


def test_gpus_that_have_gone_are_booked_until_then(tmp_path: Path) -> None:
    ticks = (seen(0), Plan()), (seen(30, (make_node("n9"),)), Plan())
    with books(tmp_path / "l", *ticks) as (sums, stands):
        assert sums.unused["gpu"] == NOW_UNUSED["gpu"].times(30)
        assert stands["unused_gpus", "idle"] == 0


def test_old_rows_are_removed_and_counters_kept(tmp_path: Path) -> None:
    with (
        books(tmp_path / "l", (seen(0), Plan()), (seen(30), Plan())),
        writing(tmp_path / "l", 8) as ledger,
    ):
        prune(ledger, (NOW + timedelta(days=9)).timestamp(), 86_400, 8)
        assert ledger.execute("SELECT count(*) FROM event").fetchone() == (0,)
        assert standing(ledger)["unused_gpu_seconds", "idle"] == 8 * 30


def test_a_partly_used_node_belongs_to_others() -> None:
    record = record_of(None, seen(0), Plan(), COST, SETTINGS)
    nodes = [(e.label, e.value) for e in record.standing if e.name == "nodes" and e.label != "idle"]
    assert nodes == [("ours", 0), ("others", 2), ("out_of_service", 0)]


def test_metrics_show_the_place_of_unused_resources(tmp_path: Path) -> None:
    with books(tmp_path / "l", (seen(0), Plan()), (seen(30), Plan())) as (_, stands):
        samples = values(text_of(stands, Metrics()).decode())
    assert samples["malleable_unused_gpus{where=part}"] == 6
    assert samples["malleable_unused_gpus{where=stranded}"] == 1
    assert samples["malleable_unused_cpus{where=idle}"] == 32
    assert samples["malleable_unused_gpu_seconds_total{where=idle}"] == 8 * 30
    assert samples["malleable_unused_cpu_seconds_total{where=part}"] == 24 * 30


def bars_of(sums: Totals) -> str:
    """The bars of unused resources in the page."""
    pytest.importorskip("matplotlib")
    (chart,) = (c for c in charts(sums) if c.title == "Resources that no job used")
    return chart.svg


def test_the_report_shows_the_place_of_unused_resources(tmp_path: Path) -> None:
    ticks = [(seen(hours * 100.0), Plan()) for hours in range(37)]
    with books(tmp_path / "l", *ticks) as (sums, _):
        said = (
            "15.0 GPU-hours stayed unused: 8.00 on idle nodes, 6.00 (40.0%) on partly used nodes, "
            "and 1.00 without a free CPU or memory beside them"
        )
        assert said in headline(sums)
        (table,) = (t for t in tables(sums) if t.title == "Resources that no job used")
        assert table.rows[1] == ("GPUs", "on partly used nodes", "6.00", "40.0%", "6.0")
        assert [row[0] for row in table.rows] == ["GPUs"] * 3 + ["CPUs"] * 3
        bars = bars_of(sums)
        assert "GPU-hours" in bars
        assert "xtick_6" not in bars  # more numbers would overlap
        unused_hours = harvest_data(sums)["unused"]
        assert unused_hours["gpu"] == {"idle": 8 * 3600.0, "part": 6 * 3600.0, "stranded": 3600.0}


def test_without_gpus_no_line_names_them(tmp_path: Path) -> None:
    nodes = (make_node("n1"), make_node("n2", NodeState.BUSY))
    with books(tmp_path / "l", (seen(0, nodes), Plan()), (seen(30, nodes), Plan())) as said:
        sums, stands = said
        assert sums.unused == {"cpu": Unused(idle=30)}
        assert b"gpu" not in text_of(stands, Metrics()).lower()
        words = [
            *headline(sums),
            *(" ".join((t.title, *row)) for t in tables(sums) for row in t.rows),
        ]
        assert [line for line in words if "GPU" in line] == []


def test_a_tick_without_changes_reports_unused_resources() -> None:
    report = rehearse(seen(0), Settings(mode=Mode("on")))
    said = "15 GPUs that no job uses: 8 on idle nodes, 6 on partly used nodes, 1 stranded"
    assert said in tick_lines(report)
    assert said not in tick_lines(replace(report, is_dry=False))
    assert tick_data(report)["unused"] == NOW_UNUSED
