"""The cost of a lost node, from scripts without our library, through a real torchrun to Slurm."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from slurm_hooks.protocol.comment import Loss, parse
from waiting import wait_until

from .gang import Gang

pytestmark = [pytest.mark.torch]
HERE = Path(__file__).parent
LONG = 100_000


@pytest.fixture
def job(gang: Gang) -> Gang:
    gang.pretend_slurm()
    return gang


def start(gang: Gang, fragment: int, *more: str) -> None:
    gang.extra["SLURM_ARRAY_TASK_ID"] = str(fragment)
    gang.start(fragment, "1:2", LONG, *more)


def costs(gang: Gang) -> dict[int, Loss]:
    """The cost of an interruption that each fragment reports."""
    texts = {f: gang.work / f"comment.77_{f}" for f in gang.agents}
    losses = {f: parse(path.read_text()).loss for f, path in texts.items() if path.exists()}
    return {f: loss for f, loss in losses.items() if loss is not None}


@pytest.mark.parametrize("warm", ["", pytest.param("0", marks=pytest.mark.nightly)])
def test_the_fragment_of_rank_0_reports_the_age_of_checkpoints(job: Gang, warm: str) -> None:
    job.script = HERE / "train_plain.py"
    job.extra["MALLEABLE_WARM"] = warm
    for fragment in (1, 2):
        start(job, fragment, "60")
    wait_until(lambda: costs(job), explain=job.dump)
    (loss,) = costs(job).values()
    assert loss.redoes
    saved = [float(line) for line in (job.work / "saved").read_text().split()]
    gaps = [after - before for before, after in zip(saved, [*saved[1:], time.monotonic()])]
    assert 3 <= loss.seconds <= 1 + max(gaps)  # sixty steps of a twentieth second
    comments = [path.read_text() for path in job.work.glob("comment.*")]
    heads = ("started{0}", "joined{0}", "trained{0}")
    assert all(text.startswith(heads) for text in comments), comments


def test_a_watched_state_costs_a_step(job: Gang) -> None:
    job.script = HERE / "train_watched.py"
    start(job, 1)
    wait_until(lambda: costs(job) == {1: Loss(1)}, explain=job.dump)


def test_the_reported_cost_is_true_where_a_lost_peer_ends_the_process(job: Gang) -> None:
    """The survivor ends without running Python, so only an earlier copy is kept."""
    job.script = HERE / "train_watched.py"
    job.extra |= {"TRAIN_ABORTS": "1", "TRAIN_STEP_S": "0.4"}  # hardly ever torn
    for fragment in (1, 2):
        start(job, fragment)
    job.wait_world(2)
    wait_until(lambda: costs(job), explain=job.dump)
    (loss,) = costs(job).values()
    lost_at = time.time()
    job.cut_off(2, signal.SIGKILL)
    job.wait_world(1, since=lost_at)
    assert "Fatal Python error: Aborted" in job.log(1), job.dump()
    (begin,) = (b for b in job.begins() if b["t"] > lost_at)
    reached = [line.split() for line in (job.work / "reached-1").read_text().splitlines()]
    kept_at = max((float(t) for t, step, _ in reached if int(step) == begin["step"]), default=0.0)
    assert lost_at - kept_at <= loss.seconds, (begin, loss)


def test_a_script_that_is_not_observed_reports_no_cost(job: Gang) -> None:
    job.script = HERE / "train_plain.py"
    job.extra["MALLEABLE_OBSERVE"] = "0"
    start(job, 1, "20")
    saved = job.work / "saved"
    wait_until(lambda: saved.exists() and len(saved.read_text().split()) > 8, explain=job.dump)
    assert costs(job) == {}


def test_an_untrue_report_of_an_earlier_run_is_withdrawn(job: Gang) -> None:
    job.script = HERE / "train_plain.py"
    comment = job.work / "comment.77_1"
    comment.write_text("trained{0};h{1};mine")
    start(job, 1, str(LONG))  # no checkpoint, and no watched state

    def is_withdrawn() -> bool:  # the report of its speed may come in the same moment
        entries = parse(comment.read_text())
        has_standing = entries.standing is not None
        return has_standing and entries.loss is None and entries.rest.endswith("mine")

    wait_until(is_withdrawn, explain=job.dump)
    assert costs(job) == {}
