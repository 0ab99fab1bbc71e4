"""On a real Slurm: a user is told when a training does not go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from promises.bench import TRAINER, WITH_TORCHRUN, Bench, has, hastened
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.torch]

STANDS = """
import os, time, torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    if not os.path.exists("stand"):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    time.sleep(0.05)
"""


@pytest.fixture
def bench(sandbox: Sandbox) -> Iterator[Bench]:
    pytest.importorskip("torch")
    bench = Bench(sandbox, notice_s=10)
    (sandbox.work / "train.py").write_text(STANDS)
    yield bench
    bench.cancel_all()


def output(bench: Bench, job: int, *words: str) -> str:
    """The text that `explain` prints while ticks keep the job running."""
    bench.tick()
    done = bench.malleable(*words, str(job))
    return done.stdout + done.stderr


def log(bench: Bench, job: int) -> str:
    return (bench.box.work / f"slurm-{job}_0.out").read_text()


def until(what: Callable[[], bool], bench: Bench, job: int) -> None:
    def explain() -> str:
        return output(bench, job, "explain") + log(bench, job)

    wait_until(what, 240, explain, every_s=1)


def test_a_training_that_makes_no_step_is_reported_until_it_goes_on(bench: Bench) -> None:
    torchrun = hastened("agent.stall.LEAST_S=8", "batch.comment_writer.LOOK_S=2")
    job = bench.submit(f"{WITH_TORCHRUN}\nexec {torchrun} train.py", "1-1", TRAINER)
    bench.tick_until(job, lambda j: any(f.telemetry for f in j.fragments), 240)
    (bench.box.work / "stand").touch()
    until(lambda: "no step since" in output(bench, job, "explain"), bench, job)
    for words in (("status",), ("doctor", "--job")):
        assert "no step since" in output(bench, job, *words), words
    assert log(bench, job).count("malleable: no step since") == 1
    (bench.box.work / "stand").unlink()
    until(lambda: "no step since" not in output(bench, job, "explain"), bench, job)
    assert "malleable: steps go on after" in log(bench, job)


# As scripts for a single node: two processes have rank 0, and each waits for a rank 1.
WAITS = """
import os, torch
torch.distributed.init_process_group(
    "gloo", rank=int(os.environ["LOCAL_RANK"]), world_size=int(os.environ["WORLD_SIZE"])
)
"""


@pytest.mark.nightly
def test_a_training_that_makes_no_first_step_is_reported(bench: Bench) -> None:
    (bench.box.work / "train.py").write_text(WAITS)
    line = f"exec {hastened('agent.stall.FIRST_S=20')} --standalone --nnodes=1 train.py"
    job = bench.submit(f"{WITH_TORCHRUN}\n{line}", "2-2", TRAINER)
    until(lambda: "no step seen yet" in output(bench, job, "explain"), bench, job)
    assert "in round 1 since " in output(bench, job, "status")
    assert log(bench, job).count("malleable: in round 1 since") == 1


# Each fragment has a directory of its own, as where nodes do not share the work directory.
APART = f"""{WITH_TORCHRUN}
export MALLEABLE_DIR=$PWD/apart-$MALLEABLE_JOB_ID-$MALLEABLE_FRAGMENT
export PET_RDZV_ENDPOINT=$MALLEABLE_DIR
exec {hastened("liveness.apart.PATIENCE_S=12")} train.py"""


def test_a_single_fragment_trains_where_fragments_share_no_directory(bench: Bench) -> None:
    job = bench.submit(APART, "1-2", TRAINER)
    work = bench.box.work

    def given_up() -> list[str]:
        output(bench, job, "status")
        logs = [path.read_text() for path in work.glob(f"slurm-{job}_*.out")]
        return [line for text in logs for line in text.splitlines() if "giving up" in line]

    explain = lambda: output(bench, job, "explain") + log(bench, job)  # noqa: E731
    wait_until(given_up, 300, explain, every_s=1)
    (line, *_) = given_up()
    assert " trains in another directory of this name: submit from one that all nodes share" in line
    assert "trains in another directory" in output(bench, job, "explain")
    for _ in range(5):
        output(bench, job, "status")
    status = bench.job(job)
    states = [(f.said, f.state) for f in status.fragments]
    assert status.nodes, states
    assert sorted(f.said.value for f in status.fragments) == ["apart", "joined"], states
    assert status.failures == 0
    assert "do not share its work directory" in output(bench, job, "explain")


def test_fragments_that_need_each_other_but_share_no_directory_give_their_nodes_back(
    bench: Bench,
) -> None:
    job = bench.submit(APART, "2-2", TRAINER)
    work = bench.box.work

    bench.tick_until(job, has(2))

    def given_up() -> bool:
        """Without ticks, which would start the first again before the other gives up."""
        logs = [path.read_text() for path in work.glob(f"slurm-{job}_*.out")]
        return len(logs) == 2 and all("runs in another directory of this name" in x for x in logs)

    wait_until(given_up, 400, explain=lambda: output(bench, job, "explain") + log(bench, job))
    bench.until(job, lambda j: not j.active)
    bench.tick_until(job, lambda j: j.failures == 1)
    assert "runs in another directory" in output(bench, job, "explain")
