"""Run functions right after a module has been imported, by any importer at any time.

The imports themselves stay unchanged: the interpreter finds and loads modules by its own means.
This module must not import any of these modules itself. Standard library only, and cheap: it is in
place in every process of a job that imports torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Optional

from slurm_hooks.elastic.log import suppressed

Then = Callable[[Any], None]


class AfterImport(MetaPathFinder):
    """Calls `then[name]` with the module of that name. Errors of such a function are ignored."""

    def __init__(self, then: Mapping[str, Then]) -> None:
        self._then = then

    def install(self) -> None:
        """Begin now. Modules that are there already have their turn at once. Modules whose import
        is under way have it at the end of the import.
        """
        sys.meta_path.insert(0, self)
        for name, then in self._then.items():
            module = sys.modules.get(name)
            spec = getattr(module, "__spec__", None)
            if module is not None and getattr(spec, "_initializing", False):
                _at_its_end(spec, partial(_call, then, module))
            elif module is not None:
                _call(then, module)

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        """Return the spec that later finders find, or `None` for all other modules."""
        then = self._then.get(name)
        spec = self._spec_of_others(name, path, target) if then else None
        if then and spec is not None and spec.loader is not None:
            with suppressed(AttributeError, doing=f"getting ready for the import of {name}"):
                _go_on(spec.loader, then)
        return spec

    def _spec_of_others(
        self, name: str, path: Optional[Sequence[str]], target: Optional[ModuleType]
    ) -> Optional[ModuleSpec]:
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec: Optional[ModuleSpec] = find(name, path, target) if find else None
            if spec is not None:
                return spec
        return None


def _go_on(loader: Any, then: Then) -> None:
    """Make this loader of a module call `then`, once, after it has loaded the module."""
    plain = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        vars(loader).pop("exec_module", None)  # it is as before
        plain(module)
        _call(then, module)

    loader.exec_module = exec_module


def _at_its_end(spec: Any, call: Callable[[], None]) -> None:
    """Call at the end of an import, which the import system marks in the spec."""
    plain = type(spec)

    class Ending(plain):  # type: ignore[misc, valid-type]
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "_initializing" and not value:
                self.__class__ = plain
                call()

    with suppressed(TypeError, doing="waiting for an import to end"):
        spec.__class__ = Ending


def _call(then: Then, module: ModuleType) -> None:
    with suppressed(Exception, doing=f"getting {module.__name__} ready after its import"):
        then(module)
