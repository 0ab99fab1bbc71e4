"""The leaf switch or the block of each node, if Slurm's topology has them."""

from __future__ import annotations

import contextlib

from ClusterShell.NodeSet import NodeSetParseError

from slurm_hooks.slurm.scontrol import Words, read_records
from slurm_hooks.slurm.text import Command, expand

_PLUGINS = ("topology/tree", "topology/block")


def has_switches(config: Words) -> bool:
    """True if the topology plugin knows switches or blocks that nodes share."""
    return config.get("TopologyPlugin", "") in _PLUGINS


def switches_command() -> Command:
    """Ask for all switches or blocks. scontrol succeeds without any (22.05 to 26.05)."""
    return Command(("scontrol", "--oneliner"), "show topology\n")


def parse_switches(text: str) -> dict[str, str]:
    """Return the switch of each node, the first if several have it. A switch above others has no
    nodes. A list of nodes that cannot be read is skipped."""
    switches: dict[str, str] = {}
    for kind in ("SwitchName", "BlockName"):
        for words in read_records(text, kind):
            if words.get("Level", "0") != "0":
                continue
            with contextlib.suppress(NodeSetParseError):
                for name in expand(words.get("Nodes", "")):
                    switches.setdefault(name, words[kind])
    return switches
