"""Functions that run right after a module has been imported, whoever imports it, and whenever.

What imports and how is left as it is: modules are found and loaded by the interpreter's own means.
It must not import any of these modules itself. Standard library only, and cheap: it is in place in
every process of a job that imports torch.
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
    """Calls `then[name]` with the module of that name. What a function raises is passed over."""

    def __init__(self, then: Mapping[str, Then]) -> None:
        self._then = then

    def install(self) -> None:
        """From now on; modules that are there already have their turn at once, those whose import
        is under way at its end."""
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
        """As the finders after this one find it; nothing for all other modules."""
        then = self._then.get(name)
        spec = self._found_by_others(name, path, target) if then else None
        if then and spec is not None and spec.loader is not None:
            with suppressed(AttributeError, doing=f"getting ready for the import of {name}"):
                _go_on(spec.loader, then)
        return spec

    def _found_by_others(
        self, name: str, path: Optional[Sequence[str]], target: Optional[ModuleType]
    ) -> Optional[ModuleSpec]:
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec: Optional[ModuleSpec] = find(name, path, target) if find else None
            if spec is not None:
                return spec
        return None


def _go_on(loader: Any, then: Then) -> None:
    """Have this loader of one module call `then`, once, when it has loaded it."""
    plain = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        vars(loader).pop("exec_module", None)  # it is what it was
        plain(module)
        _call(then, module)

    loader.exec_module = exec_module


def _at_its_end(spec: Any, call: Callable[[], None]) -> None:
    """The import system marks the end of an import in the spec, where it can be seen."""
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
