"""The leaf switch or the block that each node is on, where Slurm is told of them."""

from __future__ import annotations

import contextlib

from ClusterShell.NodeSet import NodeSetParseError

from slurm_hooks.slurm.scontrol import Words, read_records
from slurm_hooks.slurm.text import Command, expand

_PLUGINS = ("topology/tree", "topology/block")


def has_switches(config: Words) -> bool:
    """True if it is worth asking: other plugins know no switch that nodes share."""
    return config.get("TopologyPlugin", "") in _PLUGINS


def switches_command() -> Command:
    """All switches, or all blocks. scontrol ends well where there is none (22.05 to 26.05)."""
    return Command(("scontrol", "--oneliner"), "show topology\n")


def parse_switches(text: str) -> dict[str, str]:
    """By node; of several that have a node it is the first. A switch above others has no node of
    its own, and a list of nodes that cannot be read is passed over."""
    found: dict[str, str] = {}
    for kind in ("SwitchName", "BlockName"):
        for words in read_records(text, kind):
            if words.get("Level", "0") != "0":
                continue
            with contextlib.suppress(NodeSetParseError):
                for name in expand(words.get("Nodes", "")):
                    found.setdefault(name, words[kind])
    return found
