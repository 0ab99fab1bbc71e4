"""What `make bench-random` counts: its verdict is only as good as these."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from random_course import (
    SAMPLES,
    Outcome,
    Step,
    StepLog,
    again,
    is_whole,
    undisturbed,
    undisturbed_counts,
    verdict,
    worst_finish,
)
from random_here import TRAININGS, TorchrunGang
from random_slurm import ENDED_BY, Kind, Obstacle, batch_text, possible

from slurm_hooks.jobpath import write_job_path

TAKEN = [Obstacle(kind, "x", ("n1",)) for kind in ENDED_BY]


def steps(*numbers: int) -> list[Step]:
    return [Step(float(at), number, 2) for at, number in enumerate(numbers)]


@pytest.mark.parametrize(
    ("numbers", "tellers", "found"),
    [
        ((1, 2, 3, 4), 1, 0),
        ((1, 2, 3, 2, 3, 4), 1, 2),
        ((1, 2, 3, 1, 2, 3, 1, 2, 3, 4), 1, 3),  # twice again is again
        ((1, 2, 2, 1, 3, 2, 3), 3, 0),  # three groups, each late by one
        ((5, 6, 7, 8, 5, 6, 7, 8, 9), 3, 4),  # all groups went back
    ],
)
def test_steps_done_again(numbers: tuple[int, ...], tellers: int, found: int) -> None:
    assert again(steps(*numbers), tellers) == found


def test_steps_of_all_files_are_read_once_and_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "steps-0.log").write_text("10.0 1 2\n12.0 3 2\n13.0 4")
    (tmp_path / "steps-1.log").write_text("11.0 2 2\n")
    log = StepLog(tmp_path)
    assert [step.number for step in log.read().steps] == [1, 2, 3]
    with open(tmp_path / "steps-0.log", "a") as file:
        file.write(" 2\n")
    assert [step.number for step in log.read().steps] == [1, 2, 3, 4]
    assert log.newest() == 4


def test_every_sample_is_learnt_as_often_as_any_other_or_once_more() -> None:
    counts = undisturbed_counts(100)
    assert (sum(counts), max(counts) - min(counts), len(counts)) == (2400, 1, SAMPLES)


def test_the_verdict_sees_what_counts_do_not() -> None:
    right = undisturbed(90)
    assert is_whole(verdict(right))
    assert verdict(right)["weight_off"] == 0.0
    earlier = undisturbed(89)
    for wrong in (
        Outcome(90, 1, 0, right.weight, right.chain),
        Outcome(90, 0, 1, right.weight, right.chain),
        Outcome(90, 0, 0, right.weight, earlier.chain),
    ):
        assert not is_whole(verdict(wrong))


@pytest.mark.parametrize("free", range(6))
@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize("obstacles", [[], TAKEN])
def test_what_may_happen_can_be_done(free: int, is_held: bool, obstacles: list[Obstacle]) -> None:
    kinds = set(possible(free, obstacles, is_held))
    assert (Kind.HOLD in kinds) is not is_held
    assert (Kind.RELEASE in kinds) is is_held
    assert {Kind.REQUEUE, Kind.SEVERAL} <= kinds
    assert bool(kinds & set(ENDED_BY)) is (free > 0)
    assert kinds & set(ENDED_BY.values()) == {ENDED_BY[o.kind] for o in obstacles}


def test_everything_happens_in_the_long_run() -> None:
    chance, seen = random.Random(1), set()
    for _ in range(300):
        seen.add(chance.choice(possible(3, chance.choice([[], TAKEN]), chance.random() < 0.5)))
    assert seen == set(Kind)


def test_the_script_of_the_job_says_what_is_trained(tmp_path: Path) -> None:
    assert "train_samples.py" in batch_text("torchrun", False, tmp_path)
    assert "TRAIN_WATCH=1" in batch_text("torchrun", True, tmp_path)
    path = batch_text("torchft", False, tmp_path).split()[-4]
    assert Path(path) == TRAININGS / "train_torchft.py"
    assert Path(path).exists()


@pytest.mark.torch
def test_a_training_that_nobody_disturbs_ends_with_the_bits_of_the_reference(
    tmp_path: Path,
) -> None:
    gang = TorchrunGang(write_job_path(tmp_path / "jobpath"), tmp_path)
    gang.script = TRAININGS / "train_samples.py"
    try:
        gang.start(1, "1:1", 60, "50")
        assert gang.wait_exit(1, timeout=90) == [0], gang.dump()
        by_file = gang.outcome()
    finally:
        gang.stop()
    told = verdict(worst_finish(tmp_path))
    assert is_whole(told)
    assert (told["steps"], told["weight_off"]) == (60, 0.0)
    assert by_file == undisturbed(50)
