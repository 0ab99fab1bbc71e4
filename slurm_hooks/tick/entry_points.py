"""Finds a site's own objective among the entry points of installed packages.

The tick may change and cancel every job. So it only loads a package that an administrator has
installed and named in the settings, never a path, and never a module that a user names.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import metadata
from typing import Any

from slurm_hooks.allocation.objectives import OBJECTIVES, Objective
from slurm_hooks.errors import SettingsError

GROUP = "slurm_malleable.objectives"


def find_objective(name: str) -> Objective:
    """The objective called `name`, built-in objectives first.

    Raises SettingsError if it does not load.
    """
    if name in OBJECTIVES:
        return OBJECTIVES[name]
    named = {entry.name: entry for entry in entries(GROUP)}
    if name not in named:
        known = ", ".join([*OBJECTIVES, *sorted(named)])
        fault = f"plan.objective = {name!r}: no installed package has it in {GROUP}"
        raise SettingsError([f"{fault}; known: {known}"])
    entry = named[name]
    try:
        objective: Objective = entry.load()
    except (Exception, SystemExit) as error:  # the site's code may raise anything
        seen = f"{type(error).__name__}: {error}"
        fault = f"plan.objective = {name!r}: cannot load {entry.value}: {seen}"
        raise SettingsError([fault]) from error
    if not callable(objective):
        raise SettingsError([f"plan.objective = {name!r}: {entry.value} is not a function"])
    return objective


def entries(group: str) -> Iterable[Any]:
    """The entry points of all installed packages in a group."""
    if sys.version_info >= (3, 10):
        return metadata.entry_points(group=group)
    return metadata.entry_points().get(group, ())
