"""The effect of the choices and the settings of a site on a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replay.machines import SIX_FOUR, record, two_nodes
from slurm_hooks.replay import scenario
from slurm_hooks.replay.dedicated import reference
from slurm_hooks.replay.scenario import Conditions
from slurm_hooks.replay.work import Queue, kind
from slurm_hooks.settings.values import Mode, Settings

CONDITIONS = Conditions(
    queue=Queue((two_nodes(),)),
    jobs=3,
    rescale=SIX_FOUR,
    t_fwd_s=120.0,
    tick_s=30.0,
    latency_s=2.0,
    checkpoint_s=0.0,
)
FOUR = record(*((node, 0.0, 600.0) for node in range(4)), to_s=600.0)


@pytest.mark.parametrize(
    ("mode", "nodes"),
    [
        (Mode(), 4),
        (Mode(level="observe"), 4),
        (Mode(max_nodes=3), 3),
        (Mode(max_share=0.5), 2),
        (Mode(max_nodes=1, max_share=0.5), 1),
    ],
)
def test_the_site_s_ceiling_holds_and_its_level_does_not(mode, nodes):
    """A site that tries a setting in advance observes."""
    outcome = scenario.run("default", FOUR, CONDITIONS, replace(Settings(), mode=mode))
    assert outcome.ledger.used_node_s == pytest.approx(nodes * 598)


@pytest.mark.parametrize(
    ("policy", "ends", "interruptions"),
    [("default", "planned", 1), ("default", "unknown", 1), ("oracle", "unknown", 0)],
)
def test_only_the_oracle_knows_a_surprising_end_in_advance(policy, ends, interruptions):
    conditions = replace(CONDITIONS, jobs=1, checkpoint_s=600.0, ends=ends)
    machine = record((0, 0.0, 600.0), to_s=700.0)
    assert scenario.run(policy, machine, conditions, Settings()).interruptions == interruptions


def test_an_end_that_was_published_can_be_forgotten():
    conditions = replace(CONDITIONS, jobs=1, checkpoint_s=600.0)
    machine = record((0, 0.0, 600.0), to_s=700.0, known_s=0.0)
    blind = replace(conditions, ends="unknown")
    assert scenario.run("default", machine, conditions, Settings()).interruptions == 0
    assert scenario.run("default", machine, blind, Settings()).interruptions == 1


def test_dedicated_nodes_run_the_jobs_in_turn_without_a_gap():
    """Two nodes are idle on average. Two jobs run on a node each, in 10 s, then the next two."""
    machine = record((0, 0.0, 100.0), (1, 0.0, 100.0), to_s=100.0)
    short = kind("short", two_nodes().curve, (1, 2), 100.0)
    assert reference(machine, Queue((short,)), 2).total == pytest.approx(20)
    assert reference(machine, Queue((short,)), 1).total == pytest.approx(18)
    one = record((0, 0.0, 100.0), (1, 0.0, 50.0), to_s=100.0)
    assert reference(one, Queue((short,)), 2).total == pytest.approx(20 * 0.75)
