"""Rules and dashboard in a real Prometheus that watches a real Slurm with a malleable job."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from metrics.dashboard import DASHBOARDS, Question, questions
from metrics.draw_dashboard import Answers, draw
from metrics.test_exposition import free_port
from promises.bench import Bench, has
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = pytest.mark.prometheus
ROOT = Path(__file__).parents[2]
WATCHED_S = 25.0


def program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed (Debian: apt-get install prometheus)")
    return path


def promtool(*words: str) -> str:
    done = subprocess.run(
        [program("promtool"), *words],
        cwd=DASHBOARDS,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_rules_are_valid_and_have_the_described_effect() -> None:
    assert "12 rules found" in promtool("check", "rules", "malleable.rules.yml")
    promtool("test", "rules", "malleable.rules.test.yml")


@contextmanager
def running(*words: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs until the end of the block, and is then ended by its own number."""
    variables = {**os.environ, "PYTHONPATH": f"{ROOT}", **environment}
    with subprocess.Popen(
        words, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


@dataclass(frozen=True)
class Prometheus:
    """A Prometheus on loopback that has been told where the metrics are."""

    port: int

    def get(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{query}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.loads(answer.read())["data"]

    def value(self, expr: str) -> list[float]:
        return [float(r["value"][1]) for r in self.get("query", query=expr)["result"]]

    def answers(
        self, asked: list[Question], past_s: float, now: float, step_s: float = 2
    ) -> Answers:
        """The values of each panel: a number, or curves of the time before `now`."""
        span = {"start": str(now - past_s), "end": str(now), "step": str(step_s)}
        results = []
        for q in asked:
            if q.kind == "stat":
                data = self.get("query", query=q.expr, time=str(now))
            else:
                data = self.get("query_range", query=q.expr, **span)
            results.append((q.panel, q.legend, data["result"]))
        return results

    def is_ready(self) -> bool:
        try:
            return bool(self.get("query", query="vector(1)"))
        except OSError:
            return False

    def is_up(self) -> bool:
        try:
            return self.value("malleable_ledger_readable") == [1.0]
        except OSError:
            return False


@contextmanager
def prometheus(place: Path, target: str) -> Iterator[Prometheus]:
    """A Prometheus that scrapes `target` every second, with our rules."""
    rules = place / "malleable.rules.yml"
    shutil.copy(DASHBOARDS / rules.name, rules)
    config = place / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        f"rule_files: [{rules}]\n"
        "scrape_configs: [{job_name: malleable, static_configs: "
        f"[{{targets: ['{target}']}}]}}]\n"
    )
    promtool("check", "config", str(config))
    port = free_port()
    words = (
        program("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={place}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    with running(*words):
        yield Prometheus(port)


@contextmanager
def watched_site(box: Sandbox, place: Path) -> Iterator[Prometheus]:
    """Ticks every second, the endpoint, and Prometheus."""
    cli = (sys.executable, "-m", "slurm_hooks.cli")
    target = f"127.0.0.1:{free_port()}"
    with ExitStack() as started:
        started.enter_context(running(*cli, "reconcile", "--loop", "1", **box.environment))
        started.enter_context(running(*cli, "metrics", "--listen", target, **box.environment))
        server = started.enter_context(prometheus(place, target))
        wait_until(server.is_up)
        yield server


def a_lively_half_minute(bench: Bench) -> None:
    """A malleable job grows, loses two fragments to an ordinary job, and grows again."""
    job = bench.submit("exec sleep 600", "1-4")
    bench.until(job, has(4))
    time.sleep(WATCHED_S / 3)
    bench.box.run(
        ["sbatch", "-p", "main", "-N2", "--exclusive", "--output=/dev/null", "--wrap", "sleep 3"]
    )
    time.sleep(WATCHED_S * 2 / 3)


@pytest.mark.slurm
def test_every_panel_and_rule_has_data(sandbox: Sandbox, tmp_path: Path) -> None:
    program("prometheus")
    bench = Bench(sandbox)
    with watched_site(sandbox, tmp_path) as server:
        a_lively_half_minute(bench)
        asked = questions("30s", "5s")
        empty = [(q.panel, q.expr) for q in asked if not server.value(q.expr)]
        draw(server.answers(asked, 240, time.time()), tmp_path / "dashboard.png")
        assert {panel for panel, _ in empty} <= {
            "Unused GPUs, and where"
        }  # not every site has GPUs
        assert server.value('malleable_ends_total{how="preempted"}') == [2.0]
        assert server.value("malleable:harvested_nodes:rate5m")[0] > 0
        assert 0 < server.value("malleable:used_share:ratio_rate1h")[0] <= 1
        groups = server.get("rules")["groups"]
        faults = [r["lastError"] for g in groups for r in g["rules"] if r.get("lastError")]
        assert faults == []
        alerts = server.get("alerts")["alerts"]
        assert [a for a in alerts if a["state"] == "firing"] == []
        bench.cancel_all()
