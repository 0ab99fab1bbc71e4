"""Nodes that the settings name by Slurm's host lists."""

from __future__ import annotations

import re
from dataclasses import replace

from ClusterShell.NodeSet import NodeSetParseError

from slurm_hooks.errors import SettingsError
from slurm_hooks.settings import Settings
from slurm_hooks.slurm.text import expand

MOST = 1_000_000  # a list is unfolded in memory


def most_names(text: str) -> int:
    """How many nodes a host list names at most, without unfolding it."""
    most = 1
    for brackets in re.findall(r"\[([^\]]*)\]", text):
        spans = re.findall(r"(\d+)(?:-(\d+))?", brackets)
        most *= max(1, sum(int(last or first) - int(first) + 1 for first, last in spans))
    return most


def with_host_lists(settings: Settings) -> Settings:
    """The settings with each node of `mode.nodes` by its own name. Raises SettingsError."""
    found: set[str] = set()
    for text in settings.mode.nodes:
        if most_names(text) > MOST:
            raise SettingsError([f"mode.nodes: {text!r} names more than {MOST:,} nodes"])
        try:
            found |= expand(text)
        except NodeSetParseError as error:
            raise SettingsError([f"mode.nodes: {text!r} is no host list: {error}"]) from error
    if not found:
        return settings
    return replace(settings, mode=replace(settings.mode, nodes=tuple(sorted(found))))
