"""The output of scontrol as words: the configuration, and records of a line each. With it comes the
switch of each node.

These words come before any free text of an administrator, so the first value of a key counts.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping

from ClusterShell.NodeSet import NodeSetParseError

from slurm_hooks.slurm.text import Command, expand

Words = Mapping[str, str]

_AS_OF = "Configuration data as of"
_SETTING = re.compile(rf"({_AS_OF}) (\S+)|(\w+(?:\[\d+\])?)\s+= (.*)")
_PLUGINS = ("topology/tree", "topology/block")
_PAIR = re.compile(r"(?:^|\s)(\w+)=(\S*)")


def read_config(text: str) -> Words:
    """Return the settings in `show config`, with slurmctld's clock under `Configuration data as
    of`."""
    matches = (_SETTING.match(line) for line in text.splitlines())
    pairs = (
        match.group(1, 2) if match.group(1) else match.group(3, 4) for match in matches if match
    )
    return {key: value.strip() for key, value in pairs}


def read_records(text: str, kind: str) -> list[Words]:
    """Return the records that begin with the key `kind`, like NodeName."""
    return [words_of(line) for line in lines_of(text, kind)]


def lines_of(text: str, kind: str) -> list[str]:
    """Return the lines of these records."""
    return [line for line in text.splitlines() if line.startswith(f"{kind}=")]


def words_of(line: str) -> Words:
    """Return the words of a record."""
    return dict(reversed(_PAIR.findall(line)))


def name_in(line: str) -> str:
    """Return the name with which a record begins."""
    return line.split(maxsplit=1)[0].partition("=")[2]


def of_partition(words: Words) -> str:
    """Return the beginning of a partition's line in slurm.conf."""
    return f"PartitionName={words['PartitionName']}"


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
