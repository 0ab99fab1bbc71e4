"""Nodes that the settings name by Slurm's host lists."""

from __future__ import annotations

from dataclasses import replace

from ClusterShell.NodeSet import NodeSetParseError

from slurm_hooks.errors import SettingsError
from slurm_hooks.settings.values import Settings
from slurm_hooks.slurm.text import expand


def with_host_lists(settings: Settings) -> Settings:
    """Return the settings with each node of `mode.nodes` by its own name. Raises SettingsError."""
    names: set[str] = set()
    for text in settings.mode.nodes:
        try:
            names |= expand(text)
        except NodeSetParseError as error:
            raise SettingsError(
                [f"mode.nodes: {text!r} cannot be read as a host list: {error}"]
            ) from error
    if not names:
        return settings
    return replace(settings, mode=replace(settings.mode, nodes=tuple(sorted(names))))
