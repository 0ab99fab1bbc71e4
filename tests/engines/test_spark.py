"""Spark's standalone workers as a pool: the sum is right after any loss of workers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.pools import EXAMPLES, kill, preempt, submit, taken, tick_until
from promises.bench import Bench
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.engines, pytest.mark.nightly]
pyspark = pytest.importorskip("pyspark")
TASKS = 50


@pytest.fixture
def bench(sandbox: Sandbox) -> Iterator[Bench]:
    bench = Bench(sandbox, notice_s=10)
    yield bench
    bench.cancel_all()


@pytest.fixture
def master(bench: Bench) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    words = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"]
    words += ["--port", str(port), "--webui-port", "0"]
    log = bench.box.work / "master.log"
    # Workers that come and go often are no reason to give an application up.
    env = {**os.environ, "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1"}
    env |= {"SPARK_LOCAL_IP": "127.0.0.1"}
    with log.open("wb") as file:
        process = subprocess.Popen([str(program), *words], env=env, stdout=file, stderr=file)
    wait_until(lambda: "elected leader" in log.read_text())
    yield f"spark://127.0.0.1:{port}"
    process.terminate()
    process.wait(20)


def counted(notes: Path) -> Counter[str]:
    return Counter(notes.read_text().split()) if notes.exists() else Counter()


def test_the_sum_is_right(bench: Bench, master: str) -> None:
    work = bench.box.work
    notes = work / "notes"
    more = {"SPARK_MASTER": master, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_MEMORY": "600m"}
    job = submit(bench, "spark/workers.sh", "1-3,engine=pool", **more)
    words = [sys.executable, str(EXAMPLES / "spark" / "squares.py"), master, str(TASKS), str(notes)]
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}

    def registered() -> int:
        return (work / "master.log").read_text().count("Registering worker")

    tick_until(bench, lambda: registered() == 3)  # it grows
    with (work / "squares.log").open("wb") as log:
        squares = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=log)
    try:
        tick_until(bench, lambda: len(counted(notes)) > 8)
        with taken(bench, job):  # a planned leave: no task is done twice
            assert set(counted(notes).values()) == {1}
        # Java's process, not malleable run, which has the same words behind its own.
        kill("=ALL-UNNAMED org.apache.spark.deploy.worker.Worker", {"SLURM_ARRAY_JOB_ID": str(job)})
        tick_until(bench, lambda: len(counted(notes)) > 22)
        preempt(bench, 4, 3)  # all nodes go at once
        tick_until(bench, lambda: squares.poll() is not None)
    finally:
        squares.kill()
    output = squares.communicate()[0].split()
    assert output[-1:] == [str(sum(n * n for n in range(TASKS))).encode()]
    assert len(counted(notes)) == TASKS
    print(f"done again: {sum(counted(notes).values()) - TASKS}")
