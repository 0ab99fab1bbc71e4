"""Slurm refuses some or all updates of a tick: what starts then, and how many commands it costs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from fake_parts import MAIN, Part, resources
from fake_slurm import FakeSlurm
from planning.whole_ticks import settings_in
from slurm_hooks.model import Intent, Verb, Why
from slurm_hooks.report.why import reason_text
from slurm_hooks.slurm.gateway import observe
from slurm_hooks.slurm.text import Command
from slurm_hooks.slurm.writing import apply
from slurm_hooks.tick.reconcile import tick

GANG = "malleable{min=4,max=6,unit=1,engine=torchrun,frags=6,lease=600,hole=120}"
NODES = [f"n{i}" for i in range(1, 9)]


@pytest.mark.parametrize(("min_nodes", "started"), [(6, 0), (5, 5)])
def test_a_refused_update_starts_no_gang_below_its_minimum(
    min_nodes: int, started: int, tmp_path: Path
) -> None:
    slurm = FakeSlurm(dict.fromkeys(NODES, ""))
    slurm.submit(7, 6, GANG.replace("min=4", f"min={min_nodes}"))
    slurm.submit(8, 2, GANG.replace("min=4,max=6", "min=2,max=2").replace("frags=6", "frags=2"))

    def cancel(command: Command) -> None:
        if command.stdin.startswith("update"):
            slurm.does("scancel 7_2")

    slurm.before = cancel
    tick(slurm, settings_in(tmp_path))
    slurm.advance(1)
    running = [e.job for e in slurm.elements.values() if e.state == "RUNNING"]
    assert (running.count(7), running.count(8)) == (started, 2)


@pytest.mark.parametrize(
    ("when", "line"), [("update", "scancel 7_4"), ("show", "scontrol hold 7_4")]
)
def test_members_of_a_gang_that_wait_for_their_start_count_in_its_minimum(
    when: str, line: str, tmp_path: Path
) -> None:
    """Slurm gives members of a group no node before they run."""
    slurm = FakeSlurm({**dict.fromkeys(NODES[:4], ""), **dict.fromkeys(NODES[4:6], "DOWN")})
    slurm.submit(7, 6, GANG.replace("}", ",not=-}"))
    settings = settings_in(tmp_path)
    settings = replace(settings, plan=replace(settings.plan, snooze_s=0))
    tick(slurm, settings)
    assert [e.name for e in slurm.of(7) if not e.hold] == ["7_0", "7_1", "7_2", "7_3"]

    def interfere(command: Command) -> None:
        if command.stdin.startswith(when):
            slurm.does(line)

    slurm.before = interfere
    slurm.nodes.update(dict.fromkeys(NODES[4:6], ""))
    tick(slurm, settings)
    slurm.advance(1)
    assert [e.name for e in slurm.of(7) if e.state == "RUNNING"][4:] == ["7_5"]


def _starts(slurm: FakeSlurm, count: int) -> tuple[Intent, ...]:
    mark = GANG.replace("=6", f"={count}").replace("}", ",not=-,slot=cpu:1+mem:1000}")
    slurm.submit(7, count, mark, part=Part())
    (job,) = observe(slurm, ["malleable"]).jobs
    return tuple(
        Intent(
            f.id,
            Why.HOLE_OPEN,
            Verb.GROW,
            mark=f.mark,
            nodes=frozenset({NODES[f.id.index % 8]}),
            limit=timedelta(minutes=10),
        )
        for f in job.fragments
    )


@pytest.mark.parametrize("are_named", [True, False])
def test_refusals_of_all_updates_cost_a_handful_of_commands(are_named: bool) -> None:
    slurm = FakeSlurm(dict.fromkeys(NODES, ""), sizes=dict.fromkeys(NODES, resources(64, 64_000)))
    intents = _starts(slurm, 256)
    seen, before = observe(slurm, ["malleable"]), len(slurm.commands)
    slurm.nodes = {}  # no update can name a node any more
    slurm.fates = [] if are_named else ["refused"] * 100
    assert apply(slurm, seen, intents, lambda text: None)
    updates = -(-256 // 50)
    assert len(slurm.commands) - before <= updates + (1 if are_named else 15)
    slurm.advance(5)
    assert not [e for e in slurm.of(7) if e.nodes]


def test_refused_fragments_are_named_and_the_others_start_by_one_more_command() -> None:
    slurm = FakeSlurm(dict.fromkeys(NODES, ""), sizes=dict.fromkeys(NODES, resources(64, 64_000)))
    intents = _starts(slurm, 40)
    seen, before = observe(slurm, ["malleable"]), len(slurm.commands)
    for index in (3, 17, 39):
        slurm.does(f"scancel 7_{index}")
    refused = apply(slurm, seen, intents, lambda text: None)
    assert "7_17" in "".join(refused)
    assert len(slurm.commands) - before == 4  # updates, the others', their release, their marks
    slurm.advance(1)
    assert len([e for e in slurm.of(7) if e.state == "RUNNING"]) == 37


def test_a_refused_move_to_the_lane_is_explained_and_tried_less_and_less(tmp_path: Path) -> None:
    """It was sent again at each tick, and no reader of explain heard of it."""
    slurm = FakeSlurm(dict.fromkeys(NODES, ""))
    mark = "malleable{min=1,max=3,unit=1,core=1,lane=malleable,frags=3,lease=600,hole=120}"
    slurm.submit(7, 3, mark, limit_min=600, partition=MAIN)
    slurm.misfits = {7}
    sent = []
    for _ in range(40):
        before = len(slurm.commands)
        report = tick(slurm, settings_in(tmp_path))
        sent += [c for c in slurm.commands[before:] if "Partition=" in c.stdin]
        slurm.advance(30)
    assert 3 <= len(sent) <= 8
    (job,) = report.plan.jobs
    assert "Slurm refuses to move its other fragments to the partition malleable" in "".join(
        map(reason_text, job.reasons)
    )
    slurm.misfits = set()
    for _ in range(40):
        tick(slurm, settings_in(tmp_path))
        slurm.advance(30)
    assert [e.state for e in slurm.of(7)] == ["RUNNING"] * 3
