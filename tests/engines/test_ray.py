"""Ray's worker nodes as a pool: every task has its result after any loss of nodes."""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.pools import beside, kill, preempt, submit, taken, tick_until
from promises.bench import Bench
from slurm_hooks.sandbox import Sandbox

pytestmark = [pytest.mark.slurm, pytest.mark.engines, pytest.mark.filterwarnings("default")]
ray = pytest.importorskip("ray")

HEAD = "ray start --block --head --num-cpus=0 --include-dashboard=false --disable-usage-stats"
ROOM = 100_000_000  # bytes for objects, of a single raylet


@pytest.fixture
def bench(sandbox: Sandbox) -> Iterator[Bench]:
    bench = Bench(sandbox, notice_s=14)
    yield bench
    bench.cancel_all()


@pytest.fixture
def head(bench: Bench, tmp_path: Path) -> Iterator[str]:
    """The address of a head with this test as its driver."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [*HEAD.split(), f"--port={port}", f"--temp-dir=/tmp/ray-{os.getpid()}"]
    with beside(bench, *words, f"--object-store-memory={ROOM}"):
        address = f"{socket.gethostbyname(socket.gethostname())}:{port}"
        yield address
        ray.shutdown()


def counted(notes: Path) -> Counter[str]:
    return Counter(notes.read_text().split()) if notes.exists() else Counter()


def workers() -> int:
    return sum(1 for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU"))


def test_every_task_has_its_result(bench: Bench, head: str) -> None:
    notes = bench.box.work / "notes"
    job = submit(bench, "ray/workers.sh", "0-3,engine=pool", RAY_HEAD=head)
    tick_until(bench, lambda: "Ray runtime started" in (bench.box.work / "beside.log").read_text())
    ray.init(address=head, log_to_driver=False)

    @ray.remote(num_cpus=1, max_retries=-1)  # a lost worker is no failure
    def square(number: int, seconds: float) -> int:
        time.sleep(seconds)
        with notes.open("a") as file:
            file.write(f"{number}\n")
        return number * number

    tick_until(bench, lambda: workers() == 3)  # it grows
    first = [square.remote(n, 0.5) for n in range(30)]
    with taken(bench, job):  # a planned leave: tasks end before their node does
        assert sum(ray.get(first, timeout=150)) == sum(n * n for n in range(30))
        assert set(counted(notes).values()) == {1}

    second = [square.remote(n, 0.5) for n in range(30, 100)]
    kill("bin/ray start", {"SLURM_ARRAY_JOB_ID": str(job)})
    tick_until(bench, lambda: len(counted(notes)) > 45)
    preempt(bench, 4, 3)  # all nodes go at once
    tick_until(bench, lambda: len(counted(notes)) == 100)
    assert sum(ray.get(second, timeout=150)) == sum(n * n for n in range(30, 100))
    print(f"done again: {sum(counted(notes).values()) - 100}")
