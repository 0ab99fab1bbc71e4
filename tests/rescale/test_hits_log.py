"""What `make bench-hits` reads from a training's own log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hits_log import HitLog, freeing, samples
from hits_trainings import TRAININGS, lay_out


def write(work: Path, fragment: int, world: int, steps: range, at: float, round_: str) -> None:
    for kind in ("takes", "steps"):
        with (work / f"{kind}-{fragment}.jsonl").open("a") as file:
            for number, step in enumerate(steps):
                line = {"at": at + number / 10, "round": round_, "world": world, "step": step}
                line |= {"samples": [step * 2 + fragment]} if kind == "takes" else {}
                file.write(json.dumps(line) + "\n")


def two_then_one(work: Path, first: int) -> HitLog:
    """Two train to step 20, one of them goes on from `first` five seconds later."""
    for fragment in (0, 1):
        write(work, fragment, 2, range(1, 21), 100.0, "a")
    write(work, 0, 1, range(first, first + 10), 107.0, "b")
    return HitLog(work).read()


@pytest.mark.parametrize(("first", "again"), [(21, 0), (20, 1), (11, 10), (25, -4)])
def test_steps_done_twice_and_left_out(tmp_path: Path, first: int, again: int) -> None:
    assert two_then_one(tmp_path, first).again(since=101.5, until=110.0) == again


def test_the_pause_and_who_trains(tmp_path: Path) -> None:
    log = two_then_one(tmp_path, 21)
    assert log.pause(["0"], 101.0, 110.0) == pytest.approx(5.1)
    assert log.training(1, since=101.5) == ["0"]
    assert log.training(2, since=101.5) == []


def test_samples_of_the_steps_that_count(tmp_path: Path) -> None:
    two_then_one(tmp_path, 11)  # its steps take one sample where two took two
    seen = samples(HitLog(tmp_path, "takes").read(), HitLog(tmp_path).read())
    assert (seen.seen, seen.repeated) == (2 * 10 + 10, 0)


@pytest.mark.parametrize("name", ["watched", "unchanged"])
def test_the_lines_that_tell_find_their_places_in_the_examples(tmp_path: Path, name: str) -> None:
    training = TRAININGS[name]
    lay_out(training, tmp_path)
    text = (tmp_path / "scripts" / training.script).read_text()
    assert text.count("steplog.take(") == text.count("steplog.done(") == 1
    compile(text, training.script, "exec")


def test_how_long_slurm_waited_for_the_nodes() -> None:
    log = """[2026-11-22T14:10:35.402] _slurm_rpc_submit_batch_job: JobId=5 InitPrio=4294901755
[2026-11-22T14:10:36.050] preempted JobId=1_0(2) has been requeued to reclaim resources for JobId=5
[2026-11-22T14:10:36.150] preempted JobId=1_1(3) has been requeued to reclaim resources for JobId=5
[2026-11-22T14:10:36.269] sched: Allocate JobId=5 NodeList=n1,n2 #CPUs=2 Partition=main
[2026-11-22T14:10:36.300] sched: Allocate JobId=55 NodeList=n3 #CPUs=2 Partition=main
"""
    assert freeing(log, "5") == pytest.approx(0.219)
    with pytest.raises(ValueError, match="job 55"):
        freeing(log, "55")
