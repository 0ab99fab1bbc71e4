"""Play a recorded log with the reconciler on the tests' Slurm: the pictures in the documents.

    PYTHONPATH=.:tests python tests/metrics/recorded_week.py LOG.swf.gz DIRECTORY

The jobs of the log start at their recorded times, on the lowest free nodes, and announce their
start from their submission on. Five made-up users always have a malleable job each. Ticks, plans
and ledger are the shipped programs, training is imitated. DIRECTORY gets `malleable.toml`, with
which `malleable report` reads the ledger, `dashboard.png`, for which a real Prometheus answers, and
`report.png`, the page in a real browser. Both pictures say that the week is simulated.
"""

from __future__ import annotations

import heapq
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import count
from pathlib import Path

from browsing import browser
from fake_parts import FINISHED, START, Rigid, Script
from fake_slurm import FakeSlurm
from metrics.dashboard import questions
from metrics.draw_dashboard import draw
from metrics.test_exposition import free_port
from metrics.test_prometheus import Prometheus, program, running
from slurm_hooks import cli
from slurm_hooks.history.metrics import text_of
from slurm_hooks.replay.logs.log_lines import Log
from slurm_hooks.replay.logs.swf import Workload, read_swf
from slurm_hooks.settings.values import Mode, Settings
from slurm_hooks.tick.bookkeeping import keep_books, ledger_standing
from slurm_hooks.tick.reconcile import tick
from waiting import wait_until

TICK_S = 60
SCRAPE_S = 300
STEP_S = 1800  # between two points of a curve
SIMULATED = "A simulated week, from no site"
MARK = "malleable{{min={0},max={1},unit=1,engine=torchrun,frags={1},lease=3600,hole=120,name={2}}}"


@dataclass
class Person:
    """A user with a single malleable job at a time, each with `work_s` node-seconds of work."""

    user: str
    name: str
    sizes: tuple[int, int]
    work_s: float
    job: int = 0
    done_s: float = 0.0

    def look(self, slurm: FakeSlurm, job_ids: Iterator[int]) -> None:
        """Count the work since the last tick. At the end of a job submit the next."""
        elements = slurm.of(self.job)
        self.done_s += TICK_S * sum(element.state == "RUNNING" for element in elements)
        if all(element.state in FINISHED for element in elements):
            self.job, self.done_s = next(job_ids), 0.0
            slurm.submit(self.job, self.sizes[1], MARK.format(*self.sizes, self.name), 60, Script())
            for element in slurm.of(self.job):
                element.user = self.user
        elif self.done_s > self.work_s:
            slurm.jobs[self.job].script.is_done = True


def people() -> tuple[Person, ...]:
    return (
        Person("ada", "resnet", (2, 16), 300 * 3600.0),
        Person("grace", "bert", (1, 8), 120 * 3600.0),
        Person("alan", "trial", (1, 4), 40 * 3600.0),
        Person("mary", "diffusion", (1, 12), 200 * 3600.0),
        Person("kurt", "gpt", (2, 8), 90 * 3600.0),
    )


def placed(workload: Workload, names: list[str]) -> list[Rigid]:
    """The jobs of the log on nodes, in the order of their submissions."""
    free, ends, rigid = list(range(len(names))), [], []
    for number, job in enumerate(sorted(workload.jobs, key=lambda job: job.start_s), 9001):
        while ends and ends[0][0] <= job.start_s:
            for node in heapq.heappop(ends)[1]:
                heapq.heappush(free, node)
        got = [heapq.heappop(free) for _ in range(min(job.nodes, len(free)))]
        heapq.heappush(ends, (job.end_s, got))
        nodes = frozenset(names[node] for node in got)
        seen, start = START + int(job.submit_s), START + int(job.start_s)
        rigid.append(Rigid(number, nodes, seen, start, max(1, int(job.run_s))))
    return sorted((job for job in rigid if job.nodes), key=lambda job: job.seen)


