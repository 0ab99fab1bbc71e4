"""Whole ticks on nodes that jobs share: fragments of slots beside others' jobs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fake_parts import Part, Rigid, resources
from fake_slurm import FakeSlurm
from planning.whole_ticks import settings_in
from slurm_hooks.report.why import reason_text
from slurm_hooks.settings.values import Settings
from slurm_hooks.tick.reconcile import tick
from slurm_hooks.tick.report import TickReport

NAMES = [f"n{i}" for i in range(1, 5)]
MARK = (
    "malleable{min=2,max=12,unit=1,engine=torchrun,frags=6,lease=3600,hole=120,not=-,slot=gpu,"
    "name=train}"
)
WITH_PARTS = ("malleable", "parts")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    plain = settings_in(tmp_path)
    return replace(plain, site=replace(plain.site, partitions=WITH_PARTS, part_nodes="parts"))


@pytest.fixture
def slurm() -> FakeSlurm:
    """Others use 3, 4, 5 and 6 of the eight GPUs of a node."""
    sizes = dict.fromkeys(NAMES, resources(32, 256_000, 8))
    slurm = FakeSlurm(dict.fromkeys(NAMES, ""), lanes=WITH_PARTS, sizes=sizes)
    for number, name in enumerate(NAMES):
        begin(slurm, name, 3 + number)
    slurm.advance(2)
    slurm.submit(7, 6, MARK, limit_min=60, part=Part(1, cpus=4, memory_mib=32_000))
    return slurm


def begin(slurm: FakeSlurm, name: str, gpus: int) -> None:
    """Start an ordinary job now, on so many GPUs of a node."""
    size = resources(gpus, 1000 * gpus, gpus)
    job = Rigid(900 + len(slurm.rigid), frozenset({name}), slurm.now, slurm.now, 10_000, part=size)
    slurm.rigid.append(job)


def ticks(slurm: FakeSlurm, settings: Settings, count: int) -> list[TickReport]:
    reports = []
    for _ in range(count):
        reports.append(tick(slurm, settings))
        slurm.advance(15)
    return reports


def gpus_of(slurm: FakeSlurm) -> dict[str, int]:
    """The GPUs of the job's fragments, by node."""
    running = [e for e in slurm.of(7) if e.state == "RUNNING" and e.part]
    assert len({e.nodes for e in running}) == len(running)  # a gang has a single fragment on a node
    return {name: e.part.gpus for e in running if e.part for name in e.nodes}


def test_a_gang_takes_the_free_parts_of_other_jobs_nodes(
    slurm: FakeSlurm, settings: Settings
) -> None:
    reports = ticks(slurm, settings, 5)
    assert gpus_of(slurm) == {"n1": 5, "n2": 4, "n3": 3}
    assert [report.refused for report in reports] == [()] * 5
    assert not [intent for report in reports[2:] for intent in report.plan.actions]
    assert slurm.violations == []


def test_a_node_of_the_headroom_stays_whole_and_closes_no_part(settings: Settings) -> None:
    """Its idleness is what the site wants. So small jobs go there, and parts start elsewhere."""
    names = [*NAMES, "n5"]
    sizes = dict.fromkeys(names, resources(32, 256_000, 8))
    slurm = FakeSlurm(dict.fromkeys(names, ""), lanes=WITH_PARTS, sizes=sizes)
    for number, name in enumerate(NAMES):
        begin(slurm, name, 3 + number)
    slurm.advance(2)
    slurm.submit(7, 6, MARK, limit_min=60, part=Part(1, cpus=4, memory_mib=32_000))
    one = replace(settings, plan=replace(settings.plan, headroom_nodes=1))
    reports = ticks(slurm, one, 12)
    assert gpus_of(slurm) == {"n1": 5, "n2": 4, "n3": 3}
    assert not [intent for report in reports[2:] for intent in report.plan.actions if intent.mark]


def test_a_preempted_fragment_comes_back_with_another_size(
    slurm: FakeSlurm, settings: Settings
) -> None:
    ticks(slurm, settings, 3)
    begin(slurm, "n1", 2)
    slurm.advance(10)
    assert {job.state for job in slurm.rigid} == {"RUNNING"}
    assert "n1" not in gpus_of(slurm)
    ticks(slurm, settings, 12)
    gpus = gpus_of(slurm)
    assert 8 <= sum(gpus.values()) <= 3 + 4 + 3 + 2
    assert gpus.get("n1", 0) <= 3
    assert slurm.violations == []


def test_a_fragment_of_another_size_than_asked_leaves(slurm: FakeSlurm, settings: Settings) -> None:
    """Slurm shows five GPUs but gives the fragment no GPU, because three are used on the node."""
    for element in slurm.of(7):
        element.is_split = True
    slurm.elements["7_0"].part = Part(0, cpus=20, memory_mib=160_000, tres="gres:gpu:5")
    reports = ticks(slurm, settings, 8)
    texts = [reason_text(r) for p in reports for job in p.plan.jobs for r in job.reasons]
    assert any(
        text.startswith("Slurm gave fragment 7_0 3 GPUs on n1 instead of 5") for text in texts
    )
    assert sum(gpus_of(slurm).values()) >= 7
    assert "7_0" not in [e.name for e in slurm.of(7) if "n1" in e.nodes]


def test_no_gpu_of_a_fragment_is_kept_back(slurm: FakeSlurm, settings: Settings) -> None:
    """Another user's small job takes the kept-back GPUs. Fragments keep their GPUs, and
    jobs go on.
    """
    ticks(slurm, settings, 5)
    begin(slurm, "n4", 2)
    reports = ticks(slurm, settings, 2)
    assert "impossible" not in "".join(report.plan.solve.reason for report in reports)
    assert gpus_of(slurm) == {"n1": 5, "n2": 4, "n3": 3}
    assert slurm.violations == []


def test_a_fragment_waits_where_others_took_a_part_before_it(settings: Settings) -> None:
    """It was released for the whole node. Other jobs change their size at that time."""
    sizes = dict.fromkeys(NAMES, resources(32, 256_000, 8))
    slurm = FakeSlurm(dict.fromkeys(NAMES, ""), lanes=WITH_PARTS, sizes=sizes)
    slurm.advance(2)
    slurm.submit(7, 6, MARK, limit_min=60, part=Part(1, cpus=4, memory_mib=32_000))
    tick(slurm, settings)
    begin(slurm, "n1", 6)
    reports = ticks(slurm, settings, 2)
    assert "impossible" not in "".join(report.plan.solve.reason for report in reports)
