"""The part that an engine adds to `malleable run`: an object, ours or from a package in the user's
environment.

docs/developers/engines.md says how to write an engine. It is loaded in the job alone, as its user.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any, Optional, Protocol

from slurm_hooks.elastic.agent.options import OptionError
from slurm_hooks.elastic.engines.gang.mpi import Mpi
from slurm_hooks.elastic.engines.gang.tensorflow import TensorFlow
from slurm_hooks.elastic.engines.gang.world import GangWorld

GROUP = "slurm_malleable.engines"
TENSORFLOW = "tensorflow"


class GangEngine(Protocol):
    """It may also have `lay_out(world)`, which returns texts by name of file. Then the command runs
    at rank 0 only, without SLURM_*, beside these files in `world.folder`.
    """

    def variables(self, world: GangWorld) -> Mapping[str, str]:
        """Return the variables that this member's command gets beside MALLEABLE_*."""


class Plain:
    """A command that needs no more variables."""

    def variables(self, _world: GangWorld) -> Mapping[str, str]:
        """Return no variable."""
        return {}


_OURS: Mapping[str, Callable[[], GangEngine]] = {
    "command": Plain,
    "mpi": Mpi,
    TENSORFLOW: TensorFlow,
}


def find_engine(name: str) -> GangEngine:
    """Return the engine of this name. Raises OptionError if no package names it, or it cannot be
    loaded.
    """
    if name in _OURS:
        return _OURS[name]()
    entry = _entry_point(name)
    if entry is None:
        raise OptionError(
            f"engine={name}: no package of this Python names it in the group {GROUP}; install it "
            "in the environment that the script activates"
        )
    try:
        engine: GangEngine = entry.load()()
    except (Exception, SystemExit) as error:
        raise OptionError(f"engine={name}: {entry.value}: {error!r}") from error
    if not callable(getattr(engine, "variables", None)):
        raise OptionError(f"engine={name}: {entry.value} has no method variables(world)")
    return engine


def _entry_point(name: str) -> Optional[Any]:
    try:
        points: Any = metadata.entry_points()
        group = points.select(group=GROUP) if hasattr(points, "select") else points.get(GROUP, ())
        return next((entry for entry in group if entry.name == name), None)
    except Exception as error:  # a single package with damaged entry points is enough
        where = "the entry points of this Python's packages"
        raise OptionError(f"engine={name}: {where}: {error!r}") from error


def variables_of(engine: GangEngine, name: str, world: GangWorld) -> Mapping[str, str]:
    """Return the engine's variables for this member. Raises OptionError if one is no text."""
    given: object = engine.variables(world)
    fault = f"engine={name}: variables(world) gives"
    if not isinstance(given, Mapping):
        raise OptionError(f"{fault} {given!r}, which is no mapping")
    for key, value in given.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise OptionError(f"{fault} {key} = {value!r}, which is no text")
    return given


def lays_out(engine: GangEngine) -> Optional[Callable[[GangWorld], Mapping[str, str]]]:
    """Return its method `lay_out`, or `None`."""
    return getattr(engine, "lay_out", None)