def settings_in(directory: Path) -> Settings:
    shipped = Settings(mode=Mode("on"))
    where = {"lock": str(directory / "tick.lock"), "state_dir": str(directory / "state")}
    (directory / "malleable.toml").write_text(f'[tick]\nstate_dir = "{where["state_dir"]}"\n')
    return replace(shipped, tick=replace(shipped.tick, every_s=TICK_S, **where))


def play(workload: Workload, settings: Settings) -> Iterator[tuple[int, str]]:
    """Each scrape: its moment, and the metrics."""
    names = [f"gpu{number:02}" for number in range(1, workload.nodes + 1)]
    slurm, coming = FakeSlurm(dict.fromkeys(names, "")), placed(workload, names)
    everybody, job_ids = people(), count(1001)
    while slurm.now < START + workload.window_s:
        for person in everybody:
            person.look(slurm, job_ids)
        while coming and coming[0].seen <= slurm.now + TICK_S:
            slurm.rigid.append(coming.pop(0))
        slurm.rigid = [job for job in slurm.rigid if job.state != "COMPLETED"]
        keep_books(tick(slurm, settings), settings, slurm)
        if (slurm.now - START) % SCRAPE_S == 0:
            yield slurm.now, text_of(ledger_standing(settings), settings.metrics).decode()
        for kept in (slurm.commands, slurm.asked, slurm.history):
            kept.clear()
        slurm.advance(TICK_S)


def openmetrics(scrapes: list[tuple[int, str]]) -> str:
    """The input of `promtool tsdb create-blocks-from openmetrics`, curve by curve."""
    families: dict[str, list[str]] = {}
    for at, text in scrapes:
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                family = re.sub(r"_total counter$", " counter", line)
            elif not line.startswith("#"):
                families.setdefault(family, []).append(f"{line} {at}")
    curves = {family: sorted(lines, key=_curve_of) for family, lines in families.items()}
    lines = [line for family, samples in curves.items() for line in (family, *samples)]
    return "\n".join([*lines, "# EOF", ""])


def _curve_of(line: str) -> str:
    return line.rsplit(" ", 2)[0]


def picture(directory: Path, from_s: int, to_s: int) -> None:
    """The dashboard of that span, from a Prometheus that is given the metrics."""
    metrics, data, port = directory / "metrics.txt", directory / "prometheus", free_port()
    words = ["tsdb", "create-blocks-from", "openmetrics", str(metrics), str(data)]
    subprocess.run([program("promtool"), *words], check=True, stdout=subprocess.DEVNULL)
    (directory / "prometheus.yml").write_text("global: {}\n")
    with running(
        program("prometheus"),
        f"--config.file={directory}/prometheus.yml",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=10y",
        f"--web.listen-address=127.0.0.1:{port}",
    ):
        server = Prometheus(port)
        wait_until(server.is_ready, 60)
        asked = questions(f"{to_s - from_s}s", f"{STEP_S}s")
        answers = server.answers(asked, to_s - from_s - STEP_S, to_s, STEP_S)
        draw(answers, directory / "dashboard.png", f"{SIMULATED}: the dashboard")


def picture_of_page(directory: Path, from_s: int, to_s: int) -> None:
    """The page of `malleable report` for that span, in a browser."""
    page, heading = directory / "report.html", "<h1>Use of idle nodes</h1>"
    where = ["--settings", str(directory / "malleable.toml"), "--html", str(page)]
    span = ["--since", moment(from_s), "--until", moment(to_s)]
    assert cli.main(["report", *where, *span]) == 0
    before, _, after = page.read_text().partition(heading)
    page.write_text(f"{before}{heading.replace('Use', f'{SIMULATED}: use')}{after}")
    size, place = "--window-size=1240,1560", directory / "report.png"
    browser(directory, size, f"--screenshot={place}", f"file://{page.resolve()}")


def moment(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, timezone.utc).isoformat()


def main(log: Path, directory: Path) -> None:
    directory.mkdir(parents=True)
    scrapes = list(play(read_swf(Log(log)), settings_in(directory)))
    (directory / "metrics.txt").write_text(openmetrics(scrapes))
    span = scrapes[0][0], scrapes[-1][0]
    picture(directory, *span)
    picture_of_page(directory, *span)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
