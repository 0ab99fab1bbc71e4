"""The size of a job that counts GPUs or tasks is always shown in its own unit."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from build import NOW, after, make_fragment, make_job, make_request, make_snapshot, no_clock, span
from slurm_hooks.doctor.gather.job import lacks
from slurm_hooks.model import (
    Curve,
    Detail,
    Fragment,
    FragmentId,
    FragmentState,
    Intent,
    Learned,
    MalleableJob,
    Mark,
    Node,
    NodeState,
    Plan,
    Reason,
    Request,
    Resources,
    Slot,
    Verb,
    Why,
)
from slurm_hooks.model.decision import JobPlan
from slurm_hooks.planning.plan import make_plan
from slurm_hooks.report.json_data import job_data, plan_data
from slurm_hooks.report.learned_text import learned_lines
from slurm_hooks.report.text import (
    action_lines,
    explain_lines,
    fragments_table,
    job_state,
    jobs_table,
)
from slurm_hooks.report.top.board import board_of
from slurm_hooks.report.why import reason_text
from slurm_hooks.settings.values import Planning, Settings, Site
from slurm_hooks.tick.report import TickReport

SETTINGS = Settings(
    site=Site(partitions=("malleable", "parts"), part_nodes="parts"),
    plan=Planning(headroom_gpus=0),
)
GPU_SLOT = Slot("gpu")


def request(low: int = 4, high: int = 8, slot: Slot = GPU_SLOT, unit: int = 1) -> Request:
    return replace(make_request(low, high, unit), slot=slot)


def part(index: int, node: str, slots: int, asked: Request) -> Fragment:
    has = Resources(slots, 100 * slots, (("gpu", slots),) if asked.slot and asked.slot.gres else ())
    mark = Mark(asked, slots=slots)
    fragment = make_fragment(index, FragmentState.RUNNING, [node], asks=has)
    return replace(fragment, mark=mark)


def job_of(asked: Request, *sizes: int) -> MalleableJob:
    parts = (part(index, f"n{index + 1}", size, asked) for index, size in enumerate(sizes))
    job = make_job(*parts, held=2, request=asked)
    return replace(job, partition="parts")


def printed(table: Any) -> str:
    console = Console(file=io.StringIO(), width=160)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return " ".join(console.file.getvalue().split())


def plan_of(job: MalleableJob) -> Plan:
    gres = (("gpu", 8),)
    nodes = [
        Node(
            name,
            cpus=8,
            memory_mib=800,
            gres=gres,
            state=NodeState.SHARED,
            used=Resources(8 - left, 100, (("gpu", 8 - left),)),
            partitions=frozenset({"malleable", "parts", "main"}),
        )
        for name, left in (("n1", 0), ("n2", 0), ("n3", 0))
    ]
    return make_plan(make_snapshot(job, nodes=nodes), SETTINGS, no_clock)


def test_status_shows_the_size_and_not_the_nodes() -> None:
    job = job_of(request(), 3, 2)
    assert job_state(job) == "running"
    assert job_state(job_of(request(6), 3, 2)) == "below min"
    row = printed(jobs_table([job], NOW, {7: "train"}, {}, 120))
    assert "running 5 GPUs 4-8" in row
    whole = make_job(make_fragment(0, FragmentState.RUNNING, ["n1"]), held=1)
    assert "running 1 node 1-6" in printed(jobs_table([whole], NOW, {7: "a"}, {}, 120))
    assert "7_0 running 3 GPUs n1" in printed(fragments_table(job, NOW))


@pytest.mark.parametrize(
    ("slot", "noun"), [(Slot("gpu:a100"), "GPUs"), (Slot(cpus=2), "tasks"), (None, "nodes")]
)
def test_explain_names_the_job_s_unit(slot: Slot, noun: str) -> None:
    job = job_of(request(slot=slot), 5) if slot else make_job(held=2)
    lines = explain_lines(job, plan_of(job), NOW)
    assert f"{5 if slot else 0} {noun} of" in lines[0]
    assert (", on n1, engine" in lines[0]) is bool(slot)


def test_reasons_count_in_the_job_s_unit() -> None:
    reasons = (
        (Why.MAXIMUM, Detail(most=8), "its maximum is 8 GPUs"),
        (Why.WISH, Detail(wish=2), "wishes for at most 2 GPUs now"),
        (Why.WISH, Detail(wish=0, unit=1), "wishes for no GPUs now, and"),
        (Why.BELOW_MIN, Detail(nodes_usable=1, nodes_needed=4), "can reach 1 GPU now, needs 4"),
        (Why.PROBED, Detail(nodes_planned=2), "begins on 2 GPUs"),
        (Why.NO_WORK, Detail(count=1, at=NOW), "1 worker found no work left"),
    )
    for why, detail, text in reasons:
        assert text in reason_text(Reason(why, detail), NOW, "gpu")
        assert "node" not in reason_text(Reason(why, detail), NOW, "gpu")


def test_doctor_gives_a_job_s_lack_in_its_own_unit() -> None:
    job = job_of(request(), 3)
    assert next(lacks(job, plan_of(job), NOW)).startswith("has 3 GPUs and needs 4")


def test_an_action_for_a_part_has_its_size() -> None:
    mark = Mark(request(), slots=3)
    there = {"mark": mark, "nodes": frozenset({"n3"}), "limit": span(600)}
    grow = Intent(FragmentId(7, 0), Why.HOLE_OPEN, Verb.GROW, **there)  # type: ignore[arg-type]
    assert action_lines([grow]) == ["grow 7_0 on n3 with 3 GPUs for 10:00: hole open"]


def test_programs_read_the_unit_and_the_size_of_each_fragment() -> None:
    job = job_of(request(), 3, 2)
    data = job_data(job)
    assert (data["unit"], data["size"]) == ("gpu", 5)
    running = [(f["nodes"], f["size"]) for f in data["fragments"] if f["state"] == "running"]
    assert running == [(["n1"], 3), (["n2"], 2)]
    assert plan_data(plan_of(job), NOW)["jobs"][0]["unit"] == "gpu"
    assert job_data(make_job(held=1))["unit"] == "node"


def test_top_shows_the_size() -> None:
    job = job_of(request(), 3, 2)
    report = TickReport(NOW, plan_of(job), make_snapshot(job), (), (), 0.0, is_dry=True)
    (row,) = board_of(report).jobs
    assert row[3:5] == ("5 GPUs", "4-8")
    assert [lease[3:5] for lease in board_of(report).leases] == [("3 GPUs", "n1"), ("2 GPUs", "n2")]


def test_learned_rates_are_shown_by_gpus() -> None:
    job = job_of(request(2, 8, unit=2), 4)
    learned = Learned(Curve(((0, 0.0), (2, 2.0), (4, 3.0), (8, 4.0))), sizes_seen=(2, 4))
    first = learned_lines(job, learned, NOW.timestamp())[0]
    assert first.startswith("learned: 4 GPUs train 1.5 times as fast as 2 ")
    nothing = learned_lines(job, None, after(0).timestamp())[0]
    assert "so GPUs are shared equally" in nothing


def test_a_job_that_more_nodes_do_not_speed_up_takes_no_free_node() -> None:
    job = make_job(make_fragment(0, FragmentState.RUNNING, ["n1"]), held=3)
    flat = Learned(Curve(((0, 0.0), (1, 1.0), (2, 1.02), (4, 1.03))), sizes_seen=(1, 2))
    lines = learned_lines(job, flat, NOW.timestamp())
    assert "learned: more nodes are no faster, so the job takes no free node" in lines
    steep = replace(flat, curve=Curve(((0, 0.0), (1, 1.0), (2, 1.9), (4, 3.5))))
    assert not any("no faster" in line for line in learned_lines(job, steep, 0.0))


def test_a_plan_of_whole_nodes_speaks_of_nodes() -> None:
    planned = JobPlan(7, 1, 2)
    assert planned.unit == "node"
    assert reason_text(Reason(Why.MAXIMUM, Detail(most=1))) == "its maximum is 1 node"
