"""The demo's story in GPUs: their owners, Slurm's preemptions, and the text about them."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Optional

import pytest
from made_up import (
    ABOUT,
    SHARED,
    ZERO,
    act,
    fragment,
    recording,
    records,
    sample,
    show,
    story,
    tick,
    timeline,
    verdict,
    work,
)
from rich.console import Console

IDS = {one.name: (str(10 + i), str(20 + i)) for i, one in enumerate(SHARED.rigid)}
OLD, MIDDLE, LAST = 50, 100, SHARED.booking.starts_s + 20


def part(index: int, node: str, gpus: int, state: str = "RUNNING") -> records.Row:
    return replace(fragment(index, node, 4, 300, state), gpus=gpus)


def rigid(name: str, node: str, at: float, state: str = "RUNNING") -> records.Row:
    """A single-node job since `at`."""
    (job,) = (one for one in SHARED.rigid if one.name == name)
    moments = (ZERO + job.at_s, ZERO + at)
    return records.Row(
        IDS[name][0], "main", state, *moments, None, frozenset({node}), gpus=job.gpus
    )


def gone(row: records.Row) -> records.Row:
    return replace(row, state="PENDING", nodes=frozenset())


def run(*, took: Optional[int] = 0) -> records.Recording:
    """A run in which Slurm takes this fragment (None: no fragment) for `pair`, 0 for `whole`."""
    base = (rigid("long", "n1", 1), rigid("trio", "n2", 1), rigid("duo", "n3", 1))
    mine = [part(0, "n4", 4), part(1, "n3", 1)]
    pair, whole = rigid("pair", "n4", 51), rigid("whole", "n4", 101)
    hit = tuple(gone(row) if took == int(row.job[-1]) else row for row in mine)
    done = tuple(replace(row, state="COMPLETED") for row in (*base, pair, whole, *mine))
    return recording(
        sample(2, *base),
        sample(7, *base, *mine),
        sample(51, *base, pair, *hit),
        sample(90, *base, *mine),
        sample(102, *base, whole, gone(mine[0]), mine[1]),
        sample(135, *base, *mine),
        sample(LAST, *done),
        ticks=(tick(*(act(6, "grow", "hole open", f"3_{i}", nodes=("n4",)) for i in (0, 1))),),
        scenario=SHARED,
        ids=IDS,
        result={"steps": 480, "accuracy": 0.97},
        work=work.ON_GPUS,
    )


def checks(played: records.Recording) -> dict[str, bool]:
    return {check["what"]: check["met"] for check in verdict.report(played, ABOUT)["checks"]}


def test_squeue_says_how_many_gpus_a_job_has_of_each_node() -> None:
    line = "7_0|parts|RUNNING|1|2|3|n4||gres:gpu:4|"
    plain = "8|main|RUNNING|1|2|3|n1||N/A|"
    first, second = records.parse_sample(5.0, f"{line}\n{plain}\n").rows
    assert (first.gpus, second.gpus) == (4, 0)


def test_each_gpu_has_a_single_owner_and_a_job_without_gpus_has_whole_nodes() -> None:
    owners = story.occupants(run().with_it[1], run())
    assert len(owners) == 16
    of = {n: [owners[n, i] for i in range(4)] for n in SHARED.node_names}
    assert of["n1"] == ["long"] * 4
    assert of["n2"] == ["trio"] * 3 + [story.IDLE]
    assert of["n3"] == ["duo"] * 2 + [story.IDLE, story.OURS]
    assert of["n4"] == [story.OURS] * 4


@pytest.mark.parametrize(
    ("name", "has_room"), [("single", True), ("pair", False), ("whole", False)]
)
def test_room_is_counted_in_gpus_of_a_node(name: str, has_room: bool) -> None:
    (one,) = (rigid for rigid in SHARED.rigid if rigid.name == name)
    assert story.has_room(one, run().with_it[1], run()) is has_room


def test_sizes_and_interruptions_count_gpus() -> None:
    report = verdict.report(run(), ABOUT)
    (job,) = report["malleable_jobs"]
    assert [row["gpus"] for row in job["sizes"]] == [0, 5, 1, 5, 1, 5, 0]
    assert [(hit["t"], hit["gpus"]) for hit in job["interruptions"]] == [(51.0, 4), (102.0, 4)]
    assert sum(report["gpu_seconds"].values()) == pytest.approx(16 * (LAST - 2))
    assert {row["name"]: row["gpus"] for row in report["rigid_jobs"]}["whole"] == 4


@pytest.mark.parametrize(("took", "is_met"), [(0, True), (1, True), (None, False)])
def test_each_urgent_job_takes_a_single_fragment(took: Optional[int], is_met: bool) -> None:
    met = checks(run(took=took))
    assert met["the pair job took 1 fragment"] is is_met
    assert met["the whole job took 1 fragment"]
    assert "a planned start found room" not in met


def test_a_fragment_that_came_back_larger_on_its_node_is_a_change() -> None:
    before, after = sample(1, part(0, "n4", 2)), sample(2, part(0, "n4", 4))
    assert story.changes(before, after) == (["3_0"], ["3_0"])


def test_the_summary_and_the_picture_are_in_gpus(tmp_path: Path) -> None:
    text = io.StringIO()
    show.summary(verdict.report(run(), ABOUT), Console(file=text, width=120))
    assert "Slurm took for other jobs: 4 GPUs at 51 s, 4 GPUs at 102 s." in text.getvalue()
    assert "GPU-seconds: rigid" in text.getvalue()
    assert timeline.draw(run(), tmp_path / "timeline.png").stat().st_size
    _, counts = timeline.stack(run())
    assert {sum(column) for column in zip(*counts.values())} == {16}


def test_the_job_asks_for_gpus_only_where_nodes_are_shared() -> None:
    assert work.ON_GPUS.request(SHARED)[0] == "--malleable=1-8,unit=gpu,engine=torchrun"
