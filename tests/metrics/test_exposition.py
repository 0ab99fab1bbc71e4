"""The metrics: their text, the file, the endpoint."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ledger.books import busy_slurm, one_tick, settings_in
from metrics.dashboard import board, colours_of, questions, words_of
from slurm_hooks import cli
from slurm_hooks.errors import UsageError
from slurm_hooks.history.harvest.totals import USABLE
from slurm_hooks.history.metrics import write_textfile
from slurm_hooks.model import Of
from slurm_hooks.report.harvest_charts import BARS
from slurm_hooks.report.harvest_text import HOW_ENDED
from slurm_hooks.report.palette import IDLE, LOST, OTHERS, OURS, OUT
from slurm_hooks.settings.values import Settings
from waiting import wait_until

ROOT = Path(__file__).parents[2]
PROM = "malleable.prom"
NODES = {"ours": OURS, "others": OTHERS, "idle": IDLE, "out_of_service": OUT}
UNITS = ("_total", "_seconds", "_bytes", "_info", "_readable", "_jobs", "_nodes", "_cpus", "_gpus")


@pytest.mark.parametrize("name", ["malleable.json", "malleable.rules.yml"])
def test_efficiency_counts_the_same_nodes_everywhere(name: str) -> None:
    """The report, the dashboard and the rules call the same idle nodes usable."""
    text = (ROOT / "etc" / "dashboards" / name).read_text().replace("\\", "")
    lists = re.findall(r'malleable_idle_node_seconds_total\{reason=~"([a-z_|]+)"', text)
    assert lists
    assert {frozenset(each.split("|")) for each in lists} == {frozenset(r.value for r in USABLE)}


def with_textfile(directory: Path, by_user: bool = False) -> Settings:
    settings = settings_in(directory)
    chosen = replace(settings.metrics, textfile=str(directory / PROM), by_user=by_user)
    return replace(settings, metrics=chosen)


def values(text: str) -> dict[str, float]:
    """Samples by name and labels, as read by Prometheus's own parser."""
    by_name = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))
            by_name[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return by_name


def after_ticks(directory: Path, ticks: int = 12, by_user: bool = False) -> dict[str, float]:
    settings, slurm = with_textfile(directory, by_user), busy_slurm()
    for _ in range(ticks):
        assert one_tick(slurm, settings)[1] == ()
        slurm.advance(10)
    return values((directory / PROM).read_text())


def test_the_file_has_the_events(tmp_path: Path) -> None:
    samples = after_ticks(tmp_path)
    assert samples["malleable_ticks_total"] == 12
    assert samples["malleable_nodes{use=ours}"] == 6
    assert 110 * 5 < samples["malleable_harvested_node_seconds_total"] <= 110 * 6
    assert samples["malleable_last_tick_timestamp_seconds"] == 1_800_000_110
    assert samples["malleable_ends_total{how=preempted}"] == 0
    assert samples["malleable_limited_jobs{reason=maximum}"] == 2
    assert samples["malleable_limited_jobs{reason=held}"] == 0
    assert stat.S_IMODE((tmp_path / PROM).stat().st_mode) == 0o644
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_an_interrupted_fragment_is_counted_from_its_start(tmp_path: Path) -> None:
    settings, slurm = with_textfile(tmp_path), busy_slurm()
    for step in range(12):
        one_tick(slurm, settings)
        if step == 6:
            slurm.preempt("1_0")
        slurm.advance(10)
    samples = values((tmp_path / PROM).read_text())
    name = "malleable_interrupted_node_seconds_total"
    assert 60 <= samples[f"{name}{{how=preempted}}"] <= 70
    assert samples[f"{name}{{how=node_failed}}"] == 0


def test_every_metric_is_on_the_page(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "admins" / "metrics.md").read_text()
    text = text.replace("`...", "`malleable_last_tick")
    names = {name.partition("{")[0] for name in after_ticks(tmp_path)}
    assert len(names) > 20
    assert {name for name in names if f"`{name}" not in text} == set()


def test_no_growth_is_shown_with_its_age(tmp_path: Path) -> None:
    assert after_ticks(tmp_path, 1)["malleable_no_growth_seconds"] == 0
    place = Path(settings_in(tmp_path).tick.state_dir) / "no-growth"
    place.touch()
    os.utime(place, (1_800_000_000 - 7200,) * 2)
    samples = after_ticks(tmp_path, 1)
    assert samples["malleable_no_growth_seconds"] == 7200
    os.utime(place, (1_900_000_000,) * 2)
    assert after_ticks(tmp_path, 1)["malleable_no_growth_seconds"] == 1


def test_names_have_units_and_no_number_of_a_job_or_name_of_a_user(tmp_path: Path) -> None:
    samples = after_ticks(tmp_path)
    assert all(name.startswith("malleable_") for name in samples)
    names = {name.partition("{")[0] for name in samples}
    assert {name for name in names if not name.endswith(UNITS)} == set()
    labels = {label for name in samples for label in re.findall(r"[{,](\w+)=", name)}
    assert labels == {"version", "reason", "how", "use", "where"}
    assert "nobody" not in str(samples)


def test_the_page_names_every_reason_and_the_dashboard_shows_them(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "admins" / "metrics.md").read_text()
    assert [why.value for why in Of.JOB.whys if f"`{why.value}`" not in text] == []
    samples = after_ticks(tmp_path, 1)
    limited = [name for name in samples if name.startswith("malleable_limited_jobs{")]
    assert limited == [f"malleable_limited_jobs{{reason={why.value}}}" for why in Of.JOB.whys]
    shown = [q.expr for q in questions("1h", "1m")]
    assert any("malleable_limited_jobs" in expr for expr in shown)


def test_the_dashboard_has_the_colours_of_the_report() -> None:
    assert colours("Nodes of the malleable partitions") == NODES
    assert colours("Idle nodes, and why") == {w.value: BARS[w][1] for w in Of.IDLE.whys}
    places = {"idle": IDLE, "part": "#56B4E9", "stranded": OUT}
    assert colours("Unused GPUs, and where") == colours("Unused CPUs, and where") == places
    assert colours("Ends of runs in the last hour") == {"left": OURS, "preempted": LOST}


def test_the_legends_of_the_dashboard_are_words() -> None:
    assert words("Idle nodes, and why") == {why.value: BARS[why][0] for why in Of.IDLE.whys}
    ends = words("Ends of runs in the last hour")
    assert ends == {why.value: HOW_ENDED[why] for why in Of.END.whys}
    limits = words("Malleable jobs, and their limits")
    assert set(limits) == {why.value for why in Of.JOB.whys}
    assert set(words("Nodes of the malleable partitions")) == set(NODES)
    legends = [
        *limits.values(),
        *ends.values(),
        *words("Nodes of the malleable partitions").values(),
    ]
    assert [text for text in legends if "_" in text] == []


def words(title: str) -> dict[str, str]:
    """The words of a panel's legend, by name of the curve."""
    return words_of(panel(title))


def colours(title: str) -> dict[str, str]:
    """The colours that a panel fixes, by name of the curve."""
    return colours_of(panel(title))


def panel(title: str) -> dict[str, Any]:
    (shown,) = (p for p in board()["panels"] if p["title"] == title)
    return shown


def test_users_only_if_the_site_says_so(tmp_path: Path) -> None:
    samples = after_ticks(tmp_path, by_user=True)
    whole = samples["malleable_harvested_node_seconds_total"]
    assert samples["malleable_user_harvested_node_seconds_total{user=nobody}"] == whole > 0


def test_a_file_that_cannot_be_written_costs_a_line(tmp_path: Path) -> None:
    settings = with_textfile(tmp_path)
    where = replace(settings.metrics, textfile=str(tmp_path / "none" / PROM))
    report, (line,) = one_tick(busy_slurm(), replace(settings, metrics=where))
    assert "metrics.textfile" in line
    assert "No such file or directory" in line
    assert report.plan.actions


def in_the_way(settings: Settings) -> None:
    """An obstacle: no ledger can be written to it, nor read from it."""
    (Path(settings.tick.state_dir) / "ledger.sqlite").mkdir(parents=True)


def test_an_unreadable_ledger_is_reported_in_the_file(tmp_path: Path) -> None:
    settings = with_textfile(tmp_path)
    in_the_way(settings)
    _, (line,) = one_tick(busy_slurm(), settings)
    assert "not in the ledger" in line
    assert values((tmp_path / PROM).read_text()) == {"malleable_ledger_readable": 0}


def test_a_read_only_ledger_is_shown_unchanged(tmp_path: Path) -> None:
    settings, slurm = with_textfile(tmp_path), busy_slurm()
    one_tick(slurm, settings)
    (tmp_path / PROM).unlink()
    with closing(sqlite3.connect(tmp_path / "state/ledger.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        slurm.advance(10)
        _, (line,) = one_tick(slurm, settings)
    assert "locked" in line
    assert values((tmp_path / PROM).read_text())["malleable_ticks_total"] == 1


def test_ledger_and_file_that_cannot_be_written_are_both_reported(tmp_path: Path) -> None:
    settings = with_textfile(tmp_path / "none")
    settings = replace(settings, tick=settings_in(tmp_path).tick)
    in_the_way(settings)
    _, (of_ledger, of_file) = one_tick(busy_slurm(), settings)
    assert "not in the ledger" in of_ledger
    assert "metrics.textfile" in of_file


def test_a_damaged_ledger_is_reported_beside_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    settings = with_textfile(tmp_path / "none")
    settings = replace(settings, tick=settings_in(tmp_path).tick)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "ledger.sqlite").write_text("damaged " * 1000)
    _, (of_ledger, of_file) = one_tick(busy_slurm(), settings)
    assert "was damaged" in of_ledger
    assert "metrics.textfile" in of_file


def test_readers_see_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / PROM
    path.symlink_to(tmp_path / "elsewhere")
    for text in (b"one\n", b"two\n"):
        write_textfile(path, text)
        assert path.read_bytes() == text
    assert not path.is_symlink()
    assert not (tmp_path / "elsewhere").exists()


def test_the_file_takes_the_place_of_no_device(tmp_path: Path) -> None:
    path = tmp_path / PROM
    os.mkfifo(path)
    with pytest.raises(FileExistsError, match="it is not a regular file"):
        write_textfile(path, b"one\n")
    assert list(tmp_path.iterdir()) == [path]
    assert path.is_fifo()


def test_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    after_ticks(tmp_path, 3)
    path = tmp_path / "malleable.toml"
    path.write_text(f'[tick]\nstate_dir = "{tmp_path}/state"\n')
    assert cli.main(["metrics", "--settings", str(path)]) == 0
    printed = values(capsys.readouterr().out)
    assert printed["malleable_ticks_total"] == 3
    assert cli.main(["metrics", "--settings", str(path), "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)["metrics"]
    assert {each["name"] for each in metrics} == {name.partition("{")[0] for name in printed}
    path.write_text(f'[tick]\nstate_dir = "{tmp_path}/none"\n')
    assert cli.main(["metrics", "--settings", str(path)]) == UsageError.exit_code
    assert "The first tick creates it" in capsys.readouterr().err


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    """The address of `malleable metrics --listen` on the ledger of this test."""
    settings = tmp_path / "malleable.toml"
    settings.write_text(f'[tick]\nstate_dir = "{tmp_path}/state"\n')
    address = f"127.0.0.1:{free_port()}"
    words = ["metrics", "--settings", str(settings), "--listen", address]
    with subprocess.Popen(
        [sys.executable, "-m", "slurm_hooks.cli", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert address in process.stderr.readline()
        yield f"http://{address}/metrics"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def scrape(url: str) -> dict[str, float]:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return values(answer.read().decode())


def test_over_http_with_and_without_a_ledger(tmp_path: Path, endpoint: str) -> None:
    assert scrape(endpoint) == {"malleable_ledger_readable": 0}
    after_ticks(tmp_path, 2)
    assert scrape(endpoint)["malleable_ticks_total"] == 2
    (tmp_path / "state" / "ledger.sqlite").write_text("damaged " * 1000)
    wait_until(lambda: scrape(endpoint) == {"malleable_ledger_readable": 0})


def test_a_text_that_is_no_address(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["metrics", "--listen", "9777"]) == 64
    assert "must be ADDRESS:PORT" in capsys.readouterr().err
