"""The switches and blocks of nodes, as scontrol of several releases prints them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from captured_slurm import VERSIONS, Recorded, recorded
from slurm_hooks.errors import CommandRefused, RetryLater
from slurm_hooks.slurm.gateway import observe
from slurm_hooks.slurm.scontrol import parse_switches, switches_command
from slurm_hooks.slurm.text import Command

TREE = """scontrol: show topology
SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[1-2]
SwitchName=s2 Level=0 LinkSpeed=1 Nodes=n[2-4]
SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=s[1-2]
scontrol:
"""
BLOCKS = """BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2
BlockName=b2 BlockIndex=1 Nodes=n[3-4] BlockSize=2
BlockName=b3 BlockIndex=2 BlockSize=2
AggregatedBlock=b[1-2] BlockIndex=3 Nodes=n[1-4] BlockSize=4
"""


def switches(port: Recorded) -> dict[str, str]:
    return {node.name: node.switch for node in observe(port, ["malleable"]).nodes if node.switch}


def with_switches(version: str, plugin: str) -> Recorded:
    """A Slurm that has switches, or would have with that plugin."""
    port = recorded("running", version)
    answer = f"{port.answers['scontrol show']}\nTopologyPlugin          = {plugin}\n{TREE}"
    return replace(port, answers={**port.answers, "scontrol show": answer})


def test_a_node_is_on_a_leaf_switch_or_in_a_block() -> None:
    assert parse_switches(TREE) == {"n1": "s1", "n2": "s1", "n3": "s2", "n4": "s2"}
    assert parse_switches(BLOCKS) == {"n1": "b1", "n2": "b1", "n3": "b2", "n4": "b2"}


@pytest.mark.parametrize(
    "text", ["", "scontrol: error: No topology information available\n", "SwitchName=s Nodes=n[1"]
)
def test_a_switch_without_nodes_is_passed_over(text: str) -> None:
    assert parse_switches(text) == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_switches_are_asked_for_where_slurm_has_them(version: str) -> None:
    port = with_switches(version, "topology/tree")
    assert switches(port) == {"n1": "s1", "n2": "s1", "n3": "s2", "n4": "s2"}
    assert port.commands[-1] == switches_command()
    port = recorded("running", version)
    assert switches(port) == {}
    assert len(port.commands) == 2


@pytest.mark.parametrize("error", [CommandRefused("no"), RetryLater("silence")])
def test_without_an_answer_nodes_have_no_switch(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, ask = with_switches("22.05", "topology/block"), Recorded.ask

    def fail(port: Recorded, command: Command) -> str:
        if command == switches_command():
            raise error
        return ask(port, command)

    monkeypatch.setattr(Recorded, "ask", fail)
    assert switches(port) == {}
