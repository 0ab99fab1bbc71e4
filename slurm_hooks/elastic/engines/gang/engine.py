"""The part that an engine adds to `malleable run`: an object, ours or from a package in the user's
environment.

docs/developers/engines.md says how to write an engine. It is loaded in the job alone, as its user.
"""

from __future__ import annotations

import importlib
import os
import traceback
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any, Optional, Protocol

from slurm_hooks.elastic.agent.options import OptionError
from slurm_hooks.elastic.engines.gang.mpi import Mpi
from slurm_hooks.elastic.engines.gang.tensorflow import TensorFlow
from slurm_hooks.elastic.engines.gang.world import GangWorld
from slurm_hooks.elastic.log import say

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
    except (Exception, SystemExit) as error:  # code of another package
        raise OptionError(f"engine={name}: {entry.value}: {_load_fault(error)}") from error
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
    """Return the engine's variables for this member. Raises OptionError if one is no text, and
    SystemExit if the engine raises.
    """
    return _texts(engine, "variables", name, world)


def lays_out(engine: GangEngine) -> bool:
    """Return whether it has a method `lay_out`."""
    return callable(getattr(engine, "lay_out", None))


def files_of(engine: GangEngine, name: str, world: GangWorld) -> Mapping[str, str]:
    """Return the texts that the engine lays out. Raises as `variables_of`."""
    return _texts(engine, "lay_out", name, world)


def _texts(engine: object, method: str, name: str, world: GangWorld) -> Mapping[str, str]:
    given = _answer(getattr(engine, method), name, world)
    fault = f"engine={name}: {method}(world) gives"
    if not isinstance(given, Mapping):
        raise OptionError(f"{fault} {given!r}, which is no mapping")
    for key, value in given.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise OptionError(f"{fault} {key} = {value!r}, which is no text")
    return given


def _answer(method: Callable[[GangWorld], Any], name: str, world: GangWorld) -> Any:
    """Call a method of the engine. If it raises, say so, show the engine's own part of the
    traceback, and raise SystemExit.
    """
    try:
        return method(world)
    except (Exception, SystemExit) as error:  # code of another package
        say(f"engine={name}: {_fault(error)}")
        raise SystemExit(1) from None


def _fault(error: BaseException) -> str:
    """Return the error with its place in the engine, then the traceback from there on."""
    own = error.__traceback__ and error.__traceback__.tb_next  # the first frame is `_answer`
    if own is None:  # the method does not take a world
        return f"{type(error).__name__}: {error}"
    shown = "".join(traceback.format_exception(type(error), error, own)).rstrip()
    return f"{_with_place(error, traceback.extract_tb(own)[0].filename)}\n{shown}"


def _load_fault(error: BaseException) -> str:
    """Return the error of a package that does not load, with its last place outside of Python."""
    steps = traceback.extract_tb(error.__traceback__)[1:]  # the first frame is `find_engine`
    own = [step.filename for step in steps if not _is_of_python(step.filename)]
    return _with_place(error, own[-1]) if own else f"{type(error).__name__}: {error}"


def _is_of_python(file: str) -> bool:
    return file.startswith("<frozen") or file in (importlib.__file__, metadata.__file__)


def _with_place(error: BaseException, file: str) -> str:
    """Return the error with the last line of this file in its traceback."""
    steps = traceback.extract_tb(error.__traceback__)
    last = [step for step in steps if step.filename == file][-1]
    return f"{type(error).__name__} in {os.path.basename(file)}:{last.lineno}: {error}"
