"""On a real Slurm: the books of ticks agree with Slurm, and a job's end is summed up."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from contextlib import closing
from typing import Any

import pytest

from promises.bench import Bench, has
from slurm_hooks.history.place import ledger_path
from slurm_hooks.slurm.text import fold
from waiting import wait_until

pytestmark = pytest.mark.slurm


def reconcile(bench: Bench) -> None:
    done = bench.malleable("reconcile")
    assert (done.returncode, done.stderr) == (0, "")


def tick_until(bench: Bench, job: int, count: int) -> None:
    def is_so() -> bool:
        reconcile(bench)
        return has(count)(bench.job(job))

    wait_until(is_so, explain=lambda: bench.states(job), every_s=1)


def report(bench: Bench, *words: str) -> dict[str, Any]:
    done = bench.malleable("report", "--since", "1h", "--json", *words)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_the_report_agrees_with_slurm(bench: Bench) -> None:
    job = bench.submit("exec sleep 600", "1-3", options=["--account=physics"])
    tick_until(bench, job, 3)
    starts = {f.id: f.start for f in bench.job(job).fragments}
    bench.box.run(
        ["sbatch", "-p", "main", "-N3", "--exclusive", "--output=/dev/null", "--wrap", "sleep 2"]
    )
    bench.until(job, has(1))
    tick_until(bench, job, 3)
    reconcile(bench)
    sums = report(bench)
    lasting = [f for f in bench.job(job).fragments if f.start == starts[f.id]]
    last = sums["last"]
    assert len(lasting) == 1
    assert sums["interruptions"] == 2
    assert {e["kind"] for e in sums["ends"]} == {"preempted"}
    assert sums["delayed_jobs"] == 0
    assert sums["uncertain_node_s"] == 0
    assert [(a["name"], a["jobs"]) for a in sums["accounts"]] == [("physics", 1)]
    now = bench.observe().now
    began = min(start for start in starts.values() if start)
    most = 3 * (now - began).total_seconds()
    assert (sums["node_s"], last) > (0, "")
    assert sums["node_s"] <= most
    assert sums["node_s"] + sum(sums["idle"].values()) <= 4 * sums["span_s"]
    assert report(bench, "--user", "games")["node_s"] == 0


def test_a_preemption_loop_is_explained_by_the_jobs_that_took_the_nodes(bench: Bench) -> None:
    """A queue of short jobs takes nodes four times. The ledger's moments are moved apart, as if
    minutes lay between them."""
    job = bench.submit("exec sleep 600", "1-1")
    short = ["sbatch", "-p", "main", "-N4", "--exclusive", "--output=/dev/null", "--wrap"]
    tick_until(bench, job, 1)
    for _ in range(4):
        reconcile(bench)  # it sees where the job runs
        assert explained(bench, job)["preemptions"] is None
        bench.box.run([*short, "sleep 3"])
        bench.until(job, has(0))
        tick_until(bench, job, 1)
        with closing(sqlite3.connect(ledger_path(bench.settings.tick.state_dir))) as ledger, ledger:
            ledger.execute("UPDATE event SET at = at - 120 WHERE name = 'ends'")
    answer = explained(bench, job)
    loop = answer["preemptions"]
    assert (loop["count"], loop["taker"]) == (4, "main")
    (line,) = (line for line in answer["lines"] if "preempted 4 times in 2 h" in line)
    assert f"mostly by jobs of main on {fold(loop['nodes'])}" in line


def explained(bench: Bench, job: int) -> dict[str, Any]:
    done = bench.malleable("explain", str(job), "--json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def admin_comment(bench: Bench, element: str) -> str:
    said = bench.box.run(["scontrol", "-o", "show", "job", element]).stdout
    match = re.search(r"AdminComment=(.*?) (?=[A-Z]\w+=)", said)
    return match.group(1).strip() if match else ""


def test_a_finished_job_is_summed_up_beside_the_sites_text(bench: Bench) -> None:
    flag = bench.box.work / "finish"
    job = bench.submit(f"until [ -e {flag} ]; do sleep 0.2; done", "1-2,unit=1")
    tick_until(bench, job, 2)
    time.sleep(2)
    reconcile(bench)
    for index in (0, 1):
        text = f"AdminComment=ticket 42 {admin_comment(bench, f'{job}_{index}')}"
        bench.box.run(["scontrol", "update", f"jobid={job}_{index}", text])
    bench.box.run(["scontrol", "requeuehold", f"{job}_1"])
    bench.until(job, has(1))
    flag.write_text("")
    bench.until(job, has(0))
    reconcile(bench)
    comments = [admin_comment(bench, f"{job}_{index}") for index in (0, 1)]
    summed = [text for text in comments if "node-h" in text]
    assert len(summed) == 1, comments
    assert re.fullmatch(
        r"ticket 42 malleable\{.*\} malleable: 0\.\d\d node-h, \d interruptions, \d-2 nodes",
        summed[0],
    )
    assert all(text.startswith("ticket 42 malleable{") for text in comments)
